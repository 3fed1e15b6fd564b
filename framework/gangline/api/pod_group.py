"""Pods that belong together: one shape for every dialect, and what one attempt to place such a group is told.

Who wants to know which group a pod is in asks `groups`; this module holds values only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangline.deadline import NO_DEADLINE, Deadline
from gangline.model import TypedReference
from gangline.state.nodes import Int64Column, Rows
from gangline.state.pods import PodInfo

ANYWHERE = ""
"""The level that is the whole cluster."""


@dataclass(frozen=True, slots=True)
class FallbackStep:
    """One step of an ordered fallback: this level will do from `after` seconds of waiting on."""

    level: str
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """How close to each other pods have to be; levels are names of the profile's topology or node label keys."""

    required: str = ANYWHERE
    """All of them within one domain of this level."""
    preferred: str = ANYWHERE
    """Within one domain of this level if that can be; else of the next wider one that can."""
    fallback: tuple[FallbackStep, ...] = ()
    """Takes the place of `required` where it is given: the level of the last step whose time has come is required."""

    def required_at(self, waited: float) -> str:
        """The level that is required of a group that has waited so many seconds."""
        level = self.required
        for step in self.fallback:
            if waited >= step.after:
                level = step.level
        return level

    def next_change(self, waited: float) -> float:
        """Seconds of waiting at which another level will do; infinite when none will."""
        return min((step.after for step in self.fallback if step.after > waited), default=math.inf)


@dataclass(frozen=True, slots=True)
class SubGroup:
    """A part of a group: leader, workers, a slice of so many ranks."""

    name: str
    min_member: int
    topology: TopologyConstraint = TopologyConstraint()


@dataclass(frozen=True, slots=True)
class PodGroup:
    """All or nothing from `min_member` pods on, placed as one decision."""

    namespace: str
    name: str
    dialect: str
    """Which reader has read it."""
    min_member: int
    size: int = 0
    """How many pods there will be in all; 0 when nobody says so."""
    topology: TopologyConstraint = TopologyConstraint()
    subgroups: tuple[SubGroup, ...] = ()
    """Empty when all members are alike in what they need of each other."""
    timeout: float | None = None
    """Seconds that members may wait at permit; None for the profile's."""
    priority: int | None = None
    """Of the group as a whole; None for that of its first pod."""
    disruptive: bool = False
    """Whether removing one pod stops all of them; False where those above `min_member` may go one by one."""
    object: TypedReference | None = None
    """The object that stands for the group, if there is one: conditions and events go there."""

    @property
    def key(self) -> str:
        """What no other group has."""
        return f"{self.dialect}:{self.namespace}/{self.name}"

    def subgroup(self, name: str) -> SubGroup | None:
        """The part with this name."""
        return next((part for part in self.subgroups if part.name == name), None)


@dataclass(frozen=True, slots=True)
class Membership:
    """The group of a pod and the pod's place in it."""

    group: PodGroup
    subgroup: str = ""
    index: int | None = None
    """The rank; neighbours in rank are placed next to each other."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A pod names a group that cannot be used, or not yet; it is held until that changes."""

    key: str
    message: str


@dataclass(slots=True, eq=False)
class Role:
    """Members that are alike: one subgroup, one pod class, one identity for all plugins; by rank."""

    subgroup: str
    pods: list[PodInfo]
    capacity: Int64Column
    """How many of them fit on each node as the cluster is, by requests and filters; at most len(pods)."""
    room: int = 0
    """How many such pods the cluster holds, however many there are."""


def _nowhere() -> None:
    return None


@dataclass(slots=True, eq=False)
class GroupAttempt:
    """One attempt to place a group; what the group hooks are given."""

    group: PodGroup
    roles: list[Role]
    """The members that have no node yet."""
    needed: int
    """How many of them have to be placed now, at least."""
    placed: Sequence[PodInfo] = ()
    """Members that have a node already; elastic groups grow close to them."""
    waited: float = 0.0
    """Seconds since the group was queued."""
    messages: list[str] = field(default_factory=list)
    """What the hooks have to say about why nothing fits; shown to the user."""
    refit: Callable[[], Mapping[str, int] | None] = _nowhere
    """Where the group would go as the columns are now, hypothetical steps included: pod UID to row; None for nowhere.

    For those who try out what would help it, in a transaction; a few milliseconds for a large group.
    """

    deadline: Deadline = NO_DEADLINE
    """Until when the group has to be decided; a plugin that searches for long calls its `check` now and then."""

    @property
    def pods(self) -> list[PodInfo]:
        """All members to place, role by role."""
        return [pod for role in self.roles for pod in role.pods]

    @property
    def fewest(self) -> int:
        """How many of them a placement must hold to be of use: as many as are needed, or one where none is."""
        return max(1, self.needed)

    @property
    def first(self) -> PodInfo:
        """The pod that stands for the group."""
        return self.roles[0].pods[0]

    def placed_rows(self) -> Rows:
        """The rows of the members that have a node, each once."""
        return np.unique(np.array([pod.row for pod in self.placed if pod.row >= 0], dtype=np.intp))
