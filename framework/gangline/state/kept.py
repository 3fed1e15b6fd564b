"""Columns that are kept by key; only the rows that have changed are evaluated again.

A plugin often computes the same column for many pods, for example for all pods with one selector. `KeptColumns` keeps
the column with the position of the change logs at which it was computed. When it is asked for again, the logs name the
rows that have changed since, mostly one; these are evaluated and written into the column. If too many rows have
changed, or the column has another length, all rows are evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline.failures import shown
from gangline.sizes import BoundedCache, quick_size_of
from gangline.state.changes import OWN, ChangeLog, Changes, together
from gangline.state.node_view import NodeView
from gangline.status import read_only

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=tuple[NDArray[Any], ...])


_ENTRY_BYTES = 1024
"""The size of an entry without its key and the content of its columns."""


@dataclass(slots=True, eq=False)
class _KeptEntry(Generic[V]):
    columns: list[NDArray[Any]]
    """The columns that only this module may write."""
    shown: V
    """Read-only aliases of `columns`."""
    position: Any
    """The position in the logs at which the columns were last updated."""


def _size(key: Hashable, kept: _KeptEntry[Any]) -> int:
    """The size of an entry in bytes."""
    return _ENTRY_BYTES + quick_size_of(key) + sum([column.nbytes for column in kept.columns])


def _checked(answer: V, size: int, number: int | None = None) -> V:
    """The answer. Raises ValueError unless it is a tuple of columns, each with an entry for every node asked about."""
    if not isinstance(answer, tuple) or not answer or (number is not None and len(answer) != number):
        raise ValueError(f"kept columns are a tuple of {number or 'at least one'}, not {shown(answer)}")
    for column in answer:
        if (column.shape if type(column) is np.ndarray else np.shape(column)) != (size,):
            raise ValueError(f"a kept column has an entry for each of {size} nodes, not the shape {np.shape(column)}")
    return answer


def _shown(columns: list[NDArray[Any]], like: V) -> V:
    """Read-only columns, in the type of tuple that `evaluate` returned."""
    aliases = [read_only(column) for column in columns]
    kind: Any = type(like)
    shown: V = kind._make(aliases) if hasattr(kind, "_make") else kind(aliases)
    return shown


class KeptColumns(Generic[K, V]):
    """For each key a tuple of columns, one entry per row of the cluster; the last used ones, up to a number of bytes.

    `evaluate(key, nodes)` returns the columns of a view. It may read only the key and data whose changes the logs
    record: the log of the nodes, and the logs in `own`. It is called over all nodes for a new key, and over the changed
    rows for a known key.
    """

    def __init__(self, evaluate: Callable[[K, NodeView], V], most_bytes: int, own: tuple[Changes, ...] = ()) -> None:
        self._evaluate = evaluate
        self._own = own
        self._logs: tuple[Changes, ChangeLog] | None = None
        """The log of the nodes, and all logs read as one."""
        self._kept: BoundedCache[K, _KeptEntry[V]] = BoundedCache(most_bytes, _size, fewest=16)

    def of(self, key: K, nodes: NodeView) -> V:
        """The columns over all rows as they are now, read-only; `nodes` is any view of the cluster."""
        nodes = nodes.whole
        logs = self._together(nodes.changes)
        position = logs.position
        kept = self._kept.get(key)
        if kept is not None and kept.position == position:
            return kept.shown
        changed = None
        if kept is not None and len(kept.columns[0]) == len(nodes):
            changed = logs.since(kept.position, 2 * nodes.few)
        if kept is None or changed is None:
            answer = self._evaluate(key, nodes)
            columns = [np.array(column) for column in _checked(answer, len(nodes))]
            return self._kept.put(key, _KeptEntry(columns, _shown(columns, answer), position)).shown
        rows, kinds = changed
        if kinds & OWN:
            rows = rows[rows < len(nodes)]
        if len(rows):
            answer = self._evaluate(key, nodes.at(rows))
            wider = False
            for at, fresh in enumerate(_checked(answer, len(rows), len(kept.columns))):
                column = kept.columns[at]
                if type(fresh) is not np.ndarray or fresh.dtype != column.dtype:
                    type_ = np.result_type(column, fresh)
                    if column.dtype != type_:  # it may need more bits than before
                        column = kept.columns[at] = column.astype(type_)
                        wider = True
                column[rows] = fresh
            if wider:
                kept.shown = _shown(kept.columns, answer)
        kept.position = position
        return kept.shown

    def _together(self, of_nodes: Changes) -> ChangeLog:
        if self._logs is None or self._logs[0] is not of_nodes:
            self._logs = of_nodes, together((of_nodes, *self._own))
        return self._logs[1]

    def __len__(self) -> int:
        return len(self._kept)
