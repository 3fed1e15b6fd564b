"""Which rows of the cluster have changed, and in what: the log by which others evaluate only those again."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

NODE = 1
"""A change of the node itself: labels, taints, allocatable, conditions."""
PODS = 2
"""A change of the pods on it."""
OWN = 4
"""A change in a column of a plugin's own."""


_Rows = NDArray[np.intp]
_FEW = 64
"""Entries of the log that are looked through one by one."""


class ChangeLog(Protocol):
    """A log to read, or several as one."""

    @property
    def position(self) -> Any:
        """Where the log stands; another value after each change."""
        ...

    def since(self, position: Any, limit: int) -> tuple[_Rows, int] | None:
        """Rows changed since position, each once, and the kinds of all changes ORed; None for more than limit rows."""
        ...


MOST_ROWS = 1_000_000
"""Rows that a plugin may note changes of; no cluster has as many nodes."""


class Changes:
    """Which rows changed, in order; positions only grow.

    A plugin that keeps columns of its own has such a log of them, and names it in `reads_own`.
    """

    def __init__(self, keep: int = 16384) -> None:
        self._keep = keep
        self._log: list[int] = []
        self._base = 0
        self._after: dict[int, int] = {}
        """Where the log stood after the last change of each kind."""
        self._last = np.zeros(64, dtype=np.int64)
        """Where the log stood after the last change of each row, as of `_read`."""
        self._read = 0

    @property
    def position(self) -> int:
        """Where the next change will stand."""
        return self._base + len(self._log)

    def note(self, row: int, kind: int = OWN) -> None:
        """Row changed. Raises TypeError and ValueError for what is no row, such as the -1 of a pod without a node."""
        if kind == OWN:
            row = operator.index(row)
            if not 0 <= row < MOST_ROWS:
                raise ValueError(f"there is no row {row}")
        log = self._log
        log.append(row)
        self._after[kind] = self._base + len(log)
        if len(log) > 2 * self._keep:
            self._read_on()
            del log[: self._keep]
            self._base += self._keep

    def note_rows(self, rows: _Rows, kind: int = OWN) -> None:
        """These rows changed."""
        if len(rows) > self._keep:
            self.note_all(kind)
            return
        for row in rows.tolist():
            self.note(row, kind)

    def note_all(self, kind: int = OWN) -> None:
        """Every row changed."""
        self._read = self._base = self._after[kind] = self.position + 1
        self._log.clear()

    def since(self, position: int, limit: int) -> tuple[_Rows, int] | None:
        """Rows changed since position, each once, and the kinds of all changes ORed; None for more than limit rows."""
        start = position - self._base
        if start < 0:
            return None
        if len(self._log) - start > _FEW:
            self._read_on()
            rows = (self._last > position).nonzero()[0]
        else:
            distinct = dict.fromkeys(self._log[start:])
            rows = np.fromiter(distinct, dtype=np.intp, count=len(distinct))
        return (rows, self.kinds_since(position)) if len(rows) <= limit else None

    def _read_on(self) -> None:
        """Note in `_last` what the log has got since."""
        rows = self._log[self._read - self._base :]
        if not rows:
            return
        if (most := max(rows)) >= len(self._last):
            self._last = np.concatenate([self._last, np.zeros(most + 1, dtype=np.int64)])
        self._last[rows] = np.arange(self._read + 1, self._read + 1 + len(rows))  # of one that is there twice, the last
        self._read += len(rows)

    def kinds_since(self, position: int) -> int:
        """The kinds of all changes since position, ORed."""
        kinds = 0
        for kind, after in self._after.items():
            if after > position:
                kinds |= kind
        return kinds


class Together:
    """Several logs as one; a position is one of each."""

    def __init__(self, logs: Sequence[Changes]) -> None:
        self._logs = tuple(logs)

    @property
    def position(self) -> tuple[int, ...]:
        """Where the logs stand."""
        return tuple([log.position for log in self._logs])

    def since(self, position: tuple[int, ...], limit: int) -> tuple[_Rows, int] | None:
        """As `Changes.since`, of all of them."""
        found: list[_Rows] = []
        kinds = 0
        for log, before in zip(self._logs, position, strict=True):
            if log.position == before:
                continue
            changed = log.since(before, limit)
            if changed is None:
                return None
            found.append(changed[0])
            kinds |= changed[1]
        if len(found) == 1:
            return found[0], kinds
        rows = np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.intp)
        return (rows, kinds) if len(rows) <= limit else None


def together(logs: Sequence[Changes]) -> ChangeLog:
    """Several logs as one; a single one as it is."""
    return logs[0] if len(logs) == 1 else Together(logs)
