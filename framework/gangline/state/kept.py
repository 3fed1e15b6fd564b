"""Columns that are kept by key; only the rows that have changed are evaluated again.

A plugin often computes the same column for many pods, for example for all pods with one selector. `KeptColumns` keeps
the column with the position of the change logs at which it was computed. When it is asked for again, the logs name the
rows that have changed since, mostly one; these are evaluated and written into the column. If too many rows have
changed, or the column has another length, all rows are evaluated.

A column is an array with one entry per node, or a table with one column per node. To write one column of a table takes
less time than to write as many arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gangline.failures import shown
from gangline.sizes import BoundedCache, quick_size_of
from gangline.state.changes import ChangeLog, Changes, together
from gangline.state.node_view import NodeView, Rows
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
        shape = column.shape if type(column) is np.ndarray else np.shape(column)
        if not 1 <= len(shape) <= 2 or shape[-1] != size:
            raise ValueError(f"a kept column has an entry for each of {size} nodes, not the shape {shape}")
    return answer


def _write(columns: list[NDArray[Any]], at: int, rows: slice | Rows, fresh: NDArray[Any]) -> bool:
    """Write some rows of the column `columns[at]`; returns whether it had to become another array, with more bits."""
    column, is_wider = columns[at], False
    if np.shape(fresh)[:-1] != column.shape[:-1]:
        raise ValueError(f"a kept column had the shape {column.shape}, and rows of it have {np.shape(fresh)}")
    if type(fresh) is not np.ndarray or fresh.dtype != column.dtype:
        kind = np.result_type(column, fresh)
        if is_wider := bool(column.dtype != kind):
            column = columns[at] = column.astype(kind)
    column[..., rows] = fresh
    return is_wider


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
    rows for a known key. `one` may answer in its place for the only node of a view, in plain numbers of the columns'
    type: a number for each column, a list for each table. Mostly the pods of one node have changed, and then plain
    numbers take half the time.
    """

    def __init__(
        self,
        evaluate: Callable[[K, NodeView], V],
        most_bytes: int,
        own: tuple[Changes, ...] = (),
        one: Callable[[K, NodeView], Sequence[float | Sequence[float]]] | None = None,
    ) -> None:
        self._evaluate = evaluate
        self._one = one
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
        if kept is not None and kept.columns[0].shape[-1] == len(nodes):
            row = logs.only_row(kept.position)
            if 0 <= row < len(nodes) and self._one is not None:
                for column, numbers in zip(kept.columns, self._one(key, nodes.at_row(row)), strict=True):
                    column[..., row] = numbers
                kept.position = position
                return kept.shown
            if 0 <= row < len(nodes):
                return self._update(kept, key, nodes.at_row(row), position)
            changed = logs.since(kept.position, 2 * nodes.few)
            if changed is not None:
                rows, _ = changed
                if self._own:  # plugins may note rows that no node has
                    rows = rows[rows < len(nodes)]
                return self._update(kept, key, nodes.at(rows), position)
        answer = self._evaluate(key, nodes)
        columns = [np.array(column) for column in _checked(answer, len(nodes))]
        return self._kept.put(key, _KeptEntry(columns, _shown(columns, answer), position)).shown

    def _update(self, kept: _KeptEntry[V], key: K, changed: NodeView, position: Any) -> V:
        """Bring the columns up to this position, after changes of the rows in the view."""
        if len(changed):
            answer = _checked(self._evaluate(key, changed), len(changed), len(kept.columns))
            if any([_write(kept.columns, at, changed.index, fresh) for at, fresh in enumerate(answer)]):
                kept.shown = _shown(kept.columns, answer)
        kept.position = position
        return kept.shown

    def _together(self, of_nodes: Changes) -> ChangeLog:
        if self._logs is None or self._logs[0] is not of_nodes:
            self._logs = of_nodes, together((of_nodes, *self._own))
        return self._logs[1]

    def __len__(self) -> int:
        return len(self._kept)
