"""Node labels as columns: one array of value numbers per label key, made when the key is first used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.status import BoolColumn, read_only

MISSING = -1
_INTEGER_LIMIT = 2**63
_NO_LABELS: Mapping[str, str] = {}
_MOST_HISTORY = 1024
"""Values that a column may keep although no node has them any more."""
_MOST_DIGITS = 256
"""Digits that a value may have to be read as a number, leading zeros included; a 64-bit number has at most 19."""


class LabelColumn:
    """The values of one label on some nodes.

    `ids` holds one number per node (int32), `MISSING` where the label is not set; `values[id]` is the text. Equal
    numbers mean equal values. A number is valid in this column only: store texts, and fetch the column again.
    """

    __slots__ = ("_numbers", "_vocabulary", "ids", "values")

    def __init__(self, ids: NDArray[np.int32], store: _LabelKey) -> None:
        self.ids = ids
        """One number per node, int32; `MISSING` (-1) where the label is not set. Equal numbers mean equal values."""
        self.values: Sequence[str] = store.values
        """The text of each number."""
        self._vocabulary = store.vocabulary
        self._numbers = store.numbers

    @property
    def exists(self) -> BoolColumn:
        """Where the label is set, to any value."""
        return self.ids != MISSING

    def equals(self, value: str) -> BoolColumn:
        """Where the label has this value."""
        return self.ids == self._vocabulary.get(value, -2)

    def isin(self, values: Iterable[str]) -> BoolColumn:
        """Where the label has one of these values."""
        wanted = [self._vocabulary[value] for value in values if value in self._vocabulary]
        if len(wanted) == 1:
            return self.ids == wanted[0]
        if not wanted:
            return np.zeros(len(self.ids), dtype=np.bool_)
        return np.isin(self.ids, wanted)

    def integers(self) -> tuple[NDArray[np.int64], BoolColumn]:
        """The values as integers, and where the value is an integer."""
        numbers, valid = self._numbers()
        if not len(numbers):
            return np.zeros(len(self.ids), dtype=np.int64), np.zeros(len(self.ids), dtype=np.bool_)
        return numbers[self.ids], valid[self.ids] & self.exists


class _LabelKey:
    """One label key over all rows."""

    __slots__ = ("_parsed", "ids", "shown", "values", "vocabulary")

    def __init__(self, capacity: int) -> None:
        self.ids = np.full(capacity, MISSING, dtype=np.int32)
        self.shown = read_only(self.ids)
        self.values: list[str] = []
        self.vocabulary: dict[str, int] = {}
        self._parsed: tuple[NDArray[np.int64], BoolColumn] | None = None

    def set(self, row: int, value: str | None) -> bool:
        """Set the value of a row; returns whether it has changed."""
        number = MISSING if value is None else self._number(value)
        changed = bool(self.ids[row] != number)
        self.ids[row] = number
        return changed

    def _number(self, value: str) -> int:
        number = self.vocabulary.get(value)
        if number is None:
            number = self.vocabulary[value] = len(self.values)
            self.values.append(value)
            self._parsed = None
        return number

    def numbers(self) -> tuple[NDArray[np.int64], BoolColumn]:
        if self._parsed is None:
            parsed = [parse_integer(value) for value in self.values]
            self._parsed = (
                np.array([number or 0 for number in parsed], dtype=np.int64),
                np.array([number is not None for number in parsed], dtype=np.bool_),
            )
        return self._parsed


class Labels:
    """The labels of all nodes; grows with the rows of its owner.

    A key has a column while some node has the label and the column has been used. A key that no node has costs nothing,
    however many selectors name it.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._of: list[Mapping[str, str]] = []
        """The labels of each row."""
        self._count: Counter[str] = Counter()
        """How many nodes have each key."""
        self._keys: dict[str, _LabelKey] = {}
        self._absent = _LabelKey(capacity)
        self.version = 0
        """Grows when the content of a column may have changed, the numbers of its values included."""

    def column(self, key: str, rows: slice | NDArray[np.intp]) -> LabelColumn:
        """The values of key on rows."""
        store = self._keys.get(key)
        if store is None:
            store = self._made(key) if key in self._count else self._absent
        return LabelColumn(store.shown[rows], store)

    def update(self, row: int, labels: Mapping[str, str]) -> None:
        """The node in the row has these labels now."""
        while len(self._of) <= row:
            self._of.append(_NO_LABELS)
        before, self._of[row] = self._of[row], labels
        if before == labels:
            return
        for key in before.keys() - labels.keys() if before else ():
            self._count[key] -= 1
            if key in self._keys:
                self._keys[key].set(row, None)
                self.version += 1
            if not self._count[key]:
                del self._count[key]
                self._keys.pop(key, None)
                self.version += 1
        for key, value in labels.items():
            if key not in before:
                self._count[key] += 1
                if self._count[key] == 1:
                    self.version += 1  # readers of the key were told that no node has the label
            if key in self._keys and self._keys[key].set(row, value):
                self.version += 1
                self._tidy(key)

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self._capacity = capacity
        for store in (*self._keys.values(), self._absent):
            ids = np.full(capacity, MISSING, dtype=np.int32)
            ids[: len(store.ids)] = store.ids
            store.ids, store.shown = ids, read_only(ids)

    def columns(self) -> dict[str, list[str | None]]:
        """Every column that exists, as texts; for tests and debugging."""
        return {
            key: [None if number == MISSING else store.values[number] for number in store.ids.tolist()]
            for key, store in self._keys.items()
        }

    def _made(self, key: str) -> _LabelKey:
        """Make the column of a key from the labels of all nodes; `update` then changes single cells of the column."""
        store = self._keys[key] = _LabelKey(self._capacity)
        for row, labels in enumerate(self._of):
            if key in labels:
                store.set(row, labels[key])
        return store

    def _tidy(self, key: str) -> None:
        """Renumber the values of a key when no node has most of the known values any more."""
        if len(self._keys[key].values) > 2 * self._count[key] + _MOST_HISTORY:
            self._made(key)
            self.version += 1


def parse_integer(text: str) -> int | None:
    """A decimal integer as Go's ParseInt reads it, or None."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        return None
    number = int(text)
    return number if -_INTEGER_LIMIT <= number < _INTEGER_LIMIT else None
