"""The device table: a row for each device that some node may use, and columns made of what the devices say."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline.bounds import check_count
from gangline.dra import capacities
from gangline.dra.pools import Condition, Pool, devices_reach, gather
from gangline.dra.usage import DeviceId
from gangline.errors import InvalidObject
from gangline.model.resource_claims import DeviceToleration
from gangline.model.resource_slices import Device, DeviceAttribute, DeviceTaint, ResourceSlice
from gangline.quantity import milli
from gangline.state.node_view import NodeView
from gangline.status import BoolColumn

V = TypeVar("V")
Codes = NDArray[np.int32]
"""One number for each row of the table; equal numbers mean equal values."""
Rows = NDArray[np.int64]
MISSING = -1
"""The code of an attribute that a device does not have."""
UNKNOWN = -2
"""The code of an attribute whose type is not known; it equals no other."""
_MOST_DEVICES = 128
"""Devices of one slice; the API takes no more."""
_MOST_COUNTER_SETS = 8
_BLOCKING = frozenset(("NoSchedule", "NoExecute"))


@dataclass(slots=True)
class Column:
    """Codes, and a row for each."""

    codes: Codes
    first: list[int]
    """The first row of each code."""


class DeviceTable:
    """The devices of all pools that some node may use. Rows are in the order of drivers, pools, slices and devices.

    Columns are made when they are first asked for. The table never changes: another set of slices makes another table.
    """

    def __init__(self, slices: Sequence[ResourceSlice], nodes: NodeView) -> None:
        """`nodes` is a view over all rows. A slice with a quantity that cannot be read is left out: see `refused`."""
        self.refused: dict[str, InvalidObject] = {}
        """By the name of a slice: why it is left out; its pool is incomplete."""
        self.slices = [each for each in slices if self._is_readable(each)]
        self.pools = gather(self.slices, nodes)
        """The pools, in the order of drivers and names."""
        usable = [pool for pool in self.pools if pool.condition is Condition.USABLE]
        numbers = dict.fromkeys(number for pool in usable for number in (*pool.slices, *pool.others))
        self.devices: list[Device] = []
        """By row."""
        self.slice_of: list[int] = []
        """By row: the number of its slice."""
        self._first: dict[int, int] = {}
        for number in numbers:
            self._first[number] = len(self.devices)
            self.devices += self.slices[number].spec.devices
            self.slice_of += [number] * len(self.slices[number].spec.devices)
        self.node = np.full(len(self.devices), -1, dtype=np.int64)
        """By row: the row of the only node that may use the device; -1 for several nodes, or none."""
        self._own: dict[int, list[Pool]] = {}
        self._wide: list[Pool] = []
        self._place(usable, nodes)
        self.index: dict[DeviceId, list[int]] = {}
        """By driver, pool and name: the rows."""
        for row in range(len(self.devices)):
            self.index.setdefault(self.identity(row), []).append(row)
        self.reached = {
            number: devices_reach(self.slices[number], nodes)
            for number in numbers
            if self.slices[number].spec.per_device_node_selection
        }
        """By slice whose devices select nodes one by one: the nodes of each of its devices."""
        self._read: dict[tuple[str, str], Codes] = {}

    def __len__(self) -> int:
        return len(self.devices)

    def _is_readable(self, each: ResourceSlice) -> bool:
        try:
            check_count("spec.devices", each.spec.devices, _MOST_DEVICES)
            check_count("spec.sharedCounters", each.spec.shared_counters, _MOST_COUNTER_SETS)
            for device in each.spec.devices:
                for capacity in device.capacity.values():
                    capacities.check(capacity)
                for consumption in device.consumes_counters:
                    for counter in consumption.counters.values():
                        milli(counter.value)
            for counters in each.spec.shared_counters:
                for counter in counters.counters.values():
                    milli(counter.value)
        except InvalidObject as error:
            self.refused[each.metadata.name] = error
            return False
        return True

    def _place(self, usable: list[Pool], nodes: NodeView) -> None:
        for pool in self.pools:
            if pool.reach.is_inverted or len(pool.reach.rows) > 1:
                self._wide.append(pool)
            else:
                for row in pool.reach.rows:
                    self._own.setdefault(row, []).append(pool)
        for pool in usable:
            for number in pool.slices:
                spec = self.slices[number].spec
                node = nodes.row_of(spec.node_name) if spec.node_name else None
                if node is not None:
                    start = self._first[number]
                    self.node[start : start + len(spec.devices)] = node

    def identity(self, row: int) -> DeviceId:
        """Driver, pool and name of a device."""
        spec = self.slices[self.slice_of[row]].spec
        return spec.driver, spec.pool.name, self.devices[row].name

    def pools_of(self, node: int) -> list[Pool]:
        """The pools that a node sees, in the order in which they are tried."""
        own = self._own.get(node, [])
        wide = [pool for pool in self._wide if node in pool.reach]
        return sorted([*own, *wide], key=lambda pool: pool.order)

    @cached_property
    def wide_pools(self) -> list[Pool]:
        """Usable pools with devices that several nodes may use."""
        found = (*self._wide, *(pool for pools in self._own.values() for pool in pools))
        usable = (pool for pool in found if pool.condition is Condition.USABLE)
        return [pool for pool in usable if any(self.node[row] < 0 for row in self.rows_of(pool))]

    def rows_of(self, pool: Pool) -> list[int]:
        """The rows of the devices that a pool offers, in the order in which they are tried."""
        return [row for number in pool.slices for row in self.rows_of_slice(number)]

    def rows_of_slice(self, number: int) -> range:
        """The rows of a slice."""
        first = self._first[number]
        return range(first, first + len(self.slices[number].spec.devices))

    def consumption(self, row: int) -> dict[tuple[str, str], int]:
        """By counter set and counter: the thousandths that a device consumes."""
        consumed: dict[tuple[str, str], int] = {}
        for each in self.devices[row].consumes_counters:
            for name, counter in each.counters.items():
                key = each.counter_set, name
                consumed[key] = consumed.get(key, 0) + milli(counter.value)
        return consumed

    def coded(self, value_of: Callable[[int], Hashable]) -> Column:
        """A column of what `value_of` answers for each row."""
        numbers: dict[Hashable, int] = {}
        codes = np.fromiter(
            (numbers.setdefault(value_of(row), len(numbers)) for row in range(len(self))), np.int32, len(self)
        )
        return Column(codes, np.unique(codes, return_index=True)[1].tolist())

    def attribute(self, name: str) -> Codes:
        """The codes of an attribute: of its full name, or of its name without the domain if that is the driver."""
        found = self._read.get(("attributes", name))
        if found is None:
            numbers: dict[Hashable, int] = {}
            found = self._read["attributes", name] = self._qualified(
                name,
                lambda device: device.attributes,
                lambda value: UNKNOWN if (typed := _typed(value)) is None else numbers.setdefault(typed, len(numbers)),
            )
        return found

    def capacity(self, name: str) -> Codes:
        """The codes of a capacity, which is named as attributes are; equal codes mean equal texts."""
        found = self._read.get(("capacity", name))
        if found is None:
            numbers: dict[Hashable, int] = {}
            found = self._read["capacity", name] = self._qualified(
                name, lambda device: device.capacity, lambda value: numbers.setdefault(str(value.value), len(numbers))
            )
        return found

    def _qualified(self, name: str, held: Callable[[Device], Mapping[str, V]], code: Callable[[V], int]) -> Codes:
        codes = np.full(len(self), MISSING, dtype=np.int32)
        domain, slash, local = name.partition("/")
        of_domain = self.has_driver(domain) if slash else np.zeros(len(self), dtype=np.bool_)
        for row, (device, is_local) in enumerate(zip(self.devices, of_domain.tolist(), strict=True)):
            values = held(device)
            value = values.get(name)
            if value is None and is_local:
                value = values.get(local)
            if value is not None:
                codes[row] = code(value)
        return codes

    def has_driver(self, driver: str) -> BoolColumn:
        """By row: whether the device is one of this driver."""
        has = np.array([each.spec.driver == driver for each in self.slices], dtype=np.bool_)
        return has[self._slices] if len(has) else np.zeros(0, dtype=np.bool_)

    @cached_property
    def drivers(self) -> Codes:
        """The codes of the drivers."""
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(each.spec.driver, len(numbers)) for each in self.slices], dtype=np.int32)
        return codes[self._slices] if len(codes) else np.zeros(0, dtype=np.int32)

    @cached_property
    def _slices(self) -> NDArray[np.int64]:
        return np.array(self.slice_of, dtype=np.int64)

    @cached_property
    def contents(self) -> Column:
        """What selectors can read of each device, as JSON."""
        return self.coded(lambda row: msgspec.json.encode(self.described(row), order="deterministic"))

    def described(self, row: int) -> dict[str, object]:
        """What selectors can read of a device, as the API writes it."""
        device = self.devices[row]
        described: dict[str, object] = {
            "driver": self.slices[self.slice_of[row]].spec.driver,
            "attributes": msgspec.to_builtins(device.attributes),
            "capacity": msgspec.to_builtins(device.capacity),
        }
        if device.allow_multiple_allocations is not None:
            described["allowMultipleAllocations"] = device.allow_multiple_allocations
        return described

    @cached_property
    def has_taints(self) -> bool:
        """Whether some device has a taint that keeps pods away."""
        return len(self._taints[1]) > 1 or any(self._taints[1])

    @cached_property
    def _taints(self) -> tuple[Codes, list[tuple[DeviceTaint, ...]]]:
        """By row the number of a set of taints that keep pods away, and the sets."""
        column = self.coded(lambda row: msgspec.json.encode(_blocking(self.devices[row])))
        return column.codes, [_blocking(self.devices[row]) for row in column.first]

    def tolerated(self, tolerations: Sequence[DeviceToleration]) -> BoolColumn:
        """By row: whether the tolerations accept all taints that keep pods away."""
        codes, sets = self._taints
        accepted = [all(any(_tolerates(each, taint) for each in tolerations) for taint in taints) for taints in sets]
        return np.array(accepted, dtype=np.bool_)[codes] if accepted else np.zeros(0, dtype=np.bool_)

    @cached_property
    def capacities(self) -> Column:
        """Codes of the capacities; equal codes mean equal amounts and policies."""
        return self.coded(lambda row: msgspec.json.encode(self.devices[row].capacity, order="deterministic"))

    @cached_property
    def shareable(self) -> BoolColumn:
        """By row: whether several allocations may have the device at once."""
        return np.fromiter((bool(each.allow_multiple_allocations) for each in self.devices), np.bool_, len(self))

    @cached_property
    def consumes(self) -> BoolColumn:
        """By row: whether the device consumes counters."""
        return np.fromiter((bool(each.consumes_counters) for each in self.devices), np.bool_, len(self))


def _blocking(device: Device) -> tuple[DeviceTaint, ...]:
    """The taints that keep pods away."""
    return tuple(taint for taint in device.taints if taint.effect in _BLOCKING)


def _typed(value: DeviceAttribute) -> tuple[str, object] | None:
    """A value with its type; None for a type that is not known."""
    if value.string is not None:
        return "string", value.string
    if value.int_ is not None:
        return "int", value.int_
    if value.bool_ is not None:
        return "bool", value.bool_
    return ("version", value.version) if value.version is not None else None


def _tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"
