"""The amounts that are kept for a group on each reserved node, and the amounts that will be left over there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, NodeView, PodInfo, Rows


@dataclass(frozen=True, slots=True, eq=False)
class KeptRoom:
    """A group's reservation."""

    key: str
    """The key of the group."""
    namespace: str
    gang: str
    priority: int
    queued: float
    """When the group was queued, in seconds of the monotonic clock."""
    at: float
    """Seconds since the epoch at which the group is to start."""
    planned: float
    """When the plan was made, in seconds since the epoch."""
    since: float
    """When nodes were first kept for the group, in seconds since the epoch."""
    until: float
    """When the reservation ends in any case, in seconds since the epoch."""
    rows: Rows
    wanted: dict[str, NDArray[np.int64]]
    """For each resource how much the group takes on each of the rows."""
    pods: tuple[PodInfo, ...]
    """The members that have no node yet."""

    @property
    def name(self) -> str:
        """The group's name in messages."""
        return f"gang {self.namespace}/{self.gang}"

    def amount(self, resource: str) -> int:
        """How much of a resource is kept on all rows together."""
        return int(self.wanted[resource].sum()) if resource in self.wanted else 0


class Leaving:
    """A tracker of the amounts that will have become free on each reserved row by the start of the group."""

    def __init__(self) -> None:
        self.looked = 0.0
        """When the group was last checked for being complete, in seconds since the epoch."""
        self.since: dict[str, float] = {}
        """When nodes were first kept for groups that have not started since, by group key."""
        self._kept: KeptRoom | None = None
        self._place: dict[int, int] = {}
        self._ends: Callable[[PodInfo], float] = lambda pod: np.inf
        self._leaving: dict[str, NDArray[np.int64]] = {}
        self._counted: dict[str, dict[str, int]] = {}

    @property
    def kept(self) -> KeptRoom | None:
        """The present reservation."""
        return self._kept

    def keep(self, kept: KeptRoom, ends: Callable[[PodInfo], float], nodes: NodeView) -> None:
        """Start over with a reservation; `ends` gives the time at which a pod ends."""
        self.drop()
        self._kept, self._ends = kept, ends
        self._place = {row: i for i, row in enumerate(kept.rows.tolist())}
        self._leaving = {resource: np.zeros(len(kept.rows), dtype=np.int64) for resource in kept.wanted}
        for row in self._place:
            for pod in nodes.pods(row).values():
                self.add(pod, row)

    def drop(self) -> None:
        """Forget the reservation."""
        self._kept, self._place, self._leaving, self._counted = None, {}, {}, {}

    def add(self, pod: PodInfo, row: int) -> None:
        """Pod is on row now."""
        place = self._place.get(row)
        if place is None or self._kept is None or self._ends(pod) > self._kept.at:
            return
        amounts = {name: amount for name, amount in pod.cls.requests.real.items() if name in self._leaving}
        for resource, amount in amounts.items():
            self._leaving[resource][place] += amount
        self._counted[pod.uid] = amounts

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> bool:
        """These pods are on these rows now; False, with nothing counted, if it matters where each of them is."""
        return not self._place

    def remove(self, pod: PodInfo, row: int) -> None:
        """Pod is no longer on row."""
        amounts = self._counted.pop(pod.uid, None)
        place = self._place.get(row)
        if amounts is not None and place is not None:
            for resource, amount in amounts.items():
                self._leaving[resource][place] -= amount

    def refuses(self, pod: PodInfo, nodes: NodeView) -> BoolColumn:
        """The nodes on which a pod that does not end in time would take what is kept for the group."""
        refused = nodes.full(False)
        kept = self._kept
        if kept is None:
            return refused
        at = nodes.at(kept.rows)
        short = np.zeros(len(kept.rows), dtype=np.bool_)
        for resource, wanted in kept.wanted.items():
            amount = pod.cls.requests.real.get(resource, 0)
            if amount:
                free = at.free(resource) + self._leaving[resource]
                short |= free - wanted < amount
        refused[np.isin(nodes.rows, kept.rows[short])] = True
        return refused
