"""Which pods and groups may be moved, what moving them costs, and why the others stay.

Rules:
- A group that cannot lose a member moves as a whole. If one of its members has to stay, all of them stay.
- A pod is moved only if a controller replaces it, and only if its scheduler is this profile, which keeps the room.
- A pod stays if a PodDisruptionBudget does not allow its disruption now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import Handle, Membership, PodGroup, PodInfo, resources
from gangline_plugins.defragmentation.costs import Costs
from gangline_plugins.defragmentation.plan import Protected
from gangline_plugins.gang_preemption.occupants import Occupant, Occupants, Removal
from gangline_plugins.preemption.budgets import Budgets

_TIED = frozenset(("DaemonSet", "Node"))
"""Controllers whose pods belong to one particular node."""


@dataclass(frozen=True, slots=True, eq=False)
class Movable:
    """All pods that have a node."""

    occupants: Occupants
    costs: NDArray[np.float64]
    """The cost of moving each of the occupants' pods, in GPU-seconds."""
    by_uid: Mapping[str, float]
    """The same costs by pod UID."""
    gpus: NDArray[np.float64]
    stays: Mapping[str, str]
    """Pod UID to why the pod stays, including the members that stay because another member of their group does."""
    budgets: Budgets

    def mates(self, unit: Removal) -> Sequence[PodInfo]:
        """The pods that move together with a unit: the whole group if moving the unit stops the group."""
        if not unit.stops or not unit.gang:
            return unit.pods
        return self.occupants.all[int(self.occupants.owners[unit.slots[0]])].pods

    def cost(self, pods: Sequence[PodInfo]) -> float:
        """The cost of moving these pods, in GPU-seconds."""
        return sum(self.by_uid[pod.uid] for pod in pods)

    def protected(self, rows: NDArray[np.intp]) -> list[Protected]:
        """The pods with GPUs on these rows that stay."""
        here = np.isin(self.occupants.rows, rows) & (self.gpus > 0)
        pods = [self.occupants.pods[slot] for slot in np.flatnonzero(here).tolist()]
        return [Protected(pod.key, self.stays[pod.uid]) for pod in pods if pod.uid in self.stays]


class _MovableCensus:
    """Collects the occupants from all pods that have a node."""

    def __init__(self, handle: Handle, costs: Costs, own: str, priority: int | None) -> None:
        self._handle = handle
        self._costs = costs
        self._own = own
        self._priority = priority
        self._budgets = Budgets(handle.state.store(resources.PDBS))
        self._stays: dict[str, str] = {}

    def take(self) -> Movable:
        leaving: list[PodInfo] = []
        alone: list[PodInfo] = []
        groups: dict[str, tuple[PodGroup | None, list[PodInfo]]] = {}
        for pod in self._handle.state.pods.values():
            if pod.row < 0:
                continue
            membership = self._handle.group_of(pod)
            group = membership.group if isinstance(membership, Membership) else None
            key = "" if membership is None else group.key if group is not None else membership.key  # type: ignore[union-attr]  # a Problem
            if pod.terminating:
                leaving.append(pod)
            elif not key:
                alone.append(pod)
            else:
                groups.setdefault(key, (group, []))[1].append(pod)
        occupants = [Occupant((pod,), pod.priority, spared=self._spared([pod])) for pod in alone]
        occupants += (self._group(key, group, pods) for key, (group, pods) in groups.items() if key != self._own)
        found = Occupants(self._handle, occupants, leaving)
        costs = np.array([0.0 if pod.uid in self._stays else self._costs.of(pod) for pod in found.pods])
        gpus = np.array([self._costs.gpus(pod) for pod in found.pods])
        by_uid = dict(zip((pod.uid for pod in found.pods), costs.tolist(), strict=True))
        return Movable(found, costs, by_uid, gpus, self._stays, self._budgets)

    def _group(self, key: str, group: PodGroup | None, pods: list[PodInfo]) -> Occupant:
        spared = self._spared(pods)
        if group is None:
            spared = frozenset(pod.uid for pod in pods)
            self._stays.update((uid, "its group cannot be read") for uid in spared)
        occupant = Occupant(pods, max(pod.priority for pod in pods), key, group, spared)
        if spared and not occupant.spare:
            held = next(pod for pod in pods if pod.uid in spared)
            why = f"moves only with pod {held.key}: {self._stays[held.uid]}"
            for pod in pods:
                self._stays.setdefault(pod.uid, why)
        return occupant

    def _spared(self, pods: Sequence[PodInfo]) -> frozenset[str]:
        """The UIDs of those pods that stay, given pods that belong together; records why they stay."""
        for pod in pods:
            why = self._why_stays(pod)
            if why:
                self._stays[pod.uid] = why
        if self._budgets.any:
            for pod in self._budgets.split(pods)[0]:
                self._stays.setdefault(pod.uid, "a disruption budget allows no disruption now")
        return frozenset(pod.uid for pod in pods if pod.uid in self._stays)

    def _why_stays(self, pod: PodInfo) -> str:
        said = self._costs.why_stays(pod)
        controller = pod.controller
        if said:
            return said
        if controller is None:
            return "no controller would make it anew"
        if controller.kind in _TIED:
            return f"belongs to its node ({controller.kind})"
        if pod.scheduler_name != self._handle.profile:
            return f"placed by another scheduler, {pod.scheduler_name}"
        if self._priority is not None and pod.priority > self._priority:
            return "of higher priority than what waits"
        return ""


def find_movable(handle: Handle, costs: Costs, own: str = "", priority: int | None = None) -> Movable:
    """All pods except the members of the group `own`. If a priority is given, pods of a higher one stay."""
    return _MovableCensus(handle, costs, own, priority).take()


def each_once(units: Sequence[Removal]) -> Iterator[Removal]:
    """The units without duplicates: a group that moves as a whole is represented by its first unit."""
    whole = {unit.gang for unit in units if unit.stops and unit.gang}
    seen: set[str] = set()
    for unit in units:
        if unit.gang in whole:
            if not unit.stops or unit.gang in seen:
                continue
            seen.add(unit.gang)
        yield unit
