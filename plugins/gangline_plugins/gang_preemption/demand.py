"""What a group asks for and what the nodes have, as columns: how many members fit on each node by arithmetic.

Members with equal requests are one kind. The arithmetic knows three things: the requests, the nodes that no removal can
make feasible, and the nodes whose pods keep the members off until one is removed. The arithmetic counts at least as
many places as there really are. So a set of victims that it finds is tried on the real columns before anybody is
evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, GroupAttempt, Handle, Membership, PodInfo, Progress, Role, reaches_beyond, requests
from gangline_plugins.gang_preemption.claims import claimed_devices, served_by_devices
from gangline_plugins.gang_preemption.devices import PLENTY, devices_for
from gangline_plugins.gang_preemption.occupants import Occupants

Amounts = NDArray[np.int64]
"""Amounts of resources, one row per resource."""
Holds = NDArray[np.int64]
"""One row per kind: how many members of that kind each node holds."""


@dataclass(frozen=True, slots=True, eq=False)
class DemandKind:
    """Members with equal requests."""

    amounts: Amounts
    wanted: int
    allowed: BoolColumn
    """Nodes that pass all filters, or that could pass them after pods are removed."""
    blocked: BoolColumn
    """Nodes that have the room now, but that a filter rejects until a pod is removed."""
    known: BoolColumn
    """Nodes that are feasible although the arithmetic counts no place there: it does not count everything that is asked
    for.
    """

    def holds(self, free: Amounts, is_touched: BoolColumn, rows: NDArray[np.intp] | slice) -> NDArray[np.int64]:
        """How many members fit on each row, given the free amounts there and whether a pod was removed from there."""
        holds = np.full(free.shape[1], self.wanted, dtype=np.int64)
        for amount, left in zip(self.amounts.tolist(), free, strict=True):
            if amount > 0:
                np.minimum(holds, left // amount, out=holds)
        np.maximum(holds, self.known[rows], out=holds)
        holds[~self.allowed[rows] | (self.blocked[rows] & ~is_touched)] = 0
        return holds


class GangDemand:
    """What one attempt needs, and the free amounts per node when only the pods being deleted have gone."""

    def __init__(self, handle: Handle, attempt: GroupAttempt, occupants: Occupants) -> None:
        nodes = handle.nodes
        self.size = len(nodes)
        self.needed = attempt.fewest
        self.deadline = attempt.deadline
        firsts = [role.pods[0] for role in attempt.roles]
        served = served_by_devices(handle, firsts)
        self._names = tuple({name: None for role in attempt.roles for name in _requests(role.pods[0])})
        allocatable, requested = nodes.amounts(self._names)
        self.free: Amounts = allocatable - requested
        for i, name in enumerate(self._names):
            if name in served:  # where no device plugin advertises the resource, its devices are left to the filters
                self.free[i, allocatable[i] == 0] = PLENTY
        found = (
            devices_for(handle, firsts, self.size),
            claimed_devices(handle, firsts, [*occupants.pods, *occupants.leaving], self.size),
        )
        self._devices = [devices for devices in found if devices is not None]
        """The devices that claims hand out, which requests do not show."""
        self.free = np.vstack([self.free, *(devices.free for devices in self._devices)])
        for guest, row in _guests(handle, attempt):
            self.free[:, row] -= self._asked(guest)
        now = self.free.copy()
        for pod, change in zip(occupants.leaving, self._amounts(occupants.leaving).T, strict=True):
            self.free[:, pod.row] += change
        self.touched: BoolColumn = nodes.full(False)
        self.touched[[pod.row for pod in occupants.leaving]] = True
        self.amounts = self._amounts(occupants.pods)
        """What each of the occupants' pods gives back when it is removed."""
        self._by_kind = self._alike(attempt.roles)
        self.kinds = [self._kind(handle, roles, now, occupants.pods) for roles in self._by_kind]
        self._together = _in_common(self.kinds, self.needed) if len(self.kinds) > 1 else None
        self._parts = self._minima(handle, attempt)

    def holds(self, free: Amounts, is_touched: BoolColumn, rows: NDArray[np.intp] | slice) -> Holds:
        """How many members of each kind fit on each row. The last row is for the least that all members ask for in
        common.
        """
        found = [kind.holds(free, is_touched, rows) for kind in self.kinds]
        together = found[0] if self._together is None else self._together.holds(free, is_touched, rows)
        return np.array([*found, together])

    def is_met(self, held: Holds) -> BoolColumn:
        """Whether there may be room in each domain. `held` is the sum of `holds` over each domain, one column per
        domain.
        """
        wanted = np.array([[kind.wanted] for kind in self.kinds])
        taken = np.minimum(held[:-1], wanted)
        met: BoolColumn = (taken.sum(axis=0) >= self.needed) & (held[-1] >= self.needed)
        for kinds, minimum in self._parts:
            met &= taken[kinds].sum(axis=0) >= minimum
        return met

    def missing(self, held: Holds) -> NDArray[np.int64]:
        """How many members have no place in each domain."""
        wanted = np.array([[kind.wanted] for kind in self.kinds])
        taken = np.minimum(np.minimum(held[:-1], wanted).sum(axis=0), held[-1])
        return np.maximum(0, self.needed - taken)

    def scarce(self) -> tuple[int, int]:
        """The resource that limits the largest kind most, as an index, and how much of it one member takes."""
        kind = max(self.kinds, key=lambda kind: kind.wanted)
        asked = [i for i, amount in enumerate(kind.amounts.tolist()) if amount > 0]
        if not asked:
            return 0, 1
        allowed = self.free[:, kind.allowed]
        resource = min(asked, key=lambda i: int((allowed[i] // kind.amounts[i]).clip(0).sum()))
        return resource, int(kind.amounts[resource])

    # Reading

    def _asked(self, pod: PodInfo) -> Amounts:
        """The amounts that a pod takes when it comes to a node."""
        return np.append(self._column(pod), np.array([each.asked(pod) for each in self._devices], dtype=np.int64))

    def _column(self, pod: PodInfo) -> Amounts:
        asked = _requests(pod)
        return np.array([asked.get(name, 0) for name in self._names], dtype=np.int64)

    def _amounts(self, pods: Sequence[PodInfo]) -> Amounts:
        """The amounts that each of these pods gives back, one column per pod."""
        held = (np.array([devices.held(pod) for pod in pods], dtype=np.int64) for devices in self._devices)
        return np.vstack([self._requested(pods), *held])

    def _requested(self, pods: Sequence[PodInfo]) -> Amounts:
        numbers: dict[int, int] = {}
        columns: list[Amounts] = []
        which = np.empty(len(pods), dtype=np.intp)
        for i, pod in enumerate(pods):
            number = numbers.get(pod.cls.id)
            if number is None:
                number = numbers[pod.cls.id] = len(columns)
                columns.append(self._column(pod))
            which[i] = number
        if not columns:
            return np.zeros((len(self._names), 0), dtype=np.int64)
        return np.array(columns).T[:, which]

    def _kind(self, handle: Handle, roles: Sequence[Role], now: Amounts, others: Sequence[PodInfo]) -> DemandKind:
        role, pod = roles[0], roles[0].pods[0]
        allowed = _reachable(handle, pod)
        nothing, something = np.zeros_like(allowed), np.ones_like(allowed)
        wanted = sum(len(each.pods) for each in roles)
        bare = DemandKind(self._asked(pod), wanted, something, nothing, nothing)
        counted = bare.holds(now, something, slice(None)) > 0
        feasible = role.capacity[: self.size] > 0
        blocked = counted & ~feasible
        if blocked.any() and reaches_beyond(pod, others):
            blocked = nothing  # the pod that keeps the members off may be on another node
        return DemandKind(bare.amounts, wanted, allowed, blocked, feasible & ~counted)

    def _alike(self, roles: Iterable[Role]) -> list[list[Role]]:
        """The roles, grouped by subgroup and equal requests."""
        found: dict[tuple[str, bytes], list[Role]] = {}
        for role in roles:
            found.setdefault((role.subgroup, self._asked(role.pods[0]).tobytes()), []).append(role)
        return list(found.values())

    def _minima(self, handle: Handle, attempt: GroupAttempt) -> list[tuple[list[int], int]]:
        """For each subgroup the indexes of its kinds, and how many of its members still need a node."""
        placed: dict[str, int] = {}
        for pod in attempt.placed if attempt.group.subgroups else ():
            membership = handle.group_of(pod)
            if isinstance(membership, Membership):
                placed[membership.subgroup] = placed.get(membership.subgroup, 0) + 1
        found = []
        for part in attempt.group.subgroups:
            kinds = [i for i, roles in enumerate(self._by_kind) if roles[0].subgroup == part.name]
            minimum = Progress.of(part, placed.get(part.name, 0)).needed
            if kinds and minimum:
                found.append((kinds, minimum))
        return found


def _requests(pod: PodInfo) -> dict[str, int]:
    return {**pod.cls.requests.real, requests.PODS: 1}


def _in_common(kinds: Sequence[DemandKind], wanted: int) -> DemandKind:
    """A kind with the least that every member asks for, allowed wherever a member of any kind is."""
    allowed, known = (np.any([getattr(kind, name) for kind in kinds], axis=0) for name in ("allowed", "known"))
    blocked = np.zeros_like(allowed)
    return DemandKind(np.min([kind.amounts for kind in kinds], axis=0), wanted, allowed, blocked, known)


def _reachable(handle: Handle, pod: PodInfo) -> BoolColumn:
    """Nodes that are feasible for a pod, or that could become feasible after pods are removed."""
    diagnosis = handle.diagnose(pod)
    if diagnosis.status is not None:
        return handle.nodes.full(False)
    reachable: BoolColumn = diagnosis.nodes.alive.copy()
    if diagnosis.narrowed is not None:
        reachable &= diagnosis.narrowed
    for _, rejected in diagnosis.first():
        reachable &= ~rejected
    return reachable | diagnosis.resolvable()


def _guests(handle: Handle, attempt: GroupAttempt) -> list[tuple[PodInfo, int]]:
    """The waiting pods of the same or higher priority that are nominated to a node, each with the row of that node."""
    own = {pod.uid for pod in attempt.pods}
    priority = attempt.first.priority
    nodes = handle.nodes
    return [
        (pod, row)
        for node, pods in handle.nominated().items()
        if (row := nodes.row_of(node)) is not None
        for pod in pods.values()
        if pod.uid not in own and pod.row < 0 and pod.priority >= priority
    ]
