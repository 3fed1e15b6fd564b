"""The nodes as columns: one array per quantity, one row per node.

Rules:
- A node keeps its row while it exists; the row of a deleted node is used again. `alive` says which rows have a node.
- Columns are changed cell by cell, never rebuilt. Each change is recorded in `changes`, so that a reader that keeps
  a value per row evaluates only the changed rows again.
- Plugins get a `NodeView`, over all rows or over some (`node_view`). All columns that others see are read-only; `_own`
  holds the same memory, writable, for `Nodes` alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline import bounds
from gangline.model import Node
from gangline.state import requests
from gangline.state.changes import NODE, PODS, Changes, note_in_both, valid_kind, valid_row, valid_rows
from gangline.state.images import Images
from gangline.state.labels import Labels
from gangline.state.node_view import Int32Column, Int64Column, NodeView, OneNodeView, Rows
from gangline.state.offers import Offers
from gangline.state.pods import PodInfo
from gangline.state.resource_axis import ResourceAxis
from gangline.state.slots import put_on
from gangline.state.taints import TaintSets
from gangline.status import BoolColumn, read_only

_INITIAL_CAPACITY = 64
MOST_PODS = 4096
"""Pods that are counted on one node. Any user may create pods with a nodeName; sums over so many stay within 64
bits."""
_T = TypeVar("_T", bound=np.generic)


@dataclass(slots=True, eq=False)
class _Columns:
    """The writable columns."""

    alive: BoolColumn
    unschedulable: BoolColumn
    taints: Int32Column
    order: Int64Column
    allocatable: Int64Column
    free: Int64Column
    nonzero: Int64Column


class Nodes:
    """The owner of the node columns."""

    def __init__(self, axis: ResourceAxis) -> None:
        capacity = _INITIAL_CAPACITY
        self.axis = axis
        self.size = 0
        """Rows in use, rows of deleted nodes included."""
        self.count = 0
        """The number of nodes that exist."""
        self.names: list[str] = []
        self.objects: list[Node | None] = []
        self._offers = Offers(axis)
        self.pods_on: list[dict[str, PodInfo]] = []
        """For each row the pods on it, by UID."""
        self._taints = TaintSets()
        self.taint_sets = self._taints.sets
        self._row_of: dict[str, int] = {}
        self._free: list[int] = []
        self.changes = Changes()
        self.relabelled = Changes()
        """The rows on which a pod has changed, but no namespace and no spec: its labels, annotations or owners have, or
        it is being deleted now.
        """
        self.placed = Changes()
        """All other changes: those of nodes, and of the specs of the pods on them."""
        self.labels = Labels(capacity)
        self.annotations = Labels(capacity)
        self.images = Images(capacity)
        amounts = (max(8, len(axis)), capacity)
        self._own = _Columns(
            alive=np.zeros(capacity, dtype=np.bool_),
            unschedulable=np.zeros(capacity, dtype=np.bool_),
            taints=np.zeros(capacity, dtype=np.int32),
            order=np.zeros(capacity, dtype=np.int64),
            allocatable=np.zeros(amounts, dtype=np.int64),
            free=np.zeros(amounts, dtype=np.int64),
            nonzero=np.zeros((2, capacity), dtype=np.int64),
        )
        self._show()
        self.everything = slice(0, 0)
        axis.on_growth(self._fit_axis)
        self._added = 0

    def _show(self) -> None:
        """Make the read-only views; to be called whenever a column has become another array."""
        own = self._own
        self.alive = read_only(own.alive)
        self.unschedulable = read_only(own.unschedulable)
        self.taints = read_only(own.taints)
        self.order = read_only(own.order)
        """The order in which the nodes were added: a node that was added later has a higher number."""
        self.allocatable = read_only(own.allocatable)
        self.free = read_only(own.free)
        """`allocatable` less what the pods on each node request; negative on a node with too many pods."""
        self.nonzero = read_only(own.nonzero)
        self._allocatable = [memoryview(row) for row in own.allocatable]
        self._free_amounts = [memoryview(row) for row in own.free]
        """The rows of `free`: for single numbers a memoryview takes a quarter of the instructions of numpy."""
        self._nonzero = [memoryview(row) for row in own.nonzero]

    @property
    def requested(self) -> Int64Column:
        """What the pods on each node request; worked out anew, so `free` is the faster one to read."""
        return read_only(self.allocatable - self.free)

    def row_of(self, name: str) -> int | None:
        """The row of a node, or None if there is no such node."""
        return self._row_of.get(name)

    def view(self, rows: Rows | slice | None = None) -> NodeView:
        """A view over all rows, or over these; a slice needs both ends."""
        return NodeView(self, self.everything if rows is None else rows)

    def view_of_one(self, row: int) -> NodeView:
        """A view over one row."""
        return OneNodeView(self, row)

    def amounts_at(self, row: int, resources: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """Allocatable and requested amounts of one node, one number per resource."""
        places, columns, free = self.axis.places(resources), self._allocatable, self._free_amounts
        if len(places) == 2:  # as the default profile scores: without comprehensions, which are functions
            place, another = places
            whole, other = columns[place][row], columns[another][row]
            return [whole, other], [whole - free[place][row], other - free[another][row]]
        allocatable = [columns[place][row] for place in places]
        return allocatable, [whole - free[place][row] for whole, place in zip(allocatable, places, strict=True)]

    def free_at(self, row: int, resources: tuple[str, ...]) -> list[int]:
        """`free` of one node, one number per resource."""
        free = self._free_amounts
        return [free[place][row] for place in self.axis.places(resources)]

    def nonzero_at(self, row: int) -> tuple[int, int]:
        """`nonzero` of one node."""
        milli, memory = self._nonzero
        return milli[row], memory[row]

    def upsert(self, node: Node) -> int:
        """Add or update a node; returns its row. Raises InvalidObject and changes nothing."""
        name = node.metadata.name
        row = self._row_of.get(name)
        if row is not None and _same_columns(self.objects[row], node):
            self.objects[row] = node  # a heartbeat: no column is concerned
            return row
        bounds.check(node)
        bounds.check_count(f"node {name}: metadata.labels", node.metadata.labels, bounds.MOST_LABELS)
        bounds.check_count(f"node {name}: status.allocatable", node.status.allocatable, bounds.MOST_RESOURCES)
        amounts = requests.allocatable(node.status.allocatable, f"node {name}: status.allocatable")
        if row is None:
            row = self._take_row(name)
        self.objects[row] = node
        if requests.PODS in amounts:
            amounts[requests.PODS] = min(amounts[requests.PODS], MOST_PODS)
        self._offer(row, amounts)
        self._own.unschedulable[row] = node.spec.unschedulable
        self._own.taints[row] = self._taints.number(node.spec.taints, self._own.taints, self.count)
        self.labels.update(row, node.metadata.labels or {})
        self.annotations.update(row, node.metadata.annotations or {})
        self.images.update(row, node.status.images)
        self._note(row, NODE)
        return row

    def remove(self, name: str) -> int | None:
        """Remove a node, after the pods on it have been taken off. Returns the row that it had."""
        row = self._row_of.pop(name, None)
        if row is None:
            return None
        self._own.alive[row] = False
        self.objects[row] = None
        self.names[row] = ""
        self._offer(row, {})
        self._own.unschedulable[row] = False
        self._own.taints[row] = 0
        self.labels.update(row, {})
        self.annotations.update(row, {})
        self.images.update(row, [])
        self.count -= 1
        self._free.append(row)
        self._note(row, NODE)
        return row

    def place(self, pod: PodInfo, row: int) -> None:
        """Put a pod on a node."""
        cls, free, nonzero = pod.cls, self._free_amounts, self._nonzero
        for resource, amount in cls.takes:
            free[resource][row] -= amount
        milli, memory = cls.requests.nonzero
        nonzero[0][row] += milli
        nonzero[1][row] += memory
        self.pods_on[row][pod.uid] = pod
        put_on(pod.slot, row)
        note_in_both(self.changes, self.placed, row, PODS)

    def place_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """Put pods of one class on nodes, as `place`, but column by column; `rows` may name a row several times."""
        cls, index, pods_on = pods[0].cls, np.array(rows, dtype=np.intp), self.pods_on
        for resource, amount in cls.takes:
            np.subtract.at(self._own.free[resource], index, amount)
        for column, amount in zip(self._own.nonzero, cls.requests.nonzero, strict=True):
            np.add.at(column, index, amount)
        for pod, row in zip(pods, rows, strict=True):
            pods_on[row][pod.uid] = pod
            put_on(pod.slot, row)
        self._note_all(index.tolist(), PODS)

    def unplace(self, pod: PodInfo) -> None:
        """Take a pod off its node."""
        cls, row, free, nonzero = pod.cls, pod.row, self._free_amounts, self._nonzero
        for resource, amount in cls.takes:
            free[resource][row] += amount
        milli, memory = cls.requests.nonzero
        nonzero[0][row] -= milli
        nonzero[1][row] -= memory
        del self.pods_on[row][pod.uid]
        put_on(pod.slot, -1)
        note_in_both(self.changes, self.placed, row, PODS)

    def relabel(self, pod: PodInfo, newer: PodInfo) -> None:
        """Replace the record of a pod by one of the same class; afterwards only the newer record says where it is."""
        row, pods = pod.row, self.pods_on[pod.row]
        del pods[pod.uid]
        put_on(pod.slot, -1)
        pods[newer.uid] = newer
        put_on(newer.slot, row)
        self.changes.note_valid(row, PODS)
        self.relabelled.note_valid(row, PODS)

    def _note(self, row: int, kind: int) -> None:
        note_in_both(self.changes, self.placed, row, kind)

    def note(self, row: int, kind: int) -> None:
        """A row has changed. Raises TypeError or ValueError for an invalid row or kind, and notes nothing."""
        if row.__class__ is not int or not 0 <= row < self.size or kind.__class__ is not int or kind != PODS:
            row, kind = valid_row(row), valid_kind(kind)  # nearly every plugin notes what needs no such look
        note_in_both(self.changes, self.placed, row, kind)

    def note_all(self, rows: Sequence[int], kind: int) -> None:
        """As `note` for each of these rows; if one of them is invalid, none is noted."""
        self._note_all(valid_rows(rows), valid_kind(kind))

    def _note_all(self, rows: Sequence[int], kind: int) -> None:
        self.changes.note_all_valid(rows, kind)
        self.placed.note_all_valid(rows, kind)

    def _offer(self, row: int, amounts: Mapping[str, int]) -> None:
        """The node in the row has these allocatable amounts now."""
        lost = self._offers.at(row) - amounts.keys()
        for emptied in self._offers.change(row, frozenset(amounts)):
            self._own.allocatable[emptied] = self._own.free[emptied] = 0
        axis, now = self.axis, {**dict.fromkeys(lost, 0), **amounts}
        places = axis.places(tuple(now))
        if axis.NOTHING in places:
            for resource in amounts:
                if axis.give_row(resource):  # perhaps there was no free row when the first node offered it
                    self._count_again(resource)
            places = axis.places(tuple(now))
        allocatable, free = self._allocatable, self._free_amounts
        for place, amount in zip(places, now.values(), strict=True):
            if place != axis.NOTHING:
                free[place][row] += amount - allocatable[place][row]
                allocatable[place][row] = amount

    def _count_again(self, resource: str) -> None:
        """Some node now offers a resource that pods may have requested before: count the placed pods' requests."""
        classes = self.axis.users(resource)
        if not classes:
            return
        place = self.axis.row(resource)
        allocatable, free = self._own.allocatable[place], self._own.free[place]
        for row, pods in enumerate(self.pods_on):  # once for each resource that is new in the cluster
            requested = sum(pod.cls.requests.real[resource] for pod in pods.values() if pod.cls in classes)
            free[row] = allocatable[row] - requested

    def _fit_axis(self) -> None:
        """Add rows for resources that are new on the axis."""
        if len(self.axis) > len(self.allocatable):
            rows, own = 2 * len(self.axis), self._own
            own.allocatable = _grown(own.allocatable, (rows, own.allocatable.shape[1]))
            own.free = _grown(own.free, (rows, own.free.shape[1]))
            self._show()

    def _take_row(self, name: str) -> int:
        if self._free:
            row = self._free.pop()
            self.names[row] = name
        else:
            row = self.size
            if row == len(self.alive):
                self._grow(2 * row)
            self.size += 1
            self.names.append(name)
            self.objects.append(None)
            self._offers.add_row()
            self.pods_on.append({})
            self.everything = slice(0, self.size)
        self._row_of[name] = row
        self._own.alive[row] = True
        self.count += 1
        self._added += 1
        self._own.order[row] = self._added
        return row

    def _grow(self, capacity: int) -> None:
        own = self._own
        own.alive = _grown(own.alive, (capacity,))
        own.unschedulable = _grown(own.unschedulable, (capacity,))
        own.taints = _grown(own.taints, (capacity,))
        own.order = _grown(own.order, (capacity,))
        own.allocatable = _grown(own.allocatable, (len(own.allocatable), capacity))
        own.free = _grown(own.free, (len(own.free), capacity))
        own.nonzero = _grown(own.nonzero, (2, capacity))
        self._show()
        self.labels.grow(capacity)
        self.annotations.grow(capacity)
        self.images.grow(capacity)


def _same_columns(before: Node | None, after: Node) -> bool:
    return (
        before is not None
        and before.metadata.labels == after.metadata.labels
        and before.metadata.annotations == after.metadata.annotations
        and before.spec == after.spec
        and before.status.allocatable == after.status.allocatable
        and before.status.images == after.status.images
        and before.status.declared_features == after.status.declared_features
        and [(c.type, c.status) for c in before.status.conditions]
        == [(c.type, c.status) for c in after.status.conditions]
    )


def _grown(column: NDArray[_T], shape: tuple[int, ...]) -> NDArray[_T]:
    grown = np.zeros(shape, dtype=column.dtype)
    grown[tuple(slice(0, n) for n in column.shape)] = column
    return grown
