"""What plugins see of the nodes: a `NodeView` over the columns, of all rows or of some.

The columns themselves belong to `nodes`; a view copies none of them and changes none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gangline.model import Node
from gangline.state.changes import Changes
from gangline.state.images import Images
from gangline.state.labels import LabelColumn, Labels
from gangline.state.pods import PodInfo
from gangline.state.resource_axis import ResourceAxis
from gangline.state.taints import TaintKey
from gangline.status import BoolColumn, read_only

Int64Column = NDArray[np.int64]
"""One whole number per node."""
Int32Column = NDArray[np.int32]
Rows = NDArray[np.intp]
"""Numbers of nodes."""


class ReadColumns(Protocol):
    """The columns that a view reads; see `nodes.Nodes`."""

    axis: ResourceAxis
    size: int
    count: int
    names: list[str]
    objects: list[Node | None]
    pods_on: list[dict[str, PodInfo]]
    taint_sets: list[tuple[TaintKey, ...]]
    changes: Changes
    labels: Labels
    annotations: Labels
    images: Images
    alive: BoolColumn
    unschedulable: BoolColumn
    taints: Int32Column
    allocatable: Int64Column
    free: Int64Column
    nonzero: Int64Column
    everything: slice

    def row_of(self, name: str) -> int | None:
        """The row of a node, or None if there is no such node."""
        ...

    def view(self) -> NodeView:
        """A view over all rows."""
        ...

    def amounts_at(self, row: int, resources: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """Allocatable and requested amounts of one node, one number per resource."""
        ...

    def free_at(self, row: int, resources: tuple[str, ...]) -> list[int]:
        """`free` of one node, one number per resource."""
        ...

    def nonzero_at(self, row: int) -> tuple[int, int]:
        """`nonzero` of one node."""
        ...


class NodeView:
    """What a plugin sees: columns over all nodes, or over the few nodes that are evaluated again.

    Every method returns one value per node of the view, in the same order; `len(view)` is their number. A view over all
    rows includes the rows of deleted nodes; verdicts on these are ignored. The arrays are read-only: `free -= used`
    raises ValueError, `free = free - used` makes a new array.
    """

    __slots__ = ("_nodes", "index")

    def __init__(self, nodes: ReadColumns, index: slice | Rows) -> None:
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
    def first(self) -> int:
        """The row of the first node, as a plain number."""
        return self._row(0)

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
        return self.at_row(rows.item()) if len(rows) == 1 else NodeView(self._nodes, rows)

    def at_row(self, row: int) -> NodeView:
        """A view over one row of the cluster."""
        return OneNodeView(self._nodes, row)

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

    def name_of(self, row: int) -> str:
        """The name of the node in a row of the cluster, "" for a deleted node."""
        return self._nodes.names[row]

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
        return read_only(self.allocatable(resource) - self.free(resource))

    def free(self, resource: str) -> Int64Column:
        """What is left: `allocatable` less `requested`, and quicker to read; negative on a node with too many pods."""
        nodes = self._nodes
        return nodes.free[nodes.axis.row(resource), self.index]

    def amounts(self, resources: tuple[str, ...]) -> tuple[Int64Column, Int64Column]:
        """Allocatable and requested amounts of several resources at once, one row per resource; read-only."""
        allocatable = self.allocatable_of(resources)
        return allocatable, read_only(allocatable - self.free_of(resources))

    def allocatable_of(self, resources: tuple[str, ...]) -> Int64Column:
        """Allocatable amounts of several resources, one row per resource; nobody may change the array."""
        return self._of(self._nodes.allocatable, resources)

    def free_of(self, resources: tuple[str, ...]) -> Int64Column:
        """What is left of several resources, one row per resource; nobody may change the array."""
        return self._of(self._nodes.free, resources)

    def _of(self, columns: Int64Column, resources: tuple[str, ...]) -> Int64Column:
        rows, index = self._nodes.axis.rows(resources), self.index
        return columns[rows if isinstance(rows, slice) or isinstance(index, slice) else rows[:, None], index]

    def amounts_of_one(self, resources: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """As `amounts`, as lists of plain numbers, for the only node of the view; takes a fifth of the time."""
        return self._nodes.amounts_at(self._row(0), resources)

    def free_of_one(self, resources: tuple[str, ...]) -> list[int]:
        """What is left of several resources, as plain numbers, on the only node of the view."""
        return self._nodes.free_at(self._row(0), resources)

    @property
    def nonzero(self) -> Int64Column:
        """Milli-CPU (row 0) and bytes (row 1) requested, with 100 and 200 Mi for each container without a request."""
        return self._nodes.nonzero[:, self.index]

    @property
    def nonzero_of_one(self) -> tuple[int, int]:
        """As `nonzero`, as plain numbers, for the only node of the view."""
        return self._nodes.nonzero_at(self._row(0))

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


class OneNodeView(NodeView):
    """A view over one row of the cluster, as nearly every decision needs it; it knows the row without looking."""

    __slots__ = ("_only",)

    def __init__(self, nodes: ReadColumns, row: int) -> None:
        super().__init__(nodes, slice(row, row + 1))
        self._only = row

    def __len__(self) -> int:
        return 1

    @property
    def first(self) -> int:
        """The row."""
        return self._only

    def amounts_of_one(self, resources: tuple[str, ...]) -> tuple[list[int], list[int]]:
        """Allocatable and requested amounts."""
        return self._nodes.amounts_at(self._only, resources)

    def free_of_one(self, resources: tuple[str, ...]) -> list[int]:
        """What is left."""
        return self._nodes.free_at(self._only, resources)

    @property
    def nonzero_of_one(self) -> tuple[int, int]:
        """Milli-CPU and bytes requested."""
        return self._nodes.nonzero_at(self._only)
