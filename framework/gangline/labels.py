"""Node labels as columns: one array of value numbers per label key, made when a key is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline.status import BoolColumn

MISSING = -1
_INTEGER_LIMIT = 2**63


class LabelColumn:
    """The values of one label on some nodes.

    `ids` holds one number per node (int32), `MISSING` where the label is not set; `values[id]` is the text. A number
    never changes its meaning, so it can be kept; equal numbers mean equal values.
    """

    __slots__ = ("_numbers", "_vocabulary", "ids", "values")

    def __init__(self, ids: NDArray[np.int32], store: _Key) -> None:
        self.ids = ids
        self.values: Sequence[str] = store.values
        self._vocabulary = store.vocabulary
        self._numbers = store.numbers

    @property
    def exists(self) -> BoolColumn:
        """Where the label is set, to whatever value."""
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
        """The values as integers, and where they are one."""
        numbers, valid = self._numbers()
        if not len(numbers):
            return np.zeros(len(self.ids), dtype=np.int64), np.zeros(len(self.ids), dtype=np.bool_)
        return numbers[self.ids], valid[self.ids] & self.exists


class _Key:
    """One label key over all rows."""

    __slots__ = ("_parsed", "ids", "values", "vocabulary")

    def __init__(self, capacity: int) -> None:
        self.ids = np.full(capacity, MISSING, dtype=np.int32)
        self.values: list[str] = []
        self.vocabulary: dict[str, int] = {}
        self._parsed: tuple[NDArray[np.int64], BoolColumn] | None = None

    def set(self, row: int, value: str | None) -> bool:
        """The value of a row is this now; says whether it was another before."""
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
    """The labels of all nodes; grows with the rows of its owner."""

    def __init__(self, capacity: int, labels_of_rows: Callable[[], Iterable[Mapping[str, str]]]) -> None:
        self._capacity = capacity
        self._labels_of_rows = labels_of_rows
        self._keys: dict[str, _Key] = {}
        self.version = 0
        """Grows whenever a value changes that a column holds."""

    def column(self, key: str, rows: slice | NDArray[np.intp]) -> LabelColumn:
        """The values of key on rows."""
        store = self._keys.get(key)
        if store is None:
            store = self._keys[key] = _Key(self._capacity)
            # Once per key that a pod or profile asks for; kept up to date cell by cell afterwards.
            for row, labels in enumerate(self._labels_of_rows()):
                if key in labels:
                    store.set(row, labels[key])
        return LabelColumn(store.ids[rows], store)

    def update(self, row: int, labels: Mapping[str, str]) -> None:
        """The node in row has these labels now."""
        for key, store in self._keys.items():
            if store.set(row, labels.get(key)):
                self.version += 1

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self._capacity = capacity
        for store in self._keys.values():
            ids = np.full(capacity, MISSING, dtype=np.int32)
            ids[: len(store.ids)] = store.ids
            store.ids = ids

    def columns(self) -> dict[str, list[str | None]]:
        """Every column that exists, as texts; for tests and debugging."""
        return {
            key: [None if number == MISSING else store.values[number] for number in store.ids.tolist()]
            for key, store in self._keys.items()
        }


def parse_integer(text: str) -> int | None:
    """A decimal integer as Go's ParseInt reads it, or None."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    number = int(text)
    return number if -_INTEGER_LIMIT <= number < _INTEGER_LIMIT else None
