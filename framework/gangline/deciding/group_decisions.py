"""What becomes of a pod group: the nodes of its members, or why it cannot be placed now."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from gangline.api.pod_group import PodGroup
from gangline.deciding.scheduling import Decision
from gangline.queueing.units import Unit
from gangline.state.pods import PodInfo


class GroupDecision(msgspec.Struct, frozen=True, eq=False):
    """The node of each member; `left` holds members beyond the needed ones for which there is no room now."""

    unit: Unit
    group: PodGroup
    members: list[Decision]
    left: list[PodInfo]
    score: float
    """The score of the placement, 0..1; 1 if no plugin scores placements."""
    is_whole: bool
    """Whether this is the first placement of the group: no member had a node before."""
    why_left: str = ""
    placement: str = ""
    """The name of the chosen placement."""


class Lack(msgspec.Struct, frozen=True, eq=False):
    """For whom the whole cluster had too little room: see `group_room`."""

    group: PodGroup
    members: Mapping[tuple[str, Hashable], list[PodInfo]]
    """The like members: see `group_reading`."""


class GroupRejection(msgspec.Struct, frozen=True, eq=False):
    """The group cannot be placed now, and why."""

    unit: Unit
    message: str
    plugins: frozenset[str]
    group: PodGroup | None = None
    nominated: Mapping[str, str] = msgspec.field(default_factory=dict)
    """For each pod UID the node on which plugins make room for the pod; "" if there is none any more."""
    is_error: bool = False
    retry_after: float | None = None
    """Seconds after which another topology level is allowed."""
    is_running: bool = False
    """Whether the group has all members that it needs; the rejected ones would join it."""
    is_late: bool = False
    """Whether the deadline has passed: the group is tried again, but after a longer time each time."""
    has_lost_node: bool = False
    """Whether a chosen node has been deleted: the group is tried again at once."""
    is_incomplete: bool = False
    """Whether the group waits for members to be created, to be let in, or to agree: it keeps no room from others."""
    kind: Hashable | None = None
    """Equal for groups that the same plugins would reject now; see `kinds`."""
    lack: Lack | None = None
    """For a group with a kind: what to look at before the group is tried again after pods have gone."""
    alike: Sequence[Sequence[PodInfo]] = ()
    """The members that plugins have not told apart, if all plugins were asked."""
