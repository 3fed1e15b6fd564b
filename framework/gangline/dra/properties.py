"""The attributes, capacities and taints of devices, as columns over the slice table.

A column is made when a question first needs it, and kept. For devices that change, only their rows are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline.dra.reading import TAINTED, is_blocking
from gangline.dra.rows import RowColumn, RowNumbers, kinds
from gangline.dra.table import SliceTable
from gangline.dra.tolerating import tolerates
from gangline.model.resource_claims import DeviceToleration
from gangline.model.resource_slices import Device, DeviceAttribute, DeviceCapacity, DeviceTaint
from gangline.sizes import BoundedCache
from gangline.status import BoolColumn

Codes = NDArray[np.int32]
"""One number for each row of the table; equal numbers mean equal values."""
MISSING = -1
"""The code of an attribute that a device does not have."""
UNKNOWN = -2
"""The code of an attribute whose type is not known; such a value equals no other. Codes of lists are lower still."""
_MOST_BYTES = 64 << 20
"""Bytes of all columns of attributes and capacities, at most: expressions may name any number of them."""

_encode = msgspec.json.Encoder(order="deterministic").encode

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Coded(Generic[K]):
    """A column of numbers for values, and the value of each number."""

    def __init__(self, table: SliceTable, value_of: Callable[[int], K]) -> None:
        self.values: list[K] = []
        """By code: the value."""
        self._numbers: dict[K, int] = {}
        self._value_of = value_of
        self._column: RowColumn[np.int32] = RowColumn(table.rows, np.int32, self._evaluate)

    @property
    def codes(self) -> Codes:
        """By row: the code of the value, as the table is now."""
        return self._column.values

    def _evaluate(self, rows: RowNumbers) -> list[int]:
        found = []
        for row in rows.tolist():
            value = self._value_of(row)
            number = self._numbers.setdefault(value, len(self.values))
            if number == len(self.values):
                self.values.append(value)
            found.append(number)
        return found


class Properties:
    """The columns of a table."""

    def __init__(self, table: SliceTable) -> None:
        self._table = table
        self._named: BoundedCache[tuple[str, str], RowColumn[np.int32]] = BoundedCache(
            _MOST_BYTES, lambda *_: 1024 + 4 * len(table)
        )

    @cached_property
    def drivers(self) -> Coded[str]:
        """Codes of the drivers."""
        return Coded(self._table, lambda row: self._table.ids[row][0])

    @cached_property
    def contents(self) -> Coded[bytes]:
        """Codes of everything that selectors can read of a device; the values are JSON."""
        return Coded(self._table, lambda row: _encode(self.described(row)))

    @cached_property
    def capacities(self) -> Coded[bytes]:
        """Codes of the capacities; equal codes mean equal amounts and policies."""
        return Coded(self._table, lambda row: _encode(self._table.devices[row].capacity))

    @cached_property
    def consumption(self) -> Coded[bytes]:
        """Codes of the counters that devices consume."""
        return Coded(self._table, lambda row: _encode(self._table.devices[row].consumes_counters))

    @cached_property
    def _taints(self) -> Coded[bytes]:
        return Coded(self._table, lambda row: _encode(_blocking(self._table.devices[row])))

    def attribute(self, name: str) -> RowColumn[np.int32]:
        """The codes of the attribute `DOMAIN/NAME`. A device whose driver is DOMAIN may also publish it as `NAME`.

        Later calls may return another column with other codes. A caller that keeps this column keeps its codes.
        """
        return self._named_column("attributes", name, attrgetter("attributes"), _attribute_codes)

    def capacity(self, name: str) -> RowColumn[np.int32]:
        """The codes of a capacity, named as in `attribute`; equal codes mean equal texts of the quantity."""
        return self._named_column("capacity", name, attrgetter("capacity"), _capacity_codes)

    def _named_column(
        self,
        kind: str,
        name: str,
        held: Callable[[Device], Mapping[str, V]],
        code: Callable[[Iterable[V | None], dict[Hashable, int]], list[int]],
    ) -> RowColumn[np.int32]:
        column = self._named.get((kind, name))
        if column is None:
            numbers: dict[Hashable, int] = {}
            column = RowColumn(self._table.rows, np.int32, lambda rows: code(self._values(rows, name, held), numbers))
            self._named.put((kind, name), column)
        return column

    def _values(self, rows: RowNumbers, name: str, held: Callable[[Device], Mapping[str, V]]) -> Iterable[V | None]:
        """By row: the value that the device has under a name, or None."""
        table = self._table
        devices, ids = table.devices, table.ids
        if len(rows) < len(table):
            devices, ids = [devices[row] for row in rows.tolist()], [ids[row] for row in rows.tolist()]
        domain, slash, local = name.partition("/")
        all_held = map(held, devices)
        if not slash:
            return (values.get(name) for values in all_held)
        return (
            values.get(name) or (values.get(local) if driver == domain else None)
            for values, (driver, _, _) in zip(all_held, ids, strict=True)
        )

    def described(self, row: int) -> dict[str, object]:
        """The fields of a device that selectors can read, as plain JSON data in the names of the API."""
        device = self._table.devices[row]
        described: dict[str, object] = {
            "driver": self._table.ids[row][0],
            "attributes": msgspec.to_builtins(device.attributes),
            "capacity": msgspec.to_builtins(device.capacity),
        }
        if device.allow_multiple_allocations is not None:
            described["allowMultipleAllocations"] = device.allow_multiple_allocations
        return described

    def tolerated(self, tolerations: Sequence[DeviceToleration], rows: RowNumbers) -> BoolColumn:
        """For each of some rows: whether the tolerations accept all taints that keep pods away."""
        found = self._table.traits_on(rows) & TAINTED == 0
        tainted = np.flatnonzero(~found)
        if len(tainted):
            codes, first = kinds([self._taints.codes[rows[tainted]]])
            sets = [_blocking(self._table.devices[row]) for row in rows[tainted[first]].tolist()]
            accepted = [all(any(tolerates(each, taint) for each in tolerations) for taint in taints) for taints in sets]
            found[tainted] = np.array(accepted, dtype=np.bool_)[codes]
        return found


def _blocking(device: Device) -> tuple[DeviceTaint, ...]:
    """The taints that keep pods away."""
    return tuple(taint for taint in device.taints if is_blocking(taint.effect))


def _attribute_codes(values: Iterable[DeviceAttribute | None], numbers: dict[Hashable, int]) -> list[int]:
    """The codes of values; `numbers` has the code of each known value, and gets the new ones."""
    codes = []
    for value in values:
        if value is None:
            codes.append(MISSING)
            continue
        typed = value.string or _typed(value)
        if typed is not None:
            codes.append(numbers.setdefault(typed, len(numbers)))
        else:
            items = _listed(value)
            codes.append(UNKNOWN if items is None else UNKNOWN - 1 - numbers.setdefault(items, len(numbers)))
    return codes


def _capacity_codes(values: Iterable[DeviceCapacity | None], numbers: dict[Hashable, int]) -> list[int]:
    return [MISSING if value is None else numbers.setdefault(str(value.value), len(numbers)) for value in values]


def _typed(value: DeviceAttribute) -> Hashable | None:
    """A hashable form of a value: a text itself, another value with its type; None if the type is not known."""
    if value.string is not None:
        return value.string
    if value.int_ is not None:
        return "int", value.int_
    if value.bool_ is not None:
        return "bool", value.bool_
    return ("version", value.version) if value.version is not None else None


def _listed(value: DeviceAttribute) -> Hashable | None:
    """A hashable form of a list: its type and its values; None if the value is no list."""
    for each in (value.ints, value.bools, value.strings, value.versions):
        if each is not None:
            return "list", each is value.versions, *map(type, each[:1]), *each
    return None
