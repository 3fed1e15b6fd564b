"""Which of the free devices of a node a claim gets: for each link class a table from the mask of what is free.

Rules:
- The choice follows from link class, count, rule and mask alone, so it is the same wherever and whenever it is made.
- What counts, in order: the policy and the links among the devices; what stays linked among those left over, so that no
  pair or island is split without need; nearness by PCIe and NUMA; the same of what is left; the lowest ids.
- A mask is worked out when it is first met; from then on it is one look-up, for all nodes at once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gangline_plugins.gpu.links import MOST_DEVICES, NO_ISLAND, LinkClass, LinkClasses, Matrix, ids_of

Masks = NDArray[np.uint32]
"""One set of devices per node, as bits."""
Ranks = NDArray[np.int64]
Policy = Literal["contiguous", "spread", "preferIds"]
Mode = Literal["Required", "Preferred", "Ignore"]
_TABLES = 256
"""Tables that are kept; one for 16 devices takes 0.8 MiB, one for 8 takes 3 KiB."""
_JOINT_TABLES = 64
_CELLS = 1 << 18
"""Masks times sets that are worked out in one go."""
_UNKNOWN = np.uint32(1 << 31)


@dataclass(frozen=True, slots=True)
class Rule:
    """How to choose."""

    policy: Policy = "contiguous"
    prefer_ids: tuple[int, ...] = ()
    """With preferIds: taken first, in this order."""
    mode: Mode = "Preferred"
    min_gbps: float = 0.0
    """GB/s between any two devices; must hold with Required, is tried with Preferred."""


class Choices:
    """The table of one link class for one count and rule."""

    def __init__(self, links: LinkClass, count: int, rule: Rule) -> None:
        size = 1 << links.present.bit_length()
        self._links = links
        self._subsets = _subsets(links.present, count)
        self._gbps = _lowest(self._subsets, links.gbps)
        self._quality = _quality(self._subsets, self._gbps, links, rule)
        allowed = self._quality >= 0
        self._subsets, self._gbps = self._subsets[allowed], self._gbps[allowed]
        self._quality = self._quality[allowed]
        self._nearness = _dense(_within(self._subsets, links.nearness))
        self._levels = int(self._nearness.max(initial=0)) + 1
        self._left = _leftovers(links)
        self._total = max(float(links.gbps.sum()) / 2, 1e-9)
        self._sets = np.full(size, _UNKNOWN, dtype=np.uint32)
        self._sets_gbps = np.zeros(size, dtype=np.float32)
        self._sets_kept = np.zeros(size, dtype=np.float32)

    def choose(self, mask: int) -> int:
        """The best set within a mask of free devices, as a mask; 0 when there is none."""
        mask &= self._links.present
        if self._sets[mask] == _UNKNOWN:
            self._work_out(np.array([mask], dtype=np.uint32))
        return int(self._sets[mask])

    def look_up(self, masks: Masks) -> tuple[Masks, NDArray[np.float32], NDArray[np.float32]]:
        """For each mask of free devices, one per node: the best set, its GB/s, and how whole it leaves the rest.

        A set is 0 where there is none. GB/s are those of the slowest link in the set, 0 for one device. The last is 1
        where no link to a free device is cut, and less the more bandwidth is cut; always within 0..1.
        """
        masks = masks & np.uint32(self._links.present)
        sets = self._sets[masks]
        new = sets == _UNKNOWN
        if new.any():
            self._work_out(np.unique(masks[new]))
            sets = self._sets[masks]
        return sets, self._sets_gbps[masks], self._sets_kept[masks]

    def _work_out(self, masks: Masks) -> None:
        """Fill the table at these masks."""
        at_once = max(1, _CELLS // max(1, len(self._subsets)))
        for start in range(0, len(masks), at_once):
            self._fill(masks[start : start + at_once])

    def _fill(self, masks: Masks) -> None:
        self._sets[masks] = 0
        if not len(self._subsets):
            return
        fits = (self._subsets & ~masks[:, None]) == 0  # one row per mask, one column per set
        left = np.where(fits, masks[:, None] ^ self._subsets, np.uint32(0))
        worth = self._quality * self._left.levels + self._left.links[left]
        worth = (worth * self._levels + self._nearness) * self._left.near_levels + self._left.nearness[left]
        best = np.where(fits, worth, -1).argmax(axis=1)  # the first of several, which has the lowest ids
        has_any = fits.any(axis=1)
        masks, best = masks[has_any], best[has_any]
        chosen = self._subsets[best]
        gbps = self._left.gbps
        cut = gbps[masks] - gbps[chosen] - gbps[masks ^ chosen]
        self._sets[masks] = chosen
        self._sets_gbps[masks] = self._gbps[best]
        self._sets_kept[masks] = 1.0 - np.clip(cut / self._total, 0.0, 1.0)


class ChoiceTables:
    """The tables that are in use, made when first asked for; for all classes of `classes`."""

    def __init__(self, classes: LinkClasses) -> None:
        self._classes = classes
        self._tables: OrderedDict[tuple[int, int, Rule], Choices] = OrderedDict()
        self._joint: OrderedDict[tuple[int, Rule], _Joint] = OrderedDict()
        self._seen = 0
        self._speeds: Matrix = np.zeros(0)
        """Of all links of the classes that were seen, each once."""

    def of(self, links: LinkClass, count: int, rule: Rule) -> Choices:
        """The table of a link class for count devices."""
        rule = _in_steps(rule, links.gbps)
        key = (links.number, count, rule)
        found = self._tables.get(key)
        if found is None:
            found = self._tables[key] = Choices(links, count, rule)
            if len(self._tables) > _TABLES:
                self._tables.popitem(last=False)
        else:
            self._tables.move_to_end(key)
        return found

    def look_up(
        self, numbers: NDArray[np.int32], masks: Masks, count: int, rule: Rule
    ) -> tuple[Masks, NDArray[np.float32], NDArray[np.float32]]:
        """As `Choices.look_up`, each node by the class with its number; a node without a class has no set."""
        if len(self._classes.all) != self._seen:
            self._seen = len(self._classes.all)
            self._speeds = np.unique([links.gbps for links in self._classes.all])
        rule = _in_steps(rule, self._speeds)
        joint = self._joint.get((count, rule))
        if joint is None or joint.classes != len(self._classes.all):
            joint = self._joint[count, rule] = _Joint(self._classes)
            if len(self._joint) > _JOINT_TABLES:
                self._joint.popitem(last=False)
        places = (numbers + 1) * np.int64(joint.size) + masks
        sets = joint.sets[places]
        new = sets == _UNKNOWN
        if new.any():
            for place in np.unique(numbers[new]).tolist():  # once per class with masks that were never met before
                met = np.unique(masks[new & (numbers == place)])
                at = (place + 1) * joint.size + met.astype(np.int64)
                choices = self.of(self._classes.all[place], count, rule)
                joint.sets[at], joint.gbps[at], joint.kept[at] = choices.look_up(met)
            sets = joint.sets[places]
        return sets, joint.gbps[places], joint.kept[places]


class _Joint:
    """What was found in the tables of all classes for one count and rule, side by side, so that one look-up does."""

    def __init__(self, classes: LinkClasses) -> None:
        self.classes = len(classes.all)
        self.size = max((1 << links.present.bit_length() for links in classes.all), default=1)
        length = (self.classes + 1) * self.size
        self.sets = np.full(length, _UNKNOWN, dtype=np.uint32)
        self.sets[: self.size] = 0  # nodes without a class
        self.gbps = np.zeros(length, dtype=np.float32)
        self.kept = np.ones(length, dtype=np.float32)


def _in_steps(rule: Rule, speeds: Matrix) -> Rule:
    """The same rule for all bandwidths that the same links have: it asks for the lowest of their speeds."""
    if not rule.min_gbps:
        return rule
    enough = speeds[speeds >= rule.min_gbps]
    return replace(rule, min_gbps=float(enough.min()) if len(enough) else float("inf"))


@dataclass(frozen=True, slots=True, eq=False)
class _Leftovers:
    """What each set of devices is worth when it is left over, by its mask."""

    gbps: Matrix
    """Sum of the GB/s between any two."""
    links: Ranks
    """The same as ranks, so that rounding does not decide."""
    nearness: Ranks
    """Ranks by nearness, then by how few runs of ids they are in."""

    @property
    def levels(self) -> int:
        """How many different ranks by GB/s there are."""
        return int(self.links.max()) + 1

    @property
    def near_levels(self) -> int:
        """How many different ranks by nearness there are."""
        return int(self.nearness.max()) + 1


@lru_cache(maxsize=64)
def _leftovers(links: LinkClass) -> _Leftovers:
    masks = np.arange(1 << links.present.bit_length(), dtype=np.uint32)
    gbps = _within(masks, links.gbps)
    bits = _bits(masks)
    neighbours = (bits[:, :-1] * bits[:, 1:]).sum(axis=1)
    return _Leftovers(gbps, _dense(gbps), _dense(_within(masks, links.nearness), neighbours))


@lru_cache(maxsize=256)
def _subsets(present: int, count: int) -> Masks:
    """All sets of count devices, lowest ids first."""
    sets = combinations(ids_of(present), count)
    return np.array([sum(1 << id for id in ids) for ids in sets], dtype=np.uint32)


def _quality(subsets: Masks, gbps: Matrix, links: LinkClass, rule: Rule) -> Ranks:
    """Ranks of sets by policy and links; -1 for one that the rule does not allow."""
    together = _share_island(subsets, links)
    satisfied = together & (gbps >= rule.min_gbps) | (np.bitwise_count(subsets) < 2)
    row, inside = _consecutive(subsets), _within(subsets, links.gbps)
    columns: list[NDArray[Any]] = []
    if rule.policy == "preferIds":
        columns.append(_listed(subsets, rule.prefer_ids))
    if rule.policy == "spread":
        columns += [_apart(subsets, links), -inside]
    elif rule.mode == "Ignore":
        columns.append(row)
    else:
        if rule.min_gbps:
            columns.append(satisfied)
        columns += [row & together, gbps, inside]
    ranks = _dense(*columns)
    if rule.mode == "Required":
        ranks[~satisfied] = -1
    return ranks


def _listed(subsets: Masks, prefer_ids: tuple[int, ...]) -> Matrix:
    """How well each set follows a list: its first id counts more than all others together."""
    worth = np.zeros(len(subsets))
    for place, id in enumerate(reversed([id for id in prefer_ids if 0 <= id < MOST_DEVICES])):
        worth += (subsets >> np.uint32(id) & np.uint32(1)) * 2.0**place
    return worth


def _apart(subsets: Masks, links: LinkClass) -> Matrix:
    """How many different islands are in each set; where devices are in none each counts for itself."""
    bits = _bits(subsets).astype(np.bool_)
    alone = [id for id in range(MOST_DEVICES) if links.islands[id] == NO_ISLAND]
    number = bits[:, alone].sum(axis=1).astype(np.float64)
    for island in set(links.islands) - {NO_ISLAND}:
        number += bits[:, [id for id in range(MOST_DEVICES) if links.islands[id] == island]].any(axis=1)
    return number


def _share_island(subsets: Masks, links: LinkClass) -> NDArray[np.bool_]:
    shared = np.zeros(len(subsets), dtype=np.bool_)
    for island in set(links.islands) - {NO_ISLAND}:
        members = sum(1 << id for id in range(MOST_DEVICES) if links.islands[id] == island)
        shared |= (subsets & np.uint32(~members & 0xFFFF)) == 0
    return shared | (_bits(subsets).sum(axis=1) < 2)


def _consecutive(subsets: Masks) -> NDArray[np.bool_]:
    lowest = subsets & (~subsets + np.uint32(1))
    return (subsets & (subsets + lowest)) == 0


def _lowest(subsets: Masks, gbps: Matrix) -> Matrix:
    """GB/s of the slowest link in each set; 0 for one device."""
    lowest = np.full(len(subsets), np.inf)
    bits = _bits(subsets).astype(np.bool_)
    for a, b in combinations(range(MOST_DEVICES), 2):
        both = bits[:, a] & bits[:, b]
        lowest[both] = np.minimum(lowest[both], gbps[a, b])
    lowest[np.isinf(lowest)] = 0.0
    return lowest


def _within(masks: Masks, matrix: Matrix) -> Matrix:
    """The sum of a matrix over the pairs in each set."""
    bits = _bits(masks)
    sums: Matrix = np.einsum("mi,mi->m", bits @ matrix, bits) / 2
    return sums


def _bits(masks: Masks) -> Matrix:
    """One row per mask, one column per device."""
    return (masks[:, None] >> np.arange(MOST_DEVICES, dtype=np.uint32) & np.uint32(1)).astype(np.float64)


def _dense(*columns: NDArray[Any]) -> Ranks:
    """Ranks from 0 by the first column, then by the next; equal for what is equal to a millionth."""
    table = np.stack([np.round(column.astype(np.float64), 6) for column in columns], axis=1)
    ranks: Ranks = np.unique(table, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return ranks
