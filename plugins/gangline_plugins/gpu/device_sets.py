"""All sets of a given number of devices of a link class, and the worth of taking each set from a mask of free devices.

These values do not depend on a claim's rule, so all rules share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline import BoundedCache, size_of
from gangline_plugins.gpu.links import MOST_DEVICES, NO_ISLAND, LinkClass, Matrix, ids_of

Masks = NDArray[np.uint32]
"""Sets of devices, one bit per device."""
Ranks = NDArray[np.int64]
NEVER = -(2**61)
"""Lower than every sum of ranks, and so is its double."""
_SETS_BYTES = 32 * 1024 * 1024
"""Memory for the sets that are kept, and as much again for the leftovers. For 16 devices, the sets take up to 4 MiB and
the leftovers 1.5 MiB; for 8 devices both are small.
"""
_WHOLE = 256
"""For at most this many masks the worth of every set in every mask is kept."""


class DeviceSets:
    """The sets of `count` devices, those with the lowest ids first; every array has one entry per set.

    No node has more than MOST_DEVICES devices, so all larger counts have no sets and are treated alike.
    """

    def __init__(self, links: LinkClass, count: int) -> None:
        count = min(count, MOST_DEVICES + 1)
        self.ids = np.array(list(combinations(ids_of(links.present), count)), dtype=np.intp).reshape(-1, count)
        self.masks: Masks = (np.uint32(1) << self.ids.astype(np.uint32)).sum(axis=1, dtype=np.uint32)
        pairs = links.gbps[self.ids[:, :, None], self.ids[:, None, :]]
        self.inside: Matrix = pairs.sum(axis=(1, 2)) / 2
        """The sum of the GB/s between any two devices of the set."""
        self.gbps: Matrix = _slowest(pairs)
        """GB/s of the slowest link of the set; 0 for one device."""
        islands = np.array(links.islands)[self.ids]
        alone = islands == NO_ISLAND
        self.together: NDArray[np.bool_] = (islands == islands[:, :1]).all(axis=1) & ~alone[:, 0] | (count < 2)
        """Whether all devices are in one island, or there is only one device."""
        self.apart: NDArray[np.intp] = _different(np.where(alone, MOST_DEVICES + self.ids, islands))
        """The number of different islands; a device in no island counts as an island of its own."""
        self.in_row: NDArray[np.bool_] = self.ids[:, -1] - self.ids[:, 0] == count - 1
        """Whether the ids are consecutive."""
        self.near: Ranks = dense(links.nearness[self.ids[:, :, None], self.ids[:, None, :]].sum(axis=(1, 2)))
        """The rank of the set by nearness of its devices, by PCIe and NUMA."""
        self._left = leftovers(links)
        self._links_step = (int(self.near.max(initial=0)) + 1) * self._left.near_levels
        self._near_steps = self.near * self._left.near_levels
        self.levels = self._left.levels * self._links_step
        """How many different values `worth` may have."""
        size = 1 << links.present.bit_length()
        self._kept = self._worth(np.arange(size, dtype=np.uint32)) if size <= _WHOLE else None

    def worth(self, masks: Masks) -> Ranks:
        """The rank of each set (columns) in each mask (rows): by the links that remain among the devices left over,
        then by nearness in the set, then by nearness of the devices left over; NEVER if the set is not in the mask.
        """
        return self._worth(masks) if self._kept is None else self._kept.take(masks, axis=0)

    def _worth(self, masks: Masks) -> Ranks:
        fits = (self.masks & ~masks[:, None]) == 0
        left = np.where(fits, masks[:, None] ^ self.masks, np.uint32(0))
        worth = self._left.links[left] * self._links_step + self._near_steps + self._left.nearness[left]
        return np.where(fits, worth, NEVER)


@dataclass(frozen=True, slots=True, eq=False)
class Leftovers:
    """The worth of each set of devices when it is left over, indexed by its mask."""

    gbps: Matrix
    """The sum of the GB/s between any two devices."""
    links: Ranks
    """Ranks by `gbps`, so that rounding does not decide."""
    nearness: Ranks
    """Ranks by nearness, then by few runs of consecutive ids."""
    levels: int
    """How many different ranks by GB/s there are."""
    near_levels: int
    """How many different ranks by nearness there are."""


_leftovers: BoundedCache[LinkClass, Leftovers] = BoundedCache(_SETS_BYTES)


def leftovers(links: LinkClass) -> Leftovers:
    """The leftovers of a link class for all masks; cached as `device_sets`."""
    found = _leftovers.get(links)
    return _leftovers.put(links, _work_out(links)) if found is None else found


def _work_out(links: LinkClass) -> Leftovers:
    masks = np.arange(1 << links.present.bit_length(), dtype=np.uint32)
    bits = (masks[:, None] >> np.arange(MOST_DEVICES, dtype=np.uint32) & np.uint32(1)).astype(np.float64)
    gbps = _within(bits, links.gbps)
    by_links = dense(gbps)
    by_nearness = dense(_within(bits, links.nearness), (bits[:, :-1] * bits[:, 1:]).sum(axis=1))
    return Leftovers(gbps, by_links, by_nearness, int(by_links.max()) + 1, int(by_nearness.max()) + 1)


_device_sets: BoundedCache[tuple[LinkClass, int], DeviceSets] = BoundedCache(
    _SETS_BYTES, lambda key, sets: size_of(*vars(sets).values())
)


def device_sets(links: LinkClass, count: int) -> DeviceSets:
    """The sets of `count` devices of a class; the same object as long as it is in use."""
    found = _device_sets.get((links, count))
    return _device_sets.put((links, count), DeviceSets(links, count)) if found is None else found


def dense(*columns: NDArray[Any]) -> Ranks:
    """Ranks from 0 by the first column, then by the next; values that agree to a millionth have the same rank."""
    table = np.round(np.stack([column.astype(np.float64) for column in columns]), 6)
    order = np.lexsort(table[::-1])
    ordered = table[:, order]
    ranks = np.zeros(table.shape[1], dtype=np.int64)
    ranks[order[1:]] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0).cumsum()
    return ranks


def _slowest(pairs: Matrix) -> Matrix:
    """The lowest entry off the diagonal of each matrix; 0 if there is none."""
    count = pairs.shape[1]
    if count < 2:
        return np.zeros(len(pairs))
    beside = pairs[:, ~np.eye(count, dtype=np.bool_)]
    slowest: Matrix = beside.min(axis=1)
    return slowest


def _different(values: NDArray[Any]) -> NDArray[np.intp]:
    """How many different values there are in each row."""
    ordered = np.sort(values, axis=1)
    different: NDArray[np.intp] = (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1) + 1
    return different


def _within(bits: Matrix, matrix: Matrix) -> Matrix:
    """The sum of a matrix over the pairs in each set."""
    sums: Matrix = np.einsum("mi,mi->m", bits @ matrix, bits) / 2
    return sums
