"""The plugin: who gets the reservation, which pods it keeps out, and what the group is told."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import msgspec
import numpy as np

from gangline import (
    SKIP,
    Action,
    CodeColumn,
    EventHint,
    GroupAttempt,
    Handle,
    Membership,
    NodeView,
    PodInfo,
    Reason,
    Status,
    codes,
    hookimpl,
    on,
    unschedulable,
)
from gangline_plugins.reservation.lifetimes import end_of
from gangline_plugins.reservation.planning import Plan, plan
from gangline_plugins.reservation.room import Kept, Leaving


class ReservationArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments."""

    default_max_runtime_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Seconds that a pod is taken to run which does not say how long; without it such a pod is taken never to end."""
    replan_seconds: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """Seconds for which a plan stands while nothing better is asked for."""


class Reservation:
    """Keeps room for the group that comes first among those that wait: highest priority, then longest wait.

    Other pods of no higher priority may use that room only if they end before the group is to start, or if what they
    take is left over beside it.
    """

    name = "Reservation"
    args_type = ReservationArgs
    reasons = (Reason("node(s) were reserved for a waiting group", resolvable=False),)

    def __init__(self, args: ReservationArgs, handle: Handle) -> None:
        self._handle = handle
        self._default = args.default_max_runtime_seconds or math.inf
        self._replan = args.replan_seconds
        self._leaving = handle.state.tracker(Leaving)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Pods that go: the reserved group may start, and then what was kept out may go elsewhere."""
        return (on("pods", Action.ADD | Action.DELETE), on("nodes", Action.ADD))

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt, nodes: NodeView) -> Status | None:
        """Plan when and where the group starts, and keep that room for it, if it comes first."""
        self._tidy()
        kept = self._leaving.kept
        now = self._handle.clock.now()
        group = attempt.group
        queued = self._handle.clock.monotonic() - attempt.waited
        if kept is not None and kept.key != group.key and not _comes_first(attempt, queued, kept):
            return unschedulable(f"room is kept for {kept.name} before it")
        if kept is not None and kept.key == group.key and now - kept.planned < self._replan and kept.at > now:
            return unschedulable(_said(kept, nodes))
        found = self._plan(attempt, nodes, now)
        if found is None:
            if kept is not None and kept.key == group.key:
                self._leaving.drop()
            return None
        kept = self._keep(attempt, found, queued, now, nodes)
        return unschedulable(_said(kept, nodes))

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Nothing to do without a reservation, for its group, for what comes before it, and for what ends first."""
        if self._leaving.kept is None:
            return SKIP
        self._tidy()
        kept = self._leaving.kept
        if kept is None or pod.priority > kept.priority or self._key_of(pod) == kept.key:
            return SKIP
        return SKIP if self._end_of(pod) <= kept.at else None

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Nodes on which nothing would be left for the group."""
        return codes(self._leaving.refuses(pod, nodes))

    @hookimpl
    def reserve(self, pod: PodInfo) -> None:
        """The group has its place: the reservation has served."""
        kept = self._leaving.kept
        if kept is not None and self._key_of(pod) == kept.key:
            self._leaving.drop()

    def _tidy(self) -> None:
        """A group that no longer waits needs no room."""
        kept = self._leaving.kept
        if kept is not None and not self._handle.is_waiting(kept.key):
            self._leaving.drop()

    def _plan(self, attempt: GroupAttempt, nodes: NodeView, now: float) -> Plan | None:
        self._leaving.drop()  # what is kept for this group must not keep it out, and it gives way to a new plan
        placed = [pod for pod in self._handle.state.pods.values() if pod.row >= 0]
        with self._handle.state.transaction() as tx:
            return plan(attempt, placed, lambda pod: self._ends(pod, now), tx)

    def _keep(self, attempt: GroupAttempt, found: Plan, queued: float, now: float, nodes: NodeView) -> Kept:
        pods = {pod.uid: pod for pod in attempt.pods}
        rows = np.unique(np.fromiter(found.rows.values(), dtype=np.intp))
        wanted: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(rows), dtype=np.int64))
        for uid, row in found.rows.items():
            for resource, amount in pods[uid].cls.requests.real.items():
                wanted[resource][np.searchsorted(rows, row)] += amount
        group = attempt.group
        name = f"gang {group.namespace}/{group.name}"
        kept = Kept(group.key, name, _priority(attempt), queued, found.at, now, rows, dict(wanted))
        self._leaving.keep(kept, self._end_of, nodes)
        return kept

    def _ends(self, pod: PodInfo, now: float) -> float:
        return end_of(pod, self._handle.workload(pod), now, self._default)

    def _end_of(self, pod: PodInfo) -> float:
        return self._ends(pod, self._handle.clock.now())

    def _key_of(self, pod: PodInfo) -> str:
        membership = self._handle.group_of(pod)
        return membership.group.key if isinstance(membership, Membership) else ""


def _priority(attempt: GroupAttempt) -> int:
    group = attempt.group
    return attempt.first.priority if group.priority is None else group.priority


def _comes_first(attempt: GroupAttempt, queued: float, kept: Kept) -> bool:
    return (-_priority(attempt), queued) < (-kept.priority, kept.queued)


def _said(kept: Kept, nodes: NodeView) -> str:
    start = datetime.fromtimestamp(kept.at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    names = [nodes.names[row] for row in kept.rows[:1].tolist()]
    return f"room is kept on {len(kept.rows)} nodes ({names[0]}, ...); estimated start {start}"
