"""The plugin: which group gets the reservation, which pods it keeps out, when it ends, and what users are told.

Without a reservation, a large group may wait for ever: whenever some pods end, smaller pods take their GPUs. The plugin
therefore keeps nodes for one group, the first in line, in these steps:

1. A group has found no place. If it comes first, `planning` finds the earliest time at which it fits, by the end times
   that `lifetimes` gives for running pods, and the nodes that it takes then.
2. `room` keeps these nodes. The filter rejects another pod there, unless the pod has a higher priority, ends before the
   group's start, or takes only what the group leaves over.
3. Each time that the group is tried again, the plan may be made anew. A group that comes before it takes the
   reservation over.
4. The reservation ends when the group has its place. It also ends when the group becomes incomplete, when its start
   time has passed, or when the longest reservation time is over. So a wrong end time cannot hold nodes for ever.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from gangline import (
    RESERVATION_ENDED,
    SKIP,
    Action,
    CodeColumn,
    EventHint,
    GroupAttempt,
    Handle,
    NodeView,
    PodInfo,
    Reason,
    Status,
    codes,
    custom_resources,
    hookimpl,
    moments,
    on,
    permissions,
    resources,
    unschedulable,
)
from gangline_plugins.memberships import key_of
from gangline_plugins.reservation.arguments import ReservationArgs
from gangline_plugins.reservation.ending import End, Notices
from gangline_plugins.reservation.lifetimes import Lifetimes
from gangline_plugins.reservation.outlook import Expected
from gangline_plugins.reservation.planning import ReservationPlan, plan
from gangline_plugins.reservation.room import KeptRoom, Leaving

LOOK = 1.0
"""Seconds between two checks whether the group is still complete."""
LATE = 60.0
"""Seconds after the planned start at which a reservation ends if no new plan was made."""


class Reservation:
    """Keeps nodes for the waiting group that comes first: the one with the highest priority, then the longest wait.

    Pods of the same or a lower priority may use these nodes only if they end before the group is to start, or if the
    group leaves enough over for them. The reservation ends with the group's start, when the group is incomplete, when
    its start time has passed, or when it has lasted too long.
    """

    name = "Reservation"
    args_type = ReservationArgs
    reasons = (Reason("node(s) were reserved for a waiting group", resolvable=False),)

    def __init__(self, args: ReservationArgs, handle: Handle) -> None:
        self._handle = handle
        self._args = args
        self._lifetimes = Lifetimes(handle, args)
        self._leaving = handle.state.tracker(Leaving)
        self._notices = Notices(handle)
        self._began = asyncio.Event()
        if self._leaving.kept is not None:
            self._began.set()  # the reservation was made under an earlier configuration
        handle.run(self._look)
        handle.show(Expected(handle, self._lifetimes, self._leaving))

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Pods that come or go, new nodes, and the end of a reservation: the reserved group may start, or kept-out pods
        may.
        """
        return (on("pods", Action.ADD | Action.DELETE), on("nodes", Action.ADD), EventHint(RESERVATION_ENDED))

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt, nodes: NodeView) -> Status | None:
        """If the group comes first, plan when and where it starts, and keep these nodes for it."""
        now = self._handle.clock.now()
        kept = self._tidy(now)
        group = attempt.group
        queued = self._handle.clock.monotonic() - attempt.waited
        if kept is not None and kept.key != group.key and not _comes_first(attempt, queued, kept):
            other = kept.name if kept.namespace == group.namespace else "a gang of another namespace"
            return unschedulable(f"room is kept for {other} before it")
        refusal = self._refusal(attempt, now)
        if refusal:
            return unschedulable(refusal)
        is_own = kept is not None and kept.key == group.key
        if kept is not None and is_own and self._is_new(kept, now):
            return unschedulable(_said(kept, nodes))
        found = self._plan(attempt, nodes, now)
        if found is not None:
            return unschedulable(_said(self._keep(attempt, found, queued, now, nodes, kept), nodes))
        if kept is not None and is_own:
            self._end(kept, End.UNKNOWN)
        elif kept is not None:
            self._leaving.keep(kept, self._end_of, nodes)
        return None

    @hookimpl
    def pod_group_key(self) -> Hashable:
        """Nothing can be planned for any group while nothing is reserved and no pod has a known end."""
        return None if self._can_plan() else ()

    @hookimpl
    def pod_group_can_help(self) -> bool:
        """False while nothing is reserved and no pod has a known end."""
        return self._can_plan()

    def _can_plan(self) -> bool:
        return self._leaving.kept is not None or self._lifetimes.are_known

    @hookimpl
    def pre_cycle(self) -> None:
        """End the reservation if it is due."""
        self._tidy(self._handle.clock.now())

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter if there is no reservation, for the reserved group's pods, for pods of higher priority, and
        for pods that end before the group starts.
        """
        kept = self._leaving.kept
        return None if kept is not None and self._is_kept_from(pod, kept) else SKIP

    @hookimpl
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        """Whether the room that is kept is kept from the pod; None without a reservation."""
        kept = self._leaving.kept
        return self._is_kept_from(pod, kept) if kept is not None else None

    @hookimpl
    def identity_all(self, pods: Sequence[PodInfo]) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        kept = self._leaving.kept
        return [self._is_kept_from(pod, kept) for pod in pods] if kept is not None else None

    def _is_kept_from(self, pod: PodInfo, kept: KeptRoom) -> bool:
        if pod.priority > kept.priority or key_of(self._handle, pod) == kept.key:
            return False
        return self._end_of(pod) > kept.at

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Reject nodes on which the pod would take what is kept for the group."""
        return codes(self._leaving.refuses(pod, nodes))

    @hookimpl
    def reserve(self, pod: PodInfo) -> None:
        """End the reservation as served when a pod of its group gets a node."""
        kept = self._leaving.kept
        if kept is not None and key_of(self._handle, pod) == kept.key:
            self._end(kept, End.SERVED)

    @hookimpl
    def reserve_all(self) -> Status | None:
        """Nothing is to be done without a reservation."""
        return SKIP if self._leaving.kept is None else None

    # Its end

    async def _look(self) -> None:
        """Check the reservation regularly while there is one, so that it ends even if no pod is scheduled."""
        while True:
            await self._began.wait()
            await asyncio.sleep(LOOK)
            if self._tidy(self._handle.clock.now()) is None:
                self._began.clear()

    def _tidy(self, now: float) -> KeptRoom | None:
        """The present reservation; None if there is none or it was due to end."""
        kept = self._leaving.kept
        if kept is None:
            return None
        end = self._end_at(kept, now)
        if end is not None:
            self._end(kept, end)
        return self._leaving.kept

    def _is_new(self, kept: KeptRoom, now: float) -> bool:
        """Whether the plan need not be made again. A plan of the future was made before the clock was put back."""
        return 0.0 <= now - kept.planned < self._args.replan_seconds and kept.at > now

    def _end_at(self, kept: KeptRoom, now: float) -> End | None:
        if now >= kept.until:
            return End.LIMIT
        if now > kept.at + LATE:
            return End.LATE
        if now < kept.planned - LATE:
            return End.UNKNOWN  # the clock has been put back, and its times were wrong when the plan was made
        if not 0.0 <= now - self._leaving.looked < LOOK:
            self._leaving.looked = now
            return None if self._handle.is_queued(kept.key) else End.INCOMPLETE
        return None

    def _end(self, kept: KeptRoom, why: End) -> None:
        self._leaving.drop()
        if why is End.SERVED:
            self._leaving.since.pop(kept.key, None)
        self._notices.ended(kept, why)

    def _refusal(self, attempt: GroupAttempt, now: float) -> str:
        """Why the group gets no reservation now; "" if it may have one."""
        group, longest = attempt.group, self._args.max_reservation_seconds
        if self._args.require_reservation_permission:
            store = self._handle.state.store(resources.NAMESPACES)
            if not permissions.is_allowed(permissions.RESERVATION, group.namespace, store):
                return f"no room is kept for it: {permissions.missing(permissions.RESERVATION, group.namespace)}"
        since = self._leaving.since
        for key in [key for key, first in since.items() if not first <= now < first + 2 * longest]:
            del since[key]
        first = since.get(group.key, now)
        if now < first + longest:
            return ""
        return f"no room is kept for it before {moments.shown(first + 2 * longest)}: it was for {longest:g} seconds"

    # Its beginning

    def _plan(self, attempt: GroupAttempt, nodes: NodeView, now: float) -> ReservationPlan | None:
        kept = self._leaving.kept
        self._leaving.drop()  # while a new plan is made, the old one must not keep the group out of its own nodes
        try:
            endings = self._lifetimes.endings(now, attempt.group.namespace)
            with self._handle.state.transaction() as tx:
                return plan(attempt, endings, tx)
        except BaseException:  # for example the deadline has passed: there is no new plan, so the old one stays
            if kept is not None:
                self._leaving.keep(kept, self._end_of, nodes)
            raise

    def _keep(
        self,
        attempt: GroupAttempt,
        found: ReservationPlan,
        queued: float,
        now: float,
        nodes: NodeView,
        before: KeptRoom | None,
    ) -> KeptRoom:
        pods = {pod.uid: pod for pod in attempt.pods}
        rows = np.unique(np.fromiter(found.rows.values(), dtype=np.intp))
        wanted: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(len(rows), dtype=np.int64))
        for uid, row in found.rows.items():
            for resource, amount in pods[uid].cls.requests.real.items():
                wanted[resource][np.searchsorted(rows, row)] += amount
        group = attempt.group
        since = self._leaving.since.setdefault(group.key, now)
        until = since + self._args.max_reservation_seconds
        kept = KeptRoom(
            group.key,
            group.namespace,
            group.name,
            _priority(attempt),
            queued,
            found.at,
            now,
            since,
            until,
            rows,
            dict(wanted),
            tuple(attempt.pods),
        )
        self._leaving.keep(kept, self._end_of, nodes)
        self._began.set()
        if before is None or before.key != kept.key:
            if before is not None:
                self._notices.ended(before, End.OUTRANKED)
            self._notices.began(kept)
        self._notices.show(kept)
        return kept

    def _end_of(self, pod: PodInfo) -> float:
        kept = self._leaving.kept
        beneficiary = kept.namespace if kept is not None else ""
        return self._lifetimes.end_of(pod, self._handle.clock.now(), beneficiary)


def _priority(attempt: GroupAttempt) -> int:
    group = attempt.group
    return attempt.first.priority if group.priority is None else group.priority


def _comes_first(attempt: GroupAttempt, queued: float, kept: KeptRoom) -> bool:
    return (-_priority(attempt), queued) < (-kept.priority, kept.queued)


def _said(kept: KeptRoom, nodes: NodeView) -> str:
    names = [nodes.names[row] for row in kept.rows[:1].tolist()]
    return (
        f"room is kept on {len(kept.rows)} nodes ({names[0]}, ...) with {kept.amount(custom_resources.GPU)} GPUs since "
        f"{moments.shown(kept.since)}, until {moments.shown(kept.until)} at most; "
        f"estimated start {moments.shown(kept.at)}"
    )
