"""The nodes as columns: one array per quantity, one row per node.

Rules:
- A node keeps its row while it lives; the row of a deleted node is used again. `alive` says which rows count.
- Columns are changed cell by cell, never rebuilt; each change is noted in `changes`, so that whoever keeps
  something per row evaluates only the rows that changed.
- Plugins get a `NodeView`, over all rows or over some; they read, and never write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline import requests
from gangline.images import Images
from gangline.labels import LabelColumn, Labels
from gangline.model import ContainerImage, Node, Taint
from gangline.pods import PodInfo, ResourceAxis
from gangline.status import BoolColumn

Int64Column = NDArray[np.int64]
"""One whole number per node."""
Int32Column = NDArray[np.int32]
Rows = NDArray[np.intp]
"""Numbers of nodes."""

NODE = 1
"""A change of the node itself: labels, taints, allocatable, conditions."""
PODS = 2
"""A change of the pods on it."""
_INITIAL_CAPACITY = 64
_T = TypeVar("_T", bound=np.generic)


class TaintKey(NamedTuple):
    """A taint as a value."""

    key: str
    value: str
    effect: str


class Changes:
    """Which rows changed, in order; positions only grow."""

    def __init__(self, keep: int = 16384) -> None:
        self._keep = keep
        self._log: list[int] = []
        self._base = 0
        self._after = {NODE: 0, PODS: 0}
        """Where the log stood after the last change of each kind."""

    @property
    def position(self) -> int:
        """Where the next change will stand."""
        return self._base + len(self._log)

    def note(self, row: int, kind: int) -> None:
        """Row changed."""
        log = self._log
        log.append(row)
        self._after[kind] = self._base + len(log)
        if len(log) > 2 * self._keep:
            del log[: self._keep]
            self._base += self._keep

    def since(self, position: int, limit: int) -> tuple[Rows, int] | None:
        """Rows changed since position, each once, and the kinds of all changes ORed; None for more than limit rows."""
        start = position - self._base
        if start < 0 or len(self._log) - start > 4 * limit:
            return None
        rows = dict.fromkeys(self._log[start:])
        if len(rows) > limit:
            return None
        return np.fromiter(rows, dtype=np.intp, count=len(rows)), self.kinds_since(position)

    def kinds_since(self, position: int) -> int:
        """The kinds of all changes since position, ORed."""
        kinds = 0
        for kind, after in self._after.items():
            if after > position:
                kinds |= kind
        return kinds


class Nodes:
    """Owner of the node columns."""

    def __init__(self, axis: ResourceAxis) -> None:
        capacity = _INITIAL_CAPACITY
        self.axis = axis
        self.size = 0
        """Rows in use, dead ones included."""
        self.count = 0
        """Nodes that live."""
        self.names: list[str] = []
        self.objects: list[Node | None] = []
        self.pods_on: list[dict[str, PodInfo]] = []
        """For each row the pods on it, by UID."""
        self.taint_sets: list[tuple[TaintKey, ...]] = [()]
        self._taint_set_ids: dict[tuple[TaintKey, ...], int] = {(): 0}
        self._row_of: dict[str, int] = {}
        self._free: list[int] = []
        self.changes = Changes()
        self.labels = Labels(capacity, self._labels_of_rows)
        self.images = Images(capacity, self._images_of_rows)
        self.alive: BoolColumn = np.zeros(capacity, dtype=np.bool_)
        self.unschedulable: BoolColumn = np.zeros(capacity, dtype=np.bool_)
        self.taints: Int32Column = np.zeros(capacity, dtype=np.int32)
        self.allocatable: Int64Column = np.zeros((max(8, len(axis)), capacity), dtype=np.int64)
        self.requested: Int64Column = np.zeros_like(self.allocatable)
        self.nonzero: Int64Column = np.zeros((2, capacity), dtype=np.int64)
        self.everything = slice(0, 0)
        axis.on_growth(self._fit_axis)
        self.order: Int64Column = np.zeros(capacity, dtype=np.int64)
        """When each node was added, as a number that grows."""
        self._added = 0

    def row_of(self, name: str) -> int | None:
        """The row of a node that lives, or None."""
        return self._row_of.get(name)

    def view(self, rows: Rows | slice | None = None) -> NodeView:
        """All rows, or these; a slice needs both ends."""
        return NodeView(self, self.everything if rows is None else rows)

    def upsert(self, node: Node) -> int:
        """Add or update a node; returns its row. Raises InvalidObject and changes nothing."""
        name = node.metadata.name
        row = self._row_of.get(name)
        if row is not None and _same_columns(self.objects[row], node):
            self.objects[row] = node  # a heartbeat: no column is concerned
            return row
        amounts = requests.allocatable(node.status.allocatable, f"node {name}: status.allocatable")
        for resource in amounts:
            self.axis.row(resource)
        if row is None:
            row = self._take_row(name)
        self.objects[row] = node
        self.allocatable[:, row] = 0
        for resource, amount in amounts.items():
            self.allocatable[self.axis.row(resource), row] = amount
        self.unschedulable[row] = node.spec.unschedulable
        self.taints[row] = self._taint_set(node.spec.taints)
        self.labels.update(row, node.metadata.labels or {})
        self.images.update(row, node.status.images)
        self.changes.note(row, NODE)
        return row

    def remove(self, name: str) -> int | None:
        """Take a node out; the pods on it must have been taken off. Returns the row it had."""
        row = self._row_of.pop(name, None)
        if row is None:
            return None
        self.alive[row] = False
        self.objects[row] = None
        self.names[row] = ""
        self.allocatable[:, row] = 0
        self.unschedulable[row] = False
        self.taints[row] = 0
        self.labels.update(row, {})
        self.images.update(row, [])
        self.count -= 1
        self._free.append(row)
        self.changes.note(row, NODE)
        return row

    def place(self, pod: PodInfo, row: int) -> None:
        """Put a pod on a node."""
        cls = pod.cls
        self.requested[cls.resources, row] += cls.amounts
        self.nonzero[0, row] += cls.requests.nonzero[0]
        self.nonzero[1, row] += cls.requests.nonzero[1]
        self.pods_on[row][pod.uid] = pod
        pod.row = row
        self.changes.note(row, PODS)

    def unplace(self, pod: PodInfo) -> None:
        """Take a pod off its node."""
        cls, row = pod.cls, pod.row
        self.requested[cls.resources, row] -= cls.amounts
        self.nonzero[0, row] -= cls.requests.nonzero[0]
        self.nonzero[1, row] -= cls.requests.nonzero[1]
        del self.pods_on[row][pod.uid]
        pod.row = -1
        self.changes.note(row, PODS)

    def _fit_axis(self) -> None:
        """Make room for the resources that the axis has come to know."""
        if len(self.axis) > len(self.allocatable):
            rows = 2 * len(self.axis)
            self.allocatable = _grown(self.allocatable, (rows, self.allocatable.shape[1]))
            self.requested = _grown(self.requested, (rows, self.requested.shape[1]))

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
            self.pods_on.append({})
            self.everything = slice(0, self.size)
        self._row_of[name] = row
        self.alive[row] = True
        self.count += 1
        self._added += 1
        self.order[row] = self._added
        return row

    def _grow(self, capacity: int) -> None:
        self.alive = _grown(self.alive, (capacity,))
        self.unschedulable = _grown(self.unschedulable, (capacity,))
        self.taints = _grown(self.taints, (capacity,))
        self.order = _grown(self.order, (capacity,))
        self.allocatable = _grown(self.allocatable, (len(self.allocatable), capacity))
        self.requested = _grown(self.requested, (len(self.requested), capacity))
        self.nonzero = _grown(self.nonzero, (2, capacity))
        self.labels.grow(capacity)
        self.images.grow(capacity)

    def _taint_set(self, taints: Iterable[Taint]) -> int:
        key = tuple(TaintKey(taint.key, taint.value, taint.effect) for taint in taints)
        number = self._taint_set_ids.get(key)
        if number is None:
            number = self._taint_set_ids[key] = len(self.taint_sets)
            self.taint_sets.append(key)
        return number

    def _labels_of_rows(self) -> Iterator[Mapping[str, str]]:
        for node in self.objects:
            yield (node.metadata.labels or {}) if node is not None else {}

    def _images_of_rows(self) -> Iterator[list[ContainerImage]]:
        for node in self.objects:
            yield node.status.images if node is not None else []


class NodeView:
    """What a plugin sees: columns over all nodes, or over the few that are evaluated again.

    Every method returns one value per node of the view, in the same order; `len(view)` is their number. Rows of deleted
    nodes are among them when the view is over all; what a plugin says about those is ignored.
    """

    __slots__ = ("_nodes", "index")

    def __init__(self, nodes: Nodes, index: slice | Rows) -> None:
        self._nodes = nodes
        self.index = index

    def __len__(self) -> int:
        index = self.index
        return index.stop - index.start if isinstance(index, slice) else len(index)

    @property
    def is_whole(self) -> bool:
        """Whether it is over all rows."""
        return self.index is self._nodes.everything

    @property
    def rows(self) -> Rows:
        """The row of each node."""
        index = self.index
        return np.arange(index.start, index.stop) if isinstance(index, slice) else index

    @property
    def position(self) -> int:
        """Where the log of changes stands; for `changed_since`."""
        return self._nodes.changes.position

    def changed_since(self, position: int) -> Rows | None:
        """Rows of the cluster that changed since then; None when it is cheaper to take all for changed."""
        found = self._nodes.changes.since(position, max(64, self._nodes.size // 4))
        return None if found is None else found[0]

    def kinds_since(self, position: int) -> int:
        """The kinds (NODE | PODS) of all changes of the cluster since then."""
        return self._nodes.changes.kinds_since(position)

    def at(self, rows: Rows) -> NodeView:
        """A view over some rows of the cluster."""
        return NodeView(self._nodes, slice(int(rows[0]), int(rows[0]) + 1) if len(rows) == 1 else rows)

    @property
    def count(self) -> int:
        """How many nodes the cluster has, whatever the view is over."""
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
        """Which rows hold a node that lives."""
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
        """All taint sets that exist."""
        return self._nodes.taint_sets

    def allocatable(self, resource: str) -> Int64Column:
        """Allocatable amounts: milli-CPU, bytes or whole devices."""
        return self._nodes.allocatable[self._nodes.axis.row(resource), self.index]

    def requested(self, resource: str) -> Int64Column:
        """What the pods on each node ask for, in the units of `allocatable`."""
        return self._nodes.requested[self._nodes.axis.row(resource), self.index]

    def amounts(self, resources: tuple[str, ...]) -> tuple[Int64Column, Int64Column]:
        """Allocatable and requested amounts of several resources at once, one row per resource; only to read."""
        rows, nodes = self._nodes.axis.rows(resources), self._nodes
        if isinstance(rows, slice) or isinstance(self.index, slice):
            return nodes.allocatable[rows, self.index], nodes.requested[rows, self.index]
        grid = rows[:, None]
        return nodes.allocatable[grid, self.index], nodes.requested[grid, self.index]

    @property
    def nonzero(self) -> Int64Column:
        """Milli-CPU (row 0) and bytes (row 1) asked for, with 100 and 200 Mi for each container that names none."""
        return self._nodes.nonzero[:, self.index]

    def label(self, key: str) -> LabelColumn:
        """The values of a node label."""
        return self._nodes.labels.column(key, self.index)

    def image(self, name: str) -> tuple[BoolColumn, int]:
        """Which nodes hold an image (its name with tag), and its size in bytes."""
        return self._nodes.images.column(name, self.index)

    def node(self, i: int) -> Node | None:
        """The i-th node of the view as the API server sent it."""
        return self._nodes.objects[self._row(i)]

    def pods(self, i: int) -> Mapping[str, PodInfo]:
        """The pods on the i-th node of the view, by UID."""
        return self._nodes.pods_on[self._row(i)]

    def full(self, value: bool) -> BoolColumn:
        """The same truth value for each node."""
        return np.full(len(self), value, dtype=np.bool_)

    def _row(self, i: int) -> int:
        index = self.index
        return index.start + i if isinstance(index, slice) else int(index[i])


def _same_columns(before: Node | None, after: Node) -> bool:
    return (
        before is not None
        and before.metadata.labels == after.metadata.labels
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
