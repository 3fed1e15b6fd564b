"""The room that is kept while pods are moved, updated as pods arrive and leave."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, NodeView, PodInfo, Rows
from gangline_plugins.defragmentation.record import Record, owner_of


@dataclass(slots=True, eq=False)
class _Place:
    """Room on one row for the replacement pods of one controller."""

    requests: list[dict[str, int]]
    known: frozenset[str]
    arrived: set[str] = field(default_factory=set)

    @property
    def left(self) -> list[dict[str, int]]:
        """The requests of the replacement pods that have not arrived yet."""
        return self.requests[len(self.arrived) :]


class Holds:
    """A tracker of the replacement pods: the kept room shrinks as they arrive."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self._places: dict[tuple[str, int], _Place] = {}
        self._owners: frozenset[str] = frozenset()
        """The controllers for whose pods room is kept."""

    def until(self) -> float:
        """When the record expires, in seconds since the epoch; minus infinity if there is no record."""
        return -math.inf if self.record is None else self.record.until

    def take(self, record: Record, nodes: NodeView) -> None:
        """Keep the room of a record, given all nodes. For a renewed record, the pods that have arrived stay counted."""
        if self.record is not None and self.record.id == record.id:
            self.record = record
            return
        self.drop()
        self.record = record
        grouped: defaultdict[tuple[str, int], list[dict[str, int]]] = defaultdict(list)
        known: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        for hold in record.holds:
            row = nodes.row_of(hold.node)
            if row is not None:
                grouped[hold.owner, row].append(hold.requests)
                known[hold.owner, row].update(hold.known)
        self._places = {key: _Place(wanted, frozenset(known[key])) for key, wanted in grouped.items()}
        self._owners = frozenset(owner for owner, _ in self._places)
        for row in {row for _, row in self._places}:
            for pod in nodes.pods(row).values():
                self.add(pod, row)

    def drop(self) -> None:
        """Keep nothing any more."""
        self.record, self._places, self._owners = None, {}, frozenset()

    def add(self, pod: PodInfo, row: int) -> None:
        """Pod is on row now."""
        place = self._of(pod, row)
        if place is not None and pod.uid not in place.known:
            place.arrived.add(pod.uid)

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> bool:
        """These pods are on these rows now; False, with nothing counted, if it matters where each of them is."""
        return not self._places

    def remove(self, pod: PodInfo, row: int) -> None:
        """Pod is no longer on row."""
        place = self._of(pod, row)
        if place is not None:
            place.arrived.discard(pod.uid)

    def _of(self, pod: PodInfo, row: int) -> _Place | None:
        if not self._places or pod.controller is None:
            return None
        return self._places.get((owner_of(pod), row))

    # Verdicts

    def read_of(self, pod: PodInfo, group: str) -> tuple[str, bool]:
        """What the verdicts read of a pod besides its class: its controller, if room is kept for pods of the controller
        ("" if not), and whether nodes are kept for its group.
        """
        owner = owner_of(pod)
        is_for_group = self.record is not None and bool(group) and group == self.record.group
        return owner if owner in self._owners else "", is_for_group

    def elsewhere(self, pod: PodInfo, nodes: NodeView) -> BoolColumn:
        """The nodes on which no room is kept for the pods of this pod's controller; no node if no room is kept for them
        at all.
        """
        owner = owner_of(pod)
        rows = [row for (each, row), place in self._places.items() if each == owner and place.left]
        return ~np.isin(nodes.rows, rows) if owner and rows else nodes.full(False)

    def kept(self, pod: PodInfo, group: str, nodes: NodeView) -> BoolColumn:
        """The nodes that are kept for the group or for nobody, and those where the pod would take room kept for other
        pods.
        """
        record = self.record
        refused = nodes.full(False)
        if record is None:
            return refused
        if not record.group or group != record.group:
            kept = [row for name in record.nodes if (row := nodes.row_of(name)) is not None]
            refused |= np.isin(nodes.rows, kept)
        owner = owner_of(pod)
        rows, wanted = self._wanted(owner)
        if len(rows):
            at = nodes.at(rows)
            short = np.zeros(len(rows), dtype=np.bool_)
            for resource, amounts in wanted.items():
                asked = pod.cls.requests.real.get(resource, 0)
                if asked:
                    short |= at.free(resource) - amounts < asked
            refused |= np.isin(nodes.rows, rows[short])
        return refused

    def _wanted(self, owner: str) -> tuple[Rows, dict[str, NDArray[np.int64]]]:
        """The rows with room kept for the pods of other controllers, and the kept amount of each resource on each
        row.
        """
        left = [(row, place.left) for (each, row), place in self._places.items() if each != owner and place.left]
        rows = np.unique(np.array([row for row, _ in left], dtype=np.intp))
        sums: dict[str, NDArray[np.int64]] = {}
        for row, wanted in left:
            at = int(np.searchsorted(rows, row))
            for requests in wanted:
                for resource, amount in requests.items():
                    sums.setdefault(resource, np.zeros(len(rows), dtype=np.int64))[at] += amount
        return rows, sums
