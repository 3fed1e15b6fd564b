"""GangPermit: members of a group wait at permit until so many of them are reserved that the group can run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from gangline import (
    Action,
    EventHint,
    Handle,
    Membership,
    PodGroup,
    PodInfo,
    Status,
    WaitingPod,
    group_watches,
    hookimpl,
    on,
    wait,
)


class GangPermitArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments."""

    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    """Seconds that members wait for the others; a group that says how long itself has its own time."""


@dataclass(slots=True)
class _Gang:
    """Members of one group on their way."""

    group: PodGroup
    """As it was when the last of them was reserved."""
    bound: int
    """How many members had a node before any of these was reserved."""
    hold: Status
    """For those that wait for others."""
    reserved: set[str] = field(default_factory=set)
    is_open: bool = False
    """Whether enough of them are reserved."""


class GangPermit:
    """Makes pods that belong together one unit: all that the group needs are placed, or none.

    A whole group is decided in one cycle, so its members wait for each other no longer than that takes.
    """

    name = "GangPermit"
    args_type = GangPermitArgs
    watches = group_watches

    def __init__(self, args: GangPermitArgs, handle: Handle) -> None:
        self._handle = handle
        self._timeout = args.timeout_seconds
        self._gangs: dict[str, _Gang] = {}
        self._gang_of: dict[str, _Gang] = {}
        """Of the members on their way, by UID: the object that stands for a group may go before they arrive."""
        handle.group_pods()

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A pod is rejected here only when another member was; that one says what may help."""
        return (on("pods", Action.ADD | Action.DELETE), on("nodes", Action.ADD | Action.UPDATE))

    @hookimpl
    def reserve(self, pod: PodInfo) -> None:
        """Count the member."""
        membership = self._handle.group_of(pod)
        if not isinstance(membership, Membership):
            return
        group = membership.group
        gang = self._gangs.get(group.key)
        if gang is None:
            bound = sum(bool(member.node_name) and member is not pod for member in self._handle.members(group.key))
            gang = self._gangs[group.key] = _Gang(group, bound, self._hold(group))
        elif gang.group is not group:
            gang.group, gang.hold = group, self._hold(group)
        gang.reserved.add(pod.uid)
        self._gang_of[pod.uid] = gang

    @hookimpl
    def permit(self, pod: PodInfo) -> Status | None:
        """Wait for the others; the member that makes them enough lets all of them go."""
        gang = self._gang_of.get(pod.uid)
        if gang is None or gang.is_open:
            return None
        if gang.bound + len(gang.reserved) < gang.group.min_member:
            return gang.hold
        gang.is_open = True
        for waiting in self._waiting(gang):
            waiting.allow(self.name)
        return None

    @hookimpl
    def unreserve(self, pod: PodInfo) -> None:
        """A member that is given back takes along those that wait for it."""
        gang = self._leave(pod)
        for waiting in self._waiting(gang) if gang is not None else ():
            waiting.reject(self.name, f"pod {pod.key} of the same gang was given back")

    @hookimpl
    async def post_bind(self, pod: PodInfo) -> None:
        """A bound member is known by its node."""
        self._leave(pod)

    def _hold(self, group: PodGroup) -> Status:
        return wait(group.timeout or self._timeout)

    def _leave(self, pod: PodInfo) -> _Gang | None:
        """The member is no longer on its way; returns the gang when others still are."""
        gang = self._gang_of.pop(pod.uid, None)
        if gang is None:
            return None
        gang.reserved.discard(pod.uid)
        if not gang.reserved:
            del self._gangs[gang.group.key]
            return None
        return gang

    def _waiting(self, gang: _Gang) -> Iterator[WaitingPod]:
        return (waiting for uid in list(gang.reserved) if (waiting := self._handle.waiting.get(uid)) is not None)
