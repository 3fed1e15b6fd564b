"""Columns that are kept by what they were evaluated for, and evaluated again only for the rows that have changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from gangline.sizes import BoundedCache
from gangline.state.changes import OWN, ChangeLog, Changes, together
from gangline.state.nodes import NodeView

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=tuple[NDArray[Any], ...])


@dataclass(slots=True, eq=False)
class _Kept(Generic[V]):
    columns: V
    position: Any
    """Of the logs, when the columns were last brought up to date."""


class KeptColumns(Generic[K, V]):
    """For each key a tuple of columns, one entry per row of the cluster; those used last, up to so many bytes.

    `evaluate(key, nodes)` answers the columns of a view, and reads nothing but the key and what the logs tell of: the
    log of the nodes, and those in `own`. It is called over all nodes for a new key, and over the rows that have changed
    for a known one.
    """

    def __init__(self, evaluate: Callable[[K, NodeView], V], most_bytes: int, own: tuple[Changes, ...] = ()) -> None:
        self._evaluate = evaluate
        self._own = own
        self._logs: tuple[Changes, ChangeLog] | None = None
        """The log of the nodes, and all together."""
        self._kept: BoundedCache[K, _Kept[V]] = BoundedCache(most_bytes, fewest=16)

    def of(self, key: K, nodes: NodeView) -> V:
        """The columns over all rows as they are now, only to read; `nodes` is any view of the cluster."""
        nodes = nodes.whole
        logs = self._together(nodes.changes)
        position = logs.position
        kept = self._kept.get(key)
        if kept is not None and kept.position == position:
            return kept.columns
        changed = None
        if kept is not None and len(kept.columns[0]) == len(nodes):
            changed = logs.since(kept.position, 2 * nodes.few)
        if kept is None or changed is None:
            columns = self._evaluate(key, nodes)
            self._kept.put(key, _Kept(columns, position))
            return columns
        rows, kinds = changed
        if kinds & OWN:
            rows = rows[rows < len(nodes)]
        if len(rows):
            for column, fresh in zip(kept.columns, self._evaluate(key, nodes.at(rows)), strict=True):
                column[rows] = fresh
        kept.position = position
        return kept.columns

    def _together(self, of_nodes: Changes) -> ChangeLog:
        if self._logs is None or self._logs[0] is not of_nodes:
            self._logs = of_nodes, together((of_nodes, *self._own))
        return self._logs[1]

    def __len__(self) -> int:
        return len(self._kept)
