"""How often nodes can deal devices to several requests at once, whose candidates may overlap: by Hall's theorem.

Each request gets its number of devices, no device twice, if and only if every set of requests has together at least as
many candidates as its requests want together. Devices that are candidates for the same requests form a *pattern*, one
bit for each request, so it is enough to count the patterns of each node.

A request can be bound to a constraint: then all devices of all bound requests have one value. Such requests are counted
in *cells*: the devices of one node with one value. With `is_distinct` no two devices of bound requests have the same
value: then each cell, not each device, can be given once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.dra.rows import RowNumbers
from gangline.status import BoolColumn

ENDLESS = 1 << 31
"""The room where nothing is asked for."""
_MOST_DEMANDS = 8
"""Different sets of candidates; more are not counted."""
_MOST_TOGETHER = 5
"""Of these, at most so many that overlap."""

Room = NDArray[np.int64]
Counts = NDArray[np.int64]
"""By node or cell, and by pattern: how many devices there are."""


class DeviceDemand(NamedTuple):
    """Devices of which some requests want a number."""

    devices: BoolColumn
    """The candidates."""
    need: int | Room
    """How many devices are wanted; by node, if all are."""
    is_bound: bool
    """Whether a constraint is about the devices."""
    is_kept: bool = True
    """Whether other pods cannot be given the devices too."""


class Cells(NamedTuple):
    """The devices of each node that have one value."""

    numbers: RowNumbers
    """By device: its cell, or negative."""
    node: RowNumbers
    """By cell: the position of its node."""
    is_distinct: bool


class Dealt(NamedTuple):
    """How often nodes can deal the devices."""

    room: Room
    """By node: at most how often."""
    overlaps: BoolColumn
    """By node: whether some device is a candidate for different demands."""


def deal(demands: Sequence[DeviceDemand], place: RowNumbers, size: int, cells: Cells | None) -> Dealt | None:
    """How often each of `size` nodes can meet all demands; None if there are too many to count.

    `place` has for each device the position of its node. Without a constraint there are no `cells`.
    """
    demands = _merged(demands)
    if len(demands) > _MOST_DEMANDS:
        return None
    overlaps = np.zeros(size, dtype=np.bool_)
    parts = [demands] if len(demands) == 1 else _parts(demands, place, overlaps)
    if any(len(part) > _MOST_TOGETHER for part in parts):
        return None
    room, in_cells = np.full(size, ENDLESS), None
    for part in parts:
        is_bound = cells is not None and any(each.is_bound for each in part)
        if cells is None or cells.is_distinct or not is_bound:
            np.minimum(room, _room(part, place, size, None), out=room)
        if cells is not None and cells.is_distinct:
            room[~_have_values(part, size, cells)] = 0
        elif cells is not None and is_bound:
            found = _room(part, place, size, cells)
            in_cells = found if in_cells is None else np.minimum(in_cells, found)
    if cells is not None and in_cells is not None:
        np.minimum(room, np.bincount(cells.node, weights=in_cells, minlength=size).astype(np.int64), out=room)
    return Dealt(room, overlaps)


def _merged(demands: Sequence[DeviceDemand]) -> list[DeviceDemand]:
    """Demands for the same devices become one."""
    if len(demands) < 2:
        return list(demands)
    found: dict[tuple[bytes, bool, bool], DeviceDemand] = {}
    for each in demands:
        key = each.devices.tobytes(), each.is_bound, each.is_kept
        before = found.get(key)
        found[key] = each if before is None else before._replace(need=before.need + each.need)
    return list(found.values())


def _parts(demands: list[DeviceDemand], place: RowNumbers, overlaps: BoolColumn) -> list[list[DeviceDemand]]:
    """The demands, those that overlap together; notes the nodes with devices in several demands in `overlaps`."""
    pattern = _patterns(demands)
    several = np.flatnonzero(pattern & (pattern - 1))
    overlaps[place[several]] = True
    groups = [1 << number for number in range(len(demands))]
    for met in np.flatnonzero(np.bincount(pattern[several])).tolist():
        touched = [group for group in groups if group & met]
        groups = [group for group in groups if not group & met] + [sum(touched)]
    return [[each for number, each in enumerate(demands) if group >> number & 1] for group in groups]


def _patterns(demands: Sequence[DeviceDemand]) -> NDArray[np.uint8]:
    """By device: the demands that may get it, as bits."""
    pattern = np.zeros(len(demands[0].devices) if demands else 0, dtype=np.uint8)
    for number, each in enumerate(demands):
        pattern |= each.devices.astype(np.uint8) << number
    return pattern


def _counts(pattern: NDArray[np.uint8], where: RowNumbers, size: int, width: int) -> Counts:
    at = np.flatnonzero(pattern)
    at = at[where[at] >= 0]
    return np.bincount(where[at] * width + pattern[at], minlength=size * width).reshape(size, width)


def _room(part: Sequence[DeviceDemand], place: RowNumbers, size: int, cells: Cells | None) -> Room:
    """How often the demands of a part can be met: by node; with `cells` by cell, where bound demands get only devices
    of the cell.
    """
    where, size_of = (place, size) if cells is None else (cells.numbers, len(cells.node))
    needs = [each.need if isinstance(each.need, int) or cells is None else each.need[cells.node] for each in part]
    if len(part) == 1:
        at = np.flatnonzero(part[0].devices)  # faster than to select by the column itself
        room = np.bincount(where[at], minlength=size_of)
        room = room if isinstance(needs[0], int) and needs[0] <= 1 else room // np.maximum(needs[0], 1)
        return room if part[0].is_kept else np.where(room > 0, ENDLESS, 0)
    pattern, width = _patterns(part), 1 << len(part)
    own = _counts(pattern, where, size_of, width)
    loose = 0 if cells is None else sum(1 << number for number, each in enumerate(part) if not each.is_bound)
    on_node = _counts(pattern, place, size, width)[cells.node] if cells is not None and loose else own
    patterns, room = np.arange(width), np.full(size_of, ENDLESS)
    for chosen in range(1, width):
        of_node = patterns & chosen & loose > 0  # an unbound demand may get the device from anywhere on the node
        has = own[:, (patterns & chosen > 0) & ~of_node].sum(axis=1) + on_node[:, of_node].sum(axis=1)
        members = [number for number in range(len(part)) if chosen >> number & 1]
        times = has // np.maximum(sum(needs[number] for number in members), 1)
        is_kept = all(part[number].is_kept for number in members)
        np.minimum(room, times if is_kept else np.where(times > 0, ENDLESS, 0), out=room)
    return room


def _have_values(part: Sequence[DeviceDemand], size: int, cells: Cells) -> BoolColumn:
    """By node: whether each device that a part wants can have a value of its own."""
    pattern, width = np.zeros(len(cells.node), dtype=np.uint8), 1 << len(part)
    for number, each in enumerate(part):
        pattern[cells.numbers[each.devices]] |= 1 << number
    counts = _counts(pattern, cells.node, size, width)
    patterns, fits = np.arange(width), np.ones(size, dtype=np.bool_)
    for chosen in range(1, width):
        wants = sum(each.need for number, each in enumerate(part) if chosen >> number & 1)
        fits &= counts[:, patterns & chosen > 0].sum(axis=1) >= wants
    return fits
