"""The nodes as columns: one array per quantity, one row per node.

Rules:
- A node keeps its row while it exists; the row of a deleted node is used again. `alive` says which rows have a node.
- Columns are changed cell by cell, never rebuilt. Each change is recorded in `changes`, so that a reader that keeps
  a value per row evaluates only the changed rows again.
- Plugins get a `NodeView`, over all rows or over some. All columns that others see are read-only; `_own` holds the
  same memory, writable, for `Nodes` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline import bounds
from gangline.model import Node
from gangline.state import requests
from gangline.state.changes import NODE, PODS, Changes
from gangline.state.images import Images
from gangline.state.labels import LabelColumn, Labels
from gangline.state.offers import Offers
from gangline.state.pods import PodInfo
from gangline.state.resource_axis import ResourceAxis
from gangline.state.slots import put_on
from gangline.state.taints import TaintKey, TaintSets
from gangline.status import BoolColumn, read_only

Int64Column = NDArray[np.int64]
"""One whole number per node."""
Int32Column = NDArray[np.int32]
Rows = NDArray[np.intp]
"""Numbers of nodes."""

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
    requested: Int64Column
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
            requested=np.zeros(amounts, dtype=np.int64),
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
        """When each node was added, as a number that grows."""
        self.allocatable = read_only(own.allocatable)
        self.requested = read_only(own.requested)
        self.nonzero = read_only(own.nonzero)

    def row_of(self, name: str) -> int | None:
        """The row of a node, or None if there is no such node."""
        return self._row_of.get(name)

    def view(self, rows: Rows | slice | None = None) -> NodeView:
        """A view over all rows, or over these; a slice needs both ends."""
        return NodeView(self, self.everything if rows is None else rows)

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
        self.changes.note(row, NODE)
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
        self.changes.note(row, NODE)
        return row

    def place(self, pod: PodInfo, row: int) -> None:
        """Put a pod on a node."""
        cls, own = pod.cls, self._own
        own.requested[cls.resources, row] += cls.amounts
        own.nonzero[0, row] += cls.requests.nonzero[0]
        own.nonzero[1, row] += cls.requests.nonzero[1]
        self.pods_on[row][pod.uid] = pod
        put_on(pod.slot, row)
        self.changes.note(row, PODS)

    def unplace(self, pod: PodInfo) -> None:
        """Take a pod off its node."""
        cls, own, row = pod.cls, self._own, pod.row
        own.requested[cls.resources, row] -= cls.amounts
        own.nonzero[0, row] -= cls.requests.nonzero[0]
        own.nonzero[1, row] -= cls.requests.nonzero[1]
        del self.pods_on[row][pod.uid]
        put_on(pod.slot, -1)
        self.changes.note(row, PODS)

    def _offer(self, row: int, amounts: Mapping[str, int]) -> None:
        """The node in the row has these allocatable amounts now."""
        for free in self._offers.change(row, frozenset(amounts)):
            self._own.allocatable[free] = self._own.requested[free] = 0
        for resource in amounts:
            if self.axis.give_row(resource):  # also where there was no room for it when the first such node came
                self._count_again(resource)
        allocatable, row_of = self._own.allocatable, self.axis.row
        column = [0] * len(allocatable)
        for resource, amount in amounts.items():
            column[row_of(resource)] = amount
        column[self.axis.NOTHING] = 0
        allocatable[:, row] = column

    def _count_again(self, resource: str) -> None:
        """Some node now offers a resource that pods may have requested before: count the placed pods' requests."""
        classes = self.axis.users(resource)
        if not classes:
            return
        column = self._own.requested[self.axis.row(resource)]
        for row, pods in enumerate(self.pods_on):  # once for each resource that is new in the cluster
            column[row] = sum(pod.cls.requests.real[resource] for pod in pods.values() if pod.cls in classes)

    def _fit_axis(self) -> None:
        """Add rows for resources that are new on the axis."""
        if len(self.axis) > len(self.allocatable):
            rows, own = 2 * len(self.axis), self._own
            own.allocatable = _grown(own.allocatable, (rows, own.allocatable.shape[1]))
            own.requested = _grown(own.requested, (rows, own.requested.shape[1]))
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
        own.requested = _grown(own.requested, (len(own.requested), capacity))
        own.nonzero = _grown(own.nonzero, (2, capacity))
        self._show()
        self.labels.grow(capacity)
        self.annotations.grow(capacity)
        self.images.grow(capacity)


class NodeView:
    """What a plugin sees: columns over all nodes, or over the few nodes that are evaluated again.

    Every method returns one value per node of the view, in the same order; `len(view)` is their number. A view over all
    rows includes the rows of deleted nodes; verdicts on these are ignored. The arrays are read-only: `free -= used`
    raises ValueError, `free = free - used` makes a new array.
    """

    __slots__ = ("_nodes", "index")

    def __init__(self, nodes: Nodes, index: slice | Rows) -> None:
        self._nodes = nodes
        self.index = index
        """The rows of the cluster in this view: `column_over_all_rows[nodes.index]` is a column of this view."""

    def __len__(self) -> int:
        index = self.index
        return index.stop - index.start if isinstance(index, slice) else len(index)

    @property
    def is_whole(self) -> bool:
        """Whether the view is over all rows."""
        return self.index is self._nodes.everything

    @property
    def whole(self) -> NodeView:
        """The view over all rows."""
        return self if self.is_whole else self._nodes.view()

    @property
    def changes(self) -> Changes:
        """The log of the changed rows of the cluster."""
        return self._nodes.changes

    @property
    def few(self) -> int:
        """If more rows than this have changed, evaluating all rows is cheaper."""
        return max(64, self._nodes.size // 4)

    @property
    def rows(self) -> Rows:
        """The row of each node."""
        index = self.index
        return np.arange(index.start, index.stop) if isinstance(index, slice) else read_only(index)

    @property
    def position(self) -> int:
        """The end of the log of changes now; for `changed_since`."""
        return self._nodes.changes.position

    def changed_since(self, position: int) -> Rows | None:
        """Rows of the cluster that changed since the position; None if evaluating all rows is cheaper."""
        found = self._nodes.changes.since(position, self.few)
        return None if found is None else found[0]

    def kinds_since(self, position: int) -> int:
        """The kinds (NODE | PODS) of all changes of the cluster since the position."""
        return self._nodes.changes.kinds_since(position)

    def at(self, rows: Rows) -> NodeView:
        """A view over some rows of the cluster."""
        return NodeView(self._nodes, slice(int(rows[0]), int(rows[0]) + 1) if len(rows) == 1 else rows)

    @property
    def count(self) -> int:
        """How many nodes the cluster has, even if the view is over fewer."""
        return self._nodes.count

    @property
    def names(self) -> list[str]:
        """The names, "" for a deleted node."""
        names = self._nodes.names
        index = self.index
        return names[index] if isinstance(index, slice) else [names[row] for row in index]

    def row_of(self, name: str) -> int | None:
        """The row of a node of the cluster, or None."""
        return self._nodes.row_of(name)

    @property
    def alive(self) -> BoolColumn:
        """Which rows have a node."""
        return self._nodes.alive[self.index]

    @property
    def unschedulable(self) -> BoolColumn:
        """spec.unschedulable."""
        return self._nodes.unschedulable[self.index]

    @property
    def taints(self) -> Int32Column:
        """The number of each node's taint set; `taint_sets[number]` are the taints."""
        return self._nodes.taints[self.index]

    @property
    def taint_sets(self) -> list[tuple[TaintKey, ...]]:
        """All taint sets that exist; their numbers may change whenever a node changes."""
        return self._nodes.taint_sets

    def allocatable(self, resource: str) -> Int64Column:
        """Allocatable amounts: milli-CPU, bytes or whole devices."""
        return self._nodes.allocatable[self._nodes.axis.row(resource), self.index]

    def requested(self, resource: str) -> Int64Column:
        """What the pods on each node request, in the units of `allocatable`."""
        return self._nodes.requested[self._nodes.axis.row(resource), self.index]

    def amounts(self, resources: tuple[str, ...]) -> tuple[Int64Column, Int64Column]:
        """Allocatable and requested amounts of several resources at once, one row per resource; read-only."""
        rows, nodes = self._nodes.axis.rows(resources), self._nodes
        if isinstance(rows, slice) or isinstance(self.index, slice):
            return nodes.allocatable[rows, self.index], nodes.requested[rows, self.index]
        grid = rows[:, None]
        return nodes.allocatable[grid, self.index], nodes.requested[grid, self.index]

    @property
    def nonzero(self) -> Int64Column:
        """Milli-CPU (row 0) and bytes (row 1) requested, with 100 and 200 Mi for each container without a request."""
        return self._nodes.nonzero[:, self.index]

    def label(self, key: str) -> LabelColumn:
        """The values of a node label."""
        return self._nodes.labels.column(key, self.index)

    def annotation(self, key: str) -> LabelColumn:
        """The values of a node annotation, as a column with all methods of a label column."""
        return self._nodes.annotations.column(key, self.index)

    def image(self, name: str) -> tuple[BoolColumn, int]:
        """Which nodes have an image (its name with tag), and its size in bytes."""
        return self._nodes.images.column(name, self.index)

    def node(self, i: int) -> Node | None:
        """The i-th node of the view as the API server sent it; shared, read-only."""
        return self._nodes.objects[self._row(i)]

    def pods(self, i: int) -> Mapping[str, PodInfo]:
        """The pods on the i-th node of the view, by UID."""
        return MappingProxyType(self._nodes.pods_on[self._row(i)])

    def full(self, value: bool) -> BoolColumn:
        """A column with the same truth value for each node."""
        return np.full(len(self), value, dtype=np.bool_)

    def _row(self, i: int) -> int:
        index = self.index
        return index.start + i if isinstance(index, slice) else int(index[i])


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
