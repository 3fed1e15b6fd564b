"""Pods that belong together: one form for all dialects, and the attempt to place such a group.

This module holds values only. The room `groups` finds out which group a pod is in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangline.deadline import NO_DEADLINE, Deadline
from gangline.model import TypedReference
from gangline.state.node_view import Int64Column, Rows
from gangline.state.pods import PodInfo

ANYWHERE = ""
"""The level that stands for the whole cluster."""


@dataclass(frozen=True, slots=True)
class FallbackStep:
    """One step of an ordered fallback: from `after` seconds of waiting on, this level is enough."""

    level: str
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """How close to each other pods have to be; levels are names of the profile's topology or node label keys."""

    required: str = ANYWHERE
    """All pods have to be within one domain of this level."""
    preferred: str = ANYWHERE
    """Within one domain of this level if possible; else of the next wider level for which it is possible."""
    fallback: tuple[FallbackStep, ...] = ()
    """Replaces `required` if given: the level of the last step whose time has come is required."""

    def required_at(self, waited: float) -> str:
        """The level that is required of a group that has waited this many seconds."""
        level = self.required
        for step in self.fallback:
            if waited >= step.after:
                level = step.level
        return level

    def next_change(self, waited: float) -> float:
        """Seconds of waiting after which another level is enough; infinite if the level does not change any more."""
        return min((step.after for step in self.fallback if step.after > waited), default=math.inf)


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A part of a group: a leader, workers, or a slice of a fixed number of ranks."""

    name: str
    min_member: int
    topology: TopologyConstraint = TopologyConstraint()


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A group of which at least `min_member` pods are placed in one decision, or none."""

    namespace: str
    name: str
    dialect: str
    """The name of the reader that has read the group."""
    min_member: int
    size: int = 0
    """The number of pods there will be in all; 0 if it is unknown."""
    topology: TopologyConstraint = TopologyConstraint()
    subgroups: tuple[SubGroup, ...] = ()
    """Empty if all members need the same of each other."""
    timeout: float | None = None
    """Seconds for which members may wait at permit; None for the profile's setting."""
    priority: int | None = None
    """The priority of the whole group; None for that of its first pod."""
    disruptive: bool = False
    """Whether removing one pod stops all of them; False if the pods above `min_member` can be removed one by one."""
    knows_succeeded: bool = False
    """Whether `min_member` leaves out members that have succeeded, because the group's API object counts them."""
    object: TypedReference | None = None
    """The API object that represents the group, if there is one: conditions and events are written to it."""

    key: str = field(init=False, compare=False, repr=False)
    """The key of the group; no other group has the same."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.dialect}:{self.namespace}/{self.name}")

    def subgroup(self, name: str) -> SubGroup | None:
        """The subgroup with this name."""
        return next((part for part in self.subgroups if part.name == name), None)


@dataclass(frozen=True, slots=True)
class Membership:
    """The group of a pod and the pod's place in the group."""

    group: PodGroup
    subgroup: str = ""
    index: int | None = None
    """The rank; members with neighbouring ranks are placed next to each other."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A pod names a group that cannot be used, or not yet; the pod is held until that changes."""

    key: str
    message: str


@dataclass(slots=True, eq=False)
class Role:
    """Like members: one subgroup, one pod class, one identity for all plugins; sorted by rank."""

    subgroup: str
    pods: list[PodInfo]
    capacity: Int64Column
    """How many of these members fit on each node as the cluster is, by requests and filters; at most len(pods)."""
    room: int = 0
    """The number of such pods that fit in the cluster, even if that is more than the role has."""


def _nowhere() -> None:
    return None


@dataclass(slots=True, eq=False)
class GroupAttempt:
    """One attempt to place a group; the group hooks are given it."""

    group: PodGroup
    roles: list[Role]
    """The members that have no node yet."""
    needed: int
    """The number of these members that have to be placed now, at least."""
    placed: Sequence[PodInfo] = ()
    """Members that have a node already; elastic groups grow close to them."""
    waited: float = 0.0
    """Seconds since the group was queued."""
    messages: list[str] = field(default_factory=list)
    """The hooks' reasons why the group does not fit; shown to the user."""
    refit: Callable[[], Mapping[str, int] | None] = _nowhere
    """Where the group would go on the columns as they are now, hypothetical steps included: pod UID to row; None if it
    cannot be placed.

    For plugins that try out, in a transaction, what would help the group. It takes a few milliseconds for a large
    group.
    """

    deadline: Deadline = NO_DEADLINE
    """The time by which the group has to be decided; a plugin calls its `check` in long loops."""

    @property
    def pods(self) -> list[PodInfo]:
        """All members to place, role by role."""
        return [pod for role in self.roles for pod in role.pods]

    @property
    def fewest(self) -> int:
        """The smallest useful number of members in a placement: as many as are needed, or one if none is needed."""
        return max(1, self.needed)

    @property
    def first(self) -> PodInfo:
        """The pod that represents the group."""
        return self.roles[0].pods[0]

    def placed_rows(self) -> Rows:
        """The rows of the nodes that have members, each once."""
        return np.unique(np.array([pod.row for pod in self.placed if pod.row >= 0], dtype=np.intp))
