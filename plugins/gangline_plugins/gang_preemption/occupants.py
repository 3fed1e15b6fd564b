"""The pods that may be removed: whole groups, members that a group can spare, and pods that belong to no group.

Rules:
- Pods that are being deleted count as gone, and cost nothing.
- A group's priority is the one that it names, else the highest priority among its members. Only groups and pods of
  lower priority than the preemptor's may be removed.
- A group loses the members above its minimum, or all of its members. It never keeps fewer members than it needs to run.
- If a minimum runtime protects one member, the group is not removed as a whole.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import numpy as np

from gangline import BoolColumn, Handle, Membership, PodGroup, PodInfo, Progress, Rows
from gangline_plugins.gang_preemption.ranks import Ranks
from gangline_plugins.gang_preemption.sparing import Sparing
from gangline_plugins.preemption.precedence import importance


class Removal(msgspec.Struct, frozen=True, eq=False):
    """Pods that are removed together or stay together."""

    pods: tuple[PodInfo, ...]
    slots: Rows
    """The indexes, in the columns of `Occupants`, of the pods that are in the domain."""
    priority: int
    stops: bool
    """Whether the removal stops a group or a single pod; False for members that their group can spare."""
    gang: str = ""
    """The key of the pods' group; "" for a pod that belongs to no group."""


class Occupant(msgspec.Struct, frozen=True, eq=False):
    """A group, or a pod that belongs to no group."""

    pods: Sequence[PodInfo]
    """Its pods, without those that are being deleted."""
    priority: int
    gang: str = ""
    group: PodGroup | None = None
    spared: frozenset[str] = frozenset()
    """The UIDs of the pods that may not be removed yet."""
    is_broken: bool = False
    """Whether so many members are being deleted that the remaining ones cannot run as a group."""

    @property
    def spare(self) -> int:
        """How many members may be removed while the others keep running."""
        if self.group is None or self.group.disruptive or self.is_broken:
            return 0
        return Progress.of(self.group, len(self.pods)).spare

    @property
    def may_go(self) -> bool:
        """Whether the whole group, or the pod, may be removed."""
        return not self.spared


class Occupants:
    """All groups and pods that may be removed, as columns with one entry per pod."""

    def __init__(self, handle: Handle, occupants: Sequence[Occupant], leaving: Sequence[PodInfo]) -> None:
        self._handle = handle
        self.all = occupants
        self.leaving = leaving
        """Pods that are being deleted."""
        self.pods = [pod for occupant in occupants for pod in occupant.pods]
        self.rows: Rows = np.array([pod.slot.row for pod in self.pods], dtype=np.intp)
        self.owners: Rows = np.repeat(np.arange(len(occupants)), [len(occupant.pods) for occupant in occupants])
        """For each pod the index of its occupant in `all`."""
        self._slots: Rows = np.arange(len(self.pods))
        self._first = list(itertools.accumulate((len(occupant.pods) for occupant in occupants), initial=0))

    def offered(self) -> BoolColumn:
        """For each pod whether it may be removed: with its whole occupant, or as a member that its group can spare."""
        offered = np.ones(len(self.pods), dtype=np.bool_)
        for first, occupant in zip(self._first, self.all, strict=False):
            if not occupant.may_go:
                slots = slice(first, first + len(occupant.pods))
                spare = {pod.uid for pod in self._spare_of(occupant, occupant.pods)}
                offered[slots] = [pod.uid in spare for pod in occupant.pods]
        return offered

    def units(self, inside: BoolColumn, useful: BoolColumn) -> list[Removal]:
        """The units that may be removed, of all occupants that have a pod marked in `useful`. `inside` marks the pods
        that are in the domain.
        """
        found: list[Removal] = []
        for number in np.unique(self.owners[useful]).tolist():
            occupant, first = self.all[number], self._first[number]
            if len(occupant.pods) > 1:
                found += self._units_of(occupant, first, inside, useful)
            elif not occupant.spared:
                slots, stops = self._slots[first : first + 1], not occupant.is_broken
                found.append(Removal(tuple(occupant.pods), slots, occupant.priority, stops, occupant.gang))
        return found

    def _units_of(self, occupant: Occupant, first: int, inside: BoolColumn, useful: BoolColumn) -> Iterator[Removal]:
        """The units of a group of several pods."""
        places = {pod.uid: first + i for i, pod in enumerate(occupant.pods)}
        spare: list[PodInfo] = []
        if occupant.spare:
            spare = self._spare_of(occupant, [pod for pod in occupant.pods if useful[places[pod.uid]]])
        for pod in spare:
            yield Removal((pod,), np.array([places[pod.uid]]), occupant.priority, False, occupant.gang)
        if occupant.may_go:
            gone = {pod.uid for pod in spare}
            rest = tuple(pod for pod in occupant.pods if pod.uid not in gone)
            slots = np.array([places[pod.uid] for pod in rest], dtype=np.intp)
            slots = slots[inside[slots]]
            stops = not occupant.is_broken
            if len(slots):
                yield Removal(rest, slots, occupant.priority, stops, occupant.gang)

    def _spare_of(self, occupant: Occupant, pods: Iterable[PodInfo]) -> list[PodInfo]:
        """The given members that may be removed while the rest keeps running, the least important first."""
        group, most = occupant.group, occupant.spare
        if group is None or not most:
            return []
        left = Counter(self._part(pod) for pod in occupant.pods) if group.subgroups else Counter[str]()
        found: list[PodInfo] = []
        for pod in sorted(pods, key=importance, reverse=True):
            if len(found) == most:
                break
            if pod.uid in occupant.spared:
                continue
            if group.subgroups:
                part = self._part(pod)
                subgroup = group.subgroup(part)
                if subgroup is not None and not Progress.of(subgroup, left[part]).spare:
                    continue
                left[part] -= 1
            found.append(pod)
        return found

    def _part(self, pod: PodInfo) -> str:
        membership = self._handle.group_of(pod)
        return membership.subgroup if isinstance(membership, Membership) else ""


class _OccupantCensus:
    """Collects the occupants from all pods that have a node."""

    def __init__(self, handle: Handle, preemptor: str, priority: int, sparing: Sparing) -> None:
        self._handle = handle
        self._preemptor = preemptor
        self._priority = priority
        self._sparing = sparing
        self._members: dict[str, list[PodInfo]] = {}
        self._groups: dict[str, PodGroup] = {}
        self._broken: set[str] = set()
        self.leaving: list[PodInfo] = []
        self.found: list[Occupant] = []

    def take(self) -> Occupants:
        group_of, groups, members, priority = self._handle.group_of, self._groups, self._members, self._priority
        for pod in self._handle.state.pods.values():
            if pod.slot.row >= 0:
                membership = group_of(pod)
                if membership is None:
                    if pod.cls.priority < priority or pod.terminating:  # else it stays
                        self._note_single(pod)
                    continue
                if isinstance(membership, Membership):
                    group = membership.group
                    key = group.key
                    groups[key] = group
                else:
                    key = membership.key
                if pod.terminating:
                    self.leaving.append(pod)
                    self._broken.add(key)
                elif key in members:
                    members[key].append(pod)
                elif key != self._preemptor:
                    members[key] = [pod]
        for key, pods in self._members.items():
            self._note_group(key, pods)
        return Occupants(self._handle, self.found, self.leaving)

    def _note_single(self, pod: PodInfo) -> None:
        if pod.terminating:
            self.leaving.append(pod)
        elif not self._sparing.is_spared(pod):
            self.found.append(Occupant((pod,), pod.cls.priority))

    def _note_group(self, key: str, pods: list[PodInfo]) -> None:
        group = self._groups.get(key)
        priority = (
            max([pod.cls.priority for pod in pods]) if group is None or group.priority is None else group.priority
        )
        if priority < self._priority:
            spared = frozenset([pod.uid for pod in pods if self._sparing.is_spared(pod)])
            is_broken = key in self._broken and not Progress.of(group, len(pods)).runs
            self.found.append(Occupant(pods, priority, key, group, spared, is_broken))


def find_occupants(handle: Handle, preemptor: str, priority: int, sparing: Sparing, ranks: Ranks) -> Occupants:
    """All groups and pods that may be removed for a preemptor, given the key of its group and its priority."""
    if not ranks.has_lower(priority, handle):
        return Occupants(handle, (), ranks.leaving(handle))
    return _OccupantCensus(handle, preemptor, priority, sparing).take()
