"""GangPermit: members of a group wait at permit until so many of them are reserved that the group can run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from gangline import (
    Action,
    EventHint,
    Handle,
    Membership,
    PodInfo,
    Progress,
    Status,
    group_watches,
    hookimpl,
    on,
    wait,
)


class GangPermitArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments."""

    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Seconds that members wait for the others; a group that says how long itself has its own time."""


class GangPermit:
    """Makes pods that belong together one unit: all that the group needs are placed, or none.

    A whole group is decided in one cycle, in which all its members have a place before the first of them is permitted.
    So a member waits here only for others that are decided later; when one of them is given back, the binding of the
    group ends for all of them.
    """

    name = "GangPermit"
    args_type = GangPermitArgs
    watches = group_watches

    def __init__(self, args: GangPermitArgs, handle: Handle) -> None:
        self._handle = handle
        self._timeout = args.timeout_seconds
        handle.group_pods()

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A pod is rejected here only when another member was; that one says what may help."""
        return (on("pods", Action.ADD | Action.DELETE), on("nodes", Action.ADD | Action.UPDATE))

    @hookimpl
    def permit(self, pod: PodInfo) -> Status | None:
        """Wait for the others; the member that makes them enough lets all of them go."""
        membership = self._handle.group_of(pod)
        if not isinstance(membership, Membership):
            return None
        group = membership.group
        if not Progress.of(group, len(self._handle.members(group.key))).runs:
            return wait(group.timeout or self._timeout)
        for held in self._handle.waiting.held_by(self.name):
            mate = self._handle.group_of(held.pod)
            if isinstance(mate, Membership) and mate.group.key == group.key:
                held.allow(self.name)
        return None
