"""The leaves of a cluster in one line, so that adjacent leaves are a slice of it.

Rules:
- Leaves are counted along the line, from 0. Rows are sorted by leaf, so a range of leaves is a range of rows.
- Leaves are adjacent if they are in the same spine and their positions there are consecutive. A leaf in no spine is
  adjacent to no other leaf, and a node in no leaf is not in the line.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gangline import NO_DOMAIN, Domains, Rows, Topology
from gangline_plugins.leaf_spine.configured import LEAF, SPINE

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class Layout:
    """The leaves in line; made anew when the topology changes."""

    def __init__(self, leaves: Domains, spines: Domains | None) -> None:
        self.leaves = leaves
        count = len(leaves)
        self.in_leaf: Rows = np.flatnonzero(leaves.ids >= 0)
        by_rank = np.empty(count, dtype=np.int64)
        by_rank[leaves.order] = np.arange(count)
        self.number: Ints = by_rank
        """For each leaf in line its number in the topology."""
        rank = leaves.order[leaves.ids[self.in_leaf]]
        along = np.argsort(rank, kind="stable")
        self.rows: Rows = self.in_leaf[along]
        """The rows of all leaves, in the order of the line."""
        self.leaf_of: Ints = rank[along]
        """For each of `rows` its leaf."""
        self.starts: Ints = np.searchsorted(self.leaf_of, np.arange(count + 1))
        """For each leaf the index in `rows` at which its rows begin; the last entry is the end of all rows."""
        self.sizes: Ints = np.diff(self.starts)
        self.place: Ints = np.full(len(leaves.ids), NO_DOMAIN, dtype=np.int64)
        """For each row of the cluster its leaf in line, or NO_DOMAIN."""
        self.place[self.rows] = self.leaf_of
        spine = leaves.ancestors(spines) if spines is not None else np.full(count, NO_DOMAIN, dtype=np.int32)
        self.spine: Ints = spine[by_rank].astype(np.int64)
        """For each leaf the number of its spine, or NO_DOMAIN."""
        self.spines = spines
        self.position: Ints = leaves.positions[by_rank]
        parent = leaves.parents[by_rank]
        broken = (self.spine[1:] != self.spine[:-1]) | (self.spine[1:] < 0) | (parent[1:] != parent[:-1])
        broken |= self.position[1:] - self.position[:-1] != 1
        self.run: Ints = np.concatenate(([0], np.cumsum(broken)))[:count]
        """For each leaf the number of the run of adjacent leaves that it belongs to."""

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def paths(self) -> list[str]:
        """The name of each leaf with those of its wider domains; the history uses these names."""
        return [self.leaves.path(number) for number in self.number.tolist()]

    def sums(self, column: Ints) -> Ints:
        """The sum of a column (one value per row of the cluster) over each leaf."""
        return np.bincount(self.leaf_of, weights=column[self.rows], minlength=len(self)).astype(np.int64)

    def windows(self, width: int) -> Ints:
        """The first leaf of each run of `width` adjacent leaves."""
        if not 1 <= width <= len(self):
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(self.run[width - 1 :] == self.run[: len(self) - width + 1])

    def rows_of(self, first: int, width: int = 1) -> Rows:
        """The rows of `width` adjacent leaves."""
        return self.rows[self.starts[first] : self.starts[first + width]]

    def name_of(self, first: int, width: int = 1) -> str:
        """The name of `width` adjacent leaves, for messages."""
        if width == 1:
            return f"leaf {self.paths[first]}"
        return f"leaves {self.paths[first]} to {self.leaves.values[int(self.number[first + width - 1])]}"

    def spine_name(self, spine: int) -> str:
        """The name of a spine."""
        return self.spines.path(spine) if self.spines is not None else ""


def find_leaves(topology: Topology, leaf: str, spine: str) -> tuple[Domains, Domains | None] | None:
    """The levels of leaves and spines, by their configured or usual names; None if there are no leaves."""
    leaves = topology.find(leaf or LEAF)
    if leaves is None and not leaf:
        switches = topology.switches()
        leaves = switches[-1] if switches else None
    if leaves is None or not len(leaves):
        return None
    around = leaves.wider
    spines = topology.find(spine or SPINE)
    while spines is not None and around is not None:
        if around is spines:
            return leaves, spines
        around = around.wider
    return leaves, None if spine else leaves.wider
