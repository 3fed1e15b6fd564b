"""Pools as nodes see them: which slices count, whether they are complete and valid, and in which order they are tried.

A driver publishes its devices in slices; the slices of one generation of a pool belong together. A node sees the slices
that are meant for it, and all slices with counters. The newest generation that it sees counts.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from gangline.model.resource_slices import Device, ResourceSlice
from gangline.model.selecting import NodeSelector
from gangline.state.node_selection import match_selector
from gangline.state.node_view import NodeView
from gangline.status import BoolColumn


class PoolCondition(enum.Enum):
    """Whether the devices of a pool may be allocated."""

    USABLE = "usable"
    INCOMPLETE = "incomplete"
    """The driver is still publishing its slices."""
    INVALID = "invalid"
    """Its slices contradict each other."""


class Reach(msgspec.Struct, frozen=True):
    """Some nodes: these rows, or all rows but these."""

    rows: frozenset[int]
    is_inverted: bool = False

    def __contains__(self, row: int) -> bool:
        return (row in self.rows) != self.is_inverted

    def without(self, rows: frozenset[int]) -> frozenset[int]:
        """The given rows without the rows of these nodes."""
        return rows & self.rows if self.is_inverted else rows - self.rows

    def mask(self, size: int) -> BoolColumn:
        """The nodes as a column over the first `size` rows."""
        found = np.full(size, self.is_inverted, dtype=np.bool_)
        found[list(self.rows)] = not self.is_inverted
        return found


class Pool(msgspec.Struct, frozen=True):
    """A pool as some nodes see it; slices are given by their numbers."""

    driver: str
    name: str
    reach: Reach
    """The nodes that see the pool so."""
    condition: PoolCondition
    why: str = ""
    """Why the pool is invalid; "" if it is not."""
    generation: int = 0
    slices: tuple[int, ...] = ()
    """Slices with devices for these nodes, in the order in which they are tried."""
    others: tuple[int, ...] = ()
    """Slices with devices for other nodes; these consume the same counters."""
    counters: tuple[int, ...] = ()
    """Slices with counters."""
    has_binding_conditions: bool = False

    @property
    def order(self) -> tuple[bool, str, str]:
        """The sort key by which pools are tried: pools with binding conditions come last."""
        return self.has_binding_conditions, self.driver, self.name


def gather(slices: Mapping[int, ResourceSlice], numbers: list[int], nodes: NodeView) -> list[Pool]:
    """One pool as nodes see it, given by the numbers of its slices: a Pool for each set of nodes that see equal slices.

    `nodes` is a view over all rows. A Pool that is complete, valid and without devices is left out.
    """
    return list(_SlicesOfPool(slices, numbers, nodes).pools())


def devices_reach(each: ResourceSlice, nodes: NodeView) -> list[Reach]:
    """The nodes of each device of a slice whose devices select nodes one by one."""
    return [
        Reach(frozenset(), is_inverted=True)
        if device.all_nodes and not device.node_name
        else Reach(frozenset(np.flatnonzero(_reached(device, nodes)).tolist()))
        for device in each.spec.devices
    ]


def _reached(what: Device, nodes: NodeView) -> BoolColumn:
    return _reach(what.node_name, what.all_nodes, what.node_selector, nodes)


def _reach(name: str | None, everywhere: bool | None, selector: NodeSelector | None, nodes: NodeView) -> BoolColumn:
    """The nodes that nodeName, allNodes or nodeSelector of a slice or device means; an invalid selector means none."""
    if name:
        mask = np.zeros(len(nodes), dtype=np.bool_)
        row = nodes.row_of(name)
        if row is not None:
            mask[row] = True
        return mask
    if everywhere:
        return np.ones(len(nodes), dtype=np.bool_)
    return match_selector(selector, nodes) if selector is not None else np.zeros(len(nodes), dtype=np.bool_)


class _ByReach(NamedTuple):
    """Slices of one pool, given by their numbers."""

    local: dict[int, list[int]]
    """By row of a node: slices for this node alone."""
    wide: list[int]
    """Slices that all nodes see."""
    some: dict[int, BoolColumn]
    """Slices that some nodes see, and which."""
    order: list[int]
    """The slices that are not local, in their order."""


class _SlicesOfPool:
    """All slices of one pool, of any generation."""

    def __init__(self, slices: Mapping[int, ResourceSlice], numbers: list[int], nodes: NodeView) -> None:
        self._slices = slices
        self._numbers = numbers
        self._nodes = nodes

    def pools(self) -> Iterator[Pool]:
        """The pool once for each set of nodes that see the same slices."""
        local, wide, some, order = self._by_reach()
        if not some:
            for row, own in local.items():
                yield from self._seen([*own, *order], Reach(frozenset((row,))))
            if wide:
                yield from self._seen(order, Reach(frozenset(local), is_inverted=True))
            return
        numbers = [number for number in order if number in some]
        kinds, kind_of = np.unique(np.stack([some[number] for number in numbers]), axis=1, return_inverse=True)
        rest = {kind: set(np.flatnonzero(kind_of.ravel() == kind).tolist()) for kind in range(kinds.shape[1])}
        everywhere = set(wide)
        for kind, rows in rest.items():
            shown = everywhere | {number for number, seen in zip(numbers, kinds[:, kind], strict=True) if seen}
            shared = [number for number in order if number in shown]
            for row in sorted(rows & local.keys()):
                yield from self._seen([*local[row], *shared], Reach(frozenset((row,))))
            if shared and rows - local.keys():
                yield from self._seen(shared, Reach(frozenset(rows - local.keys())))

    def _by_reach(self) -> _ByReach:
        """The slices by who sees them; those that nobody sees are left out."""
        found = _ByReach({}, [], {}, [])
        for number in self._numbers:
            spec = self._slices[number].spec
            if spec.shared_counters:
                found.wide.append(number)
            elif spec.node_name:
                row = self._nodes.row_of(spec.node_name)
                if row is not None:
                    found.local.setdefault(row, []).append(number)
                continue
            elif spec.all_nodes:
                found.wide.append(number)
            elif spec.node_selector is not None:
                found.some[number] = _reach(None, None, spec.node_selector, self._nodes)
            elif spec.per_device_node_selection:
                reached = [_reached(device, self._nodes) for device in spec.devices]
                nobody = np.zeros(len(self._nodes), dtype=np.bool_)
                found.some[number] = np.logical_or.reduce(reached) if reached else nobody
            else:
                continue
            found.order.append(number)
        return found

    def _seen(self, numbers: list[int], reach: Reach) -> Iterator[Pool]:
        """The Pool of the nodes that see these slices; none if they see only an old generation."""
        slices = self._slices
        generation = max(slices[number].spec.pool.generation for number in numbers)
        seen = [number for number in numbers if slices[number].spec.pool.generation == generation]
        first = slices[seen[0]].spec
        driver, name, wanted = first.driver, first.pool.name, first.pool.resource_slice_count
        unseen: list[int] = []
        if len(seen) != wanted:
            generations = [slices[number].spec.pool.generation for number in self._numbers]
            if max(generations) > generation:
                return
            of_generation = [n for n, each in zip(self._numbers, generations, strict=True) if each == generation]
            if len(of_generation) != wanted:
                yield Pool(driver, name, reach, PoolCondition.INCOMPLETE)
                return
            names = {slices[number].metadata.name for number in seen}
            if len(seen) != len(of_generation):
                unseen = [number for number in of_generation if slices[number].metadata.name not in names]
        seen.sort(key=lambda number: slices[number].metadata.name)
        with_counters = tuple(number for number in seen if slices[number].spec.shared_counters)
        with_devices = tuple(number for number in seen if not slices[number].spec.shared_counters)
        why = self._contradiction(with_devices, with_counters, [*seen, *unseen])
        if why:
            yield Pool(driver, name, reach, PoolCondition.INVALID, why)
            return
        devices = [device for number in with_devices for device in slices[number].spec.devices]
        if devices:
            late = any(device.binding_conditions is not None for device in devices)
            found = with_devices, tuple(unseen), with_counters
            yield Pool(driver, name, reach, PoolCondition.USABLE, "", generation, *found, late)

    def _contradiction(self, with_devices: Sequence[int], with_counters: Sequence[int], known: Sequence[int]) -> str:
        """Why the pool is invalid, or ""."""
        names: set[str] = set()
        for number in with_devices:
            for device in self._slices[number].spec.devices:
                if device.name in names:
                    return f"duplicate device name {device.name}"
                names.add(device.name)
        counters: dict[str, set[str]] = {}
        for number in with_counters:
            for counter_set in self._slices[number].spec.shared_counters:
                if counter_set.name in counters:
                    return f"duplicate counter set name {counter_set.name}"
                counters[counter_set.name] = set(counter_set.counters)
        for number in known:
            for device in self._slices[number].spec.devices:
                for consumption in device.consumes_counters:
                    known_counters = counters.get(consumption.counter_set)
                    if known_counters is None:
                        return f"counter set {consumption.counter_set} not found"
                    for name in consumption.counters:
                        if name not in known_counters:
                            return f"counter {name} not found in counter set {consumption.counter_set}"
        return ""
