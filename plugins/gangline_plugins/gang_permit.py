"""GangPermit: members of a group wait at permit until enough of them have reserved nodes for the group to run.

The scheduler decides a group in one cycle, and all members that it places have a node before the first of them comes to
permit. So mostly nobody waits here. A member waits only if the group needs members that are decided later; the member
that completes the group lets all of them go. If a member waits too long, or loses its reservation, the binding ends for
the whole group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from gangline import (
    SKIP,
    Action,
    EventHint,
    Handle,
    Membership,
    PodGroup,
    PodInfo,
    Progress,
    Status,
    group_watches,
    hookimpl,
    on,
    wait,
)


class GangPermitArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of GangPermit."""

    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Seconds that members wait for the others; the time that a group names itself takes precedence."""


class GangPermit:
    """Schedules the pods of a group as one unit: all members that the group needs get nodes, or none does."""

    name = "GangPermit"
    args_type = GangPermitArgs
    watches = group_watches

    def __init__(self, args: GangPermitArgs, handle: Handle) -> None:
        self._handle = handle
        self._timeout = args.timeout_seconds
        self._last: tuple[PodGroup | None, int, bool] = None, 0, False
        """The last question and answer of `_runs`: the group, its placed members, and whether it runs."""
        handle.group_pods()

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Pods that come or go, and new or changed nodes: with them the members for which a pod waited in vain may get
        nodes.
        """
        return (on("pods", Action.ADD | Action.DELETE), on("nodes", Action.ADD | Action.UPDATE))

    @hookimpl
    def permit(self, pod: PodInfo) -> Status | None:
        """Wait for the other members; the member that completes the group lets all of them pass."""
        membership = self._handle.group_of(pod)
        if not isinstance(membership, Membership):
            return None
        group = membership.group
        if not self._runs(group, len(self._handle.members(group.key))):
            return wait(group.timeout or self._timeout)
        for held in self._handle.waiting.held_by(self.name):
            mate = self._handle.group_of(held.pod)
            if isinstance(mate, Membership) and mate.group.key == group.key:
                held.allow(self.name)
        return None

    @hookimpl
    def permit_all(self, pods: Sequence[PodInfo]) -> Status | None:
        """Nothing is to be done for members of a group that runs and has no member that waits."""
        membership = self._handle.group_of(pods[0])
        if isinstance(membership, Membership):
            group = membership.group
            is_short = not self._runs(group, len(self._handle.members(group.key)))
            if is_short or any(True for _ in self._handle.waiting.held_by(self.name)):
                return None
        return SKIP

    def _runs(self, group: PodGroup, placed: int) -> bool:
        """Whether the group runs with so many placed members. The answer is kept: each member asks in turn."""
        if self._last[0] is not group or self._last[1] != placed:
            self._last = group, placed, Progress.of(group, placed).runs
        return self._last[2]
