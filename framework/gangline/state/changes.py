"""A log of the changed rows and the kinds of their changes. Readers use it to evaluate only the changed rows again."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

NODE = 1
"""A change of the node itself: labels, taints, allocatable, conditions."""
PODS = 2
"""A change of the pods on the node."""
OWN = 4
"""A change in a plugin's own column."""
SPECS = 8
"""Only for `reads` of a plugin, in place of PODS: of the pods on the node the plugin reads namespaces and specs, as in
the columns of requests. No labels, annotations or owners: these may change while the pod stays where it is.
"""
_KINDS = NODE | PODS | OWN


_Rows = NDArray[np.intp]
_FEW = 64
"""Entries of the log that are read one by one, at most."""


class ChangeLog(Protocol):
    """A log to read: one log, or several logs read as one."""

    @property
    def position(self) -> Any:
        """The end of the log now; each change moves it."""
        ...

    def since(self, position: Any, limit: int) -> tuple[_Rows, int] | None:
        """The rows changed since `position`, each once, in any order, and the kinds of all changes ORed.

        None for more than `limit` rows, and if the log does not reach back to `position`.
        """
        ...

    def only_row(self, position: Any) -> int:
        """The row of the only change since `position`, if that is a change of the pods on the row; else -1."""
        ...


MOST_ROWS = 1_000_000
"""Rows that a plugin may note changes of; no cluster has as many nodes."""


class Changes:
    """The rows that changed, in order; positions only grow.

    A plugin that keeps its own columns has its own log of their changes, and names the log in `reads_own`.
    """

    def __init__(self, keep: int = 16384) -> None:
        self._keep = keep
        self._log: list[int] = []
        self._base = 0
        self.position = 0
        """The position of the next change; to read only."""
        self._after: dict[int, int] = {}
        """The position after the last change of each kind."""
        self._last = np.zeros(64, dtype=np.int64)
        """The position after the last change of each row, up to position `_read`."""
        self._read = 0

    def note(self, row: int, kind: int = OWN) -> None:
        """This row changed. Raises TypeError or ValueError and notes nothing for an invalid row, like the -1 of a pod
        without a node, and for an invalid kind.
        """
        self.note_valid(valid_row(row), valid_kind(kind))

    def note_valid(self, row: int, kind: int) -> None:
        """As `note`, for the owner of the rows: row and kind are valid."""
        log = self._log
        log.append(row)
        self.position = self._after[kind] = self.position + 1
        if len(log) > 2 * self._keep:
            self._forget_some()

    def _forget_some(self) -> None:
        self._read_on()
        del self._log[: self._keep]
        self._base += self._keep

    def note_rows(self, rows: Sequence[int] | _Rows, kind: int = OWN) -> None:
        """These rows changed. Raises as `note` does, and then notes none of them."""
        self.note_all_valid(valid_rows(rows), valid_kind(kind))

    def note_all_valid(self, rows: Sequence[int], kind: int) -> None:
        """As `note_rows`, for the owner of the rows: rows and kind are valid."""
        if len(rows) > self._keep:
            self.note_all(kind)
        elif len(rows):
            self._log += rows
            self.position = self._after[kind] = self.position + len(rows)
            if len(self._log) > 2 * self._keep:
                self._forget_some()

    def note_all(self, kind: int = OWN) -> None:
        """Every row changed. Raises TypeError or ValueError for an invalid kind."""
        self._read = self._base = self._after[valid_kind(kind)] = self.position = self.position + 1
        self._log.clear()

    def since(self, position: int, limit: int) -> tuple[_Rows, int] | None:
        """See `ChangeLog.since`."""
        start = position - self._base
        if start < 0:
            return None
        if len(self._log) - start > _FEW:
            self._read_on()
            rows = (self._last > position).nonzero()[0]
        else:
            rows = np.fromiter({*self._log[start:]}, np.intp)
        return (rows, self.kinds_since(position)) if len(rows) <= limit else None

    def only_row(self, position: int) -> int:
        """See `ChangeLog.only_row`: for the most frequent case, in a fifth of the time that `since` takes."""
        is_single = self.position - position == 1 and self._after.get(PODS) == self.position and self._log
        return self._log[-1] if is_single else -1

    def _read_on(self) -> None:
        """Enter into `_last` the changes that the log has got since the last call."""
        rows = self._log[self._read - self._base :]
        if not rows:
            return
        if (most := max(rows)) >= len(self._last):
            self._last = np.concatenate([self._last, np.zeros(most + 1, dtype=np.int64)])
        self._last[rows] = np.arange(self._read + 1, self._read + 1 + len(rows))  # the last change of a row counts
        self._read += len(rows)

    def last(self, kind: int) -> int:
        """The position after the last change of this kind, alone or among others; 0 if there was none."""
        return max([after for kinds, after in self._after.items() if kinds & kind], default=0)

    def kinds_since(self, position: int) -> int:
        """The kinds of all changes since position, ORed."""
        kinds = 0
        for kind, after in self._after.items():
            if after > position:
                kinds |= kind
        return kinds


def note_in_both(one: Changes, other: Changes, row: int, kind: int) -> None:
    """As `note_valid` in two logs, in two thirds of the time: each step of each trial does this."""
    log, others = one._log, other._log
    log.append(row)
    one.position = one._after[kind] = one.position + 1
    others.append(row)
    other.position = other._after[kind] = other.position + 1
    if len(log) > 2 * one._keep:
        one._forget_some()
    if len(others) > 2 * other._keep:
        other._forget_some()


def valid_row(row: int) -> int:
    """The row as a number. Raises TypeError or ValueError if it is invalid."""
    row = operator.index(row)
    if not 0 <= row < MOST_ROWS:
        raise ValueError(f"there is no row {row}")
    return row


def valid_rows(rows: Sequence[int] | _Rows) -> list[int]:
    """These rows as numbers. Raises TypeError or ValueError for an invalid one."""
    valid = list(map(operator.index, rows.tolist() if isinstance(rows, np.ndarray) else rows))
    if valid and not 0 <= min(valid) <= max(valid) < MOST_ROWS:
        raise ValueError(f"there is no row {min(valid) if min(valid) < 0 else max(valid)}")
    return valid


def valid_kind(kind: int) -> int:
    """The kind, or several ORed. Raises TypeError and ValueError: kinds of all changes are ORed by readers."""
    if not 0 < kind <= _KINDS:
        raise ValueError(f"there is no kind {kind} of changes")
    return operator.index(kind)


class Together:
    """Several logs read as one; its position is a tuple with one position of each log."""

    def __init__(self, logs: Sequence[Changes]) -> None:
        self.logs = tuple(logs)

    @property
    def position(self) -> tuple[int, ...]:
        """The positions of the logs."""
        return tuple([log.position for log in self.logs])

    def since(self, position: tuple[int, ...], limit: int) -> tuple[_Rows, int] | None:
        """As `Changes.since`, over all logs."""
        found: list[_Rows] = []
        kinds = 0
        for log, before in zip(self.logs, position, strict=True):
            if log.position == before:
                continue
            changed = log.since(before, limit)
            if changed is None:
                return None
            found.append(changed[0])
            kinds |= changed[1]
        if len(found) == 1:
            return found[0], kinds
        number = sum(map(len, found))
        if number <= _FEW:  # in a third of the time of np.unique
            rows = np.array(sorted({row for each in found for row in each.tolist()}), dtype=np.intp)
        else:
            rows = np.unique(np.concatenate(found))
        return (rows, kinds) if len(rows) <= limit else None

    def only_row(self, position: tuple[int, ...]) -> int:
        """As `Changes.only_row`, over all logs."""
        row = -1
        for log, before in zip(self.logs, position, strict=True):
            if log.position == before:
                continue
            if row >= 0 or (row := log.only_row(before)) < 0:
                return -1
        return row


def together(logs: Sequence[Changes]) -> ChangeLog:
    """Several logs read as one; a log that is named several times is read once. A single log is returned itself."""
    logs = list(dict.fromkeys(logs))
    return logs[0] if len(logs) == 1 else Together(logs)


def positions_in(log: ChangeLog, positions: Mapping[Changes, int]) -> Any:
    """A position in a log, or in several that are read as one, from the positions in each."""
    return tuple([positions[each] for each in log.logs]) if isinstance(log, Together) else positions[cast(Changes, log)]


def positions_of(log: ChangeLog, position: Any) -> dict[Changes, int]:
    """The position in each log; the inverse of `positions_in`."""
    if isinstance(log, Together):
        return dict(zip(log.logs, position, strict=True))
    return {cast(Changes, log): position}
