"""The choice of devices for a claim among a node's free devices: per link class, a table from the mask of free devices.

Rules:
- The choice depends on link class, count, rule and mask alone, so it is the same for every node and at any time.
- The criteria, in order: the policy and the links among the devices; the links that remain among the devices left over,
  so that no pair or island is split without need; nearness by PCIe and NUMA; the nearness among the devices left over;
  the lowest ids.
- The choice for a mask is computed when the mask first occurs. After that, one look-up serves all nodes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import BoundedCache, Rows
from gangline_plugins.gpu.device_sets import NEVER, DeviceSets, Masks, Ranks, dense, device_sets, leftovers
from gangline_plugins.gpu.links import MOST_DEVICES, NO_ISLAND, LinkClass, LinkClasses, Matrix

Floats = NDArray[np.float32]
Policy = Literal["contiguous", "spread", "preferIds"]
Mode = Literal["Required", "Preferred", "Ignore"]
_TABLES_BYTES = 32 * 1024 * 1024
"""Memory for the tables that are kept: one for 16 devices takes 0.8 MiB, one for 8 takes 3 KiB."""
_JOINT_BYTES = 32 * 1024 * 1024
"""Memory for the joint tables: one takes as much as the tables of all link classes."""
_RULE_BYTES = 512
"""The size of a rule without its ids."""
_ID_BYTES = 8
_CELLS = 1 << 18
"""Masks times sets that are computed in one step."""
_NO_SET = 1 << 31
_UNKNOWN = np.uint32(_NO_SET)


@dataclass(frozen=True, slots=True)
class Rule:
    """How to choose devices."""

    policy: Policy = "contiguous"
    prefer_ids: tuple[int, ...] = ()
    """With the policy preferIds: the ids to take first, in this order."""
    mode: Mode = "Preferred"
    min_gbps: float = 0.0
    """GB/s between any two of the devices: an obligation with Required, a preference with Preferred."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.policy, self.prefer_ids, self.mode, self.min_gbps)))

    def __hash__(self) -> int:
        return self._hash  # tables are looked up by it several times in each decision


class Choices:
    """The table of one link class for one count and rule."""

    def __init__(self, links: LinkClass, count: int, rule: Rule) -> None:
        size = 1 << links.present.bit_length()
        self._all = links.present
        self._present = np.uint32(links.present)
        self._among = device_sets(links, count)
        self._quality = _quality(self._among, rule)
        self._left_gbps = leftovers(links).gbps
        self._total = max(float(links.gbps.sum()) / 2, 1e-9)
        self._sets = np.full(size, _UNKNOWN, dtype=np.uint32)
        self._gbps = np.zeros(size, dtype=np.float32)
        self._kept = np.zeros(size, dtype=np.float32)
        self.nbytes = self._sets.nbytes + self._gbps.nbytes + self._kept.nbytes + self._quality.nbytes
        """The bytes of the arrays that no other table shares."""

    def choose(self, mask: int) -> int:
        """The best set within a mask of free devices, as a mask; 0 if there is none."""
        mask &= self._all
        found: int = self._sets.item(mask)
        if found == _UNKNOWN:
            self._work_out(np.array([mask], dtype=np.uint32))
            found = self._sets.item(mask)
        return found

    def look_up(self, masks: Masks) -> tuple[Masks, Floats, Floats]:
        """For each mask of free devices the best set, its GB/s, and how whole it leaves the other devices. A mask that
        is given twice is worked out twice.

        A set is 0 if there is none. Its GB/s are those of its slowest link, 0 for a single device. The last value is
        from 0 to 1: it is 1 if no link to a free device is cut, and the lower the more bandwidth is cut.
        """
        masks = masks & self._present
        sets = self._sets[masks]
        new = sets == _UNKNOWN
        if new.any():
            self._work_out(masks[new])
            sets = self._sets[masks]
        return sets, self._gbps[masks], self._kept[masks]

    def _work_out(self, masks: Masks) -> None:
        """Compute the table at these masks."""
        at_once = max(1, _CELLS // max(1, len(self._among.masks)))
        for start in range(0, len(masks), at_once):
            self._fill(masks[start : start + at_once])

    def _fill(self, masks: Masks) -> None:
        self._sets[masks] = 0
        if not len(self._among.masks):
            return
        worth = self._among.worth(masks)
        worth += self._quality
        best = worth.argmax(axis=1)  # the first of equal ones has the lowest ids
        has_any = worth[np.arange(len(masks)), best] >= 0
        masks, best = masks[has_any], best[has_any]
        chosen = self._among.masks[best]
        left = self._left_gbps
        cut = left[masks] - left[chosen] - left[masks ^ chosen]
        self._sets[masks] = chosen
        self._gbps[masks] = self._among.gbps[best]
        self._kept[masks] = 1.0 - np.clip(cut / self._total, 0.0, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Last:
    """The table that was asked for last, and by what."""

    links: LinkClass
    count: int
    rule: Rule
    table: Choices


class ChoiceTables:
    """The tables in use, each made on first use, for all link classes of `classes`."""

    def __init__(self, classes: LinkClasses) -> None:
        self._classes = classes
        self._tables: BoundedCache[tuple[LinkClass, int, Rule], Choices] = BoundedCache(_TABLES_BYTES, _size)
        self._joint: BoundedCache[tuple[int, Rule], _Joint] = BoundedCache(_JOINT_BYTES, _size)
        self._last: _Last | None = None
        self._recent: tuple[int, Rule, _Joint] | None = None
        """The count and rule that were asked for last, and their joint table."""
        self._seen = 0
        self._speeds: Matrix = np.zeros(0)
        """The speeds of all links of the known classes, each once."""

    def of(self, links: LinkClass, count: int, rule: Rule) -> Choices:
        """The table of a link class for `count` devices."""
        count = min(count, MOST_DEVICES + 1)
        last = self._last
        if last is not None and last.links is links and last.count == count and last.rule is rule:
            return last.table  # mostly: the members of a gang go to like nodes
        key = (links, count, _in_steps(rule, links.gbps))
        found = self._tables.get(key)
        if found is None:
            found = self._tables.put(key, Choices(links, count, key[-1]))
        self._last = _Last(links, count, rule, found)
        return found

    def look_up(self, numbers: NDArray[np.int32], masks: Masks, count: int, rule: Rule) -> BestSets:
        """As `Choices.look_up`; `numbers` gives the link class of each node. A node without a class has no set."""
        return BestSets(*self._places(numbers, masks, count, rule))

    def sets_of(self, numbers: Sequence[int], masks: Sequence[int], count: int, rule: Rule) -> list[int]:
        """The sets that `look_up` finds, for a few nodes, by plain numbers."""
        joint = self._joint_of(count, rule)
        sets, size, length = joint.sets.item, joint.size, len(joint.sets)
        found = [sets((number * size + mask) % length) for number, mask in zip(numbers, masks, strict=True)]
        if _NO_SET in found:
            places = np.array(numbers, dtype=np.int32), np.array(masks, dtype=np.uint32)
            found = self._places(*places, count, rule)[0].tolist()
        return found

    def has_any(self, numbers: NDArray[np.int32], masks: Masks, count: int, rule: Rule) -> NDArray[np.bool_]:
        """For each node whether `look_up` finds a set."""
        sets, _, _ = self._places(numbers, masks, count, rule)
        return sets != 0

    def _places(self, numbers: NDArray[np.int32], masks: Masks, count: int, rule: Rule) -> tuple[Masks, _Joint, Rows]:
        """The best sets, the joint table, and the index of each node's answer in it."""
        joint = self._joint_of(count, rule)
        places = (numbers * joint.step + masks.view(np.int32)).astype(np.intp)
        sets = joint.sets.take(places, mode="wrap")  # the fastest mode; every index is one of the table
        new = sets == _UNKNOWN
        if np.count_nonzero(new):
            met = np.zeros(len(joint.sets), dtype=np.bool_)
            met[places[new]] = True
            for links, mine in zip(self._classes.all, met.reshape(-1, joint.size)[:-1], strict=True):
                if mine.any():  # once per class, for masks that occur for the first time
                    found = mine.nonzero()[0]
                    at = links.number * joint.size + found
                    choices = self.of(links, count, joint.rule)
                    joint.sets[at], joint.worth[at, 0], joint.worth[at, 1] = choices.look_up(found.astype(np.uint32))
            sets = joint.sets.take(places, mode="wrap")
        return sets, joint, places

    def _joint_of(self, count: int, rule: Rule) -> _Joint:
        recent, version = self._recent, self._classes.version
        if recent is not None and recent[1] is rule and recent[0] == count and recent[2].version == version:
            return recent[2]  # mostly: one want is asked about again and again
        joint = self._known_joint(count, rule)
        self._recent = count, rule, joint
        return joint

    def _known_joint(self, count: int, rule: Rule) -> _Joint:
        count = min(count, MOST_DEVICES + 1)
        if self._classes.version != self._seen:
            self._seen = self._classes.version
            self._speeds = np.unique([links.gbps for links in self._classes.all])
        rule = _in_steps(rule, self._speeds)
        joint = self._joint.get((count, rule))
        if joint is None or joint.version != self._classes.version:
            joint = self._joint.put((count, rule), _Joint(self._classes, rule))
        return joint


class BestSets(msgspec.Struct, frozen=True, eq=False):
    """The best set of devices on each node, and where the table has the rest of what is known of these sets."""

    sets: Masks
    _joint: _Joint
    _places: Rows

    def worth(self) -> tuple[Floats, Floats]:
        """The GB/s of each set, and how whole it leaves the other devices."""
        worth = self._joint.pairs.take(self._places, mode="wrap").view(np.float32).reshape(-1, 2)
        return worth[:, 0], worth[:, 1]


class _Joint:
    """The answers of the tables of all classes for one count and rule, side by side, so that one look-up serves all
    nodes.
    """

    def __init__(self, classes: LinkClasses, rule: Rule) -> None:
        self.rule = rule
        self.version = classes.version
        self.size = max((1 << links.present.bit_length() for links in classes.all), default=1)
        self.step = np.int32(self.size)
        length = (len(classes.all) + 1) * self.size
        self.sets = np.full(length, _UNKNOWN, dtype=np.uint32)
        self.sets[-self.size :] = 0  # the last are for nodes without a class, whose number is -1
        self.worth = np.zeros((length, 2), dtype=np.float32)
        """For each place the GB/s of the set, and how whole it leaves the other devices."""
        self.worth[:, 1] = 1.0
        self.pairs = self.worth.view(np.uint64).ravel()
        """The memory of `worth`, with both values of a place as one number."""
        self.nbytes = self.sets.nbytes + self.worth.nbytes


def _size(key: tuple[Any, ...], table: Choices | _Joint) -> int:
    """The bytes of a table and of its rule; the link class belongs to the nodes."""
    rule: Rule = key[-1]
    return table.nbytes + _RULE_BYTES + len(rule.prefer_ids) * _ID_BYTES


def _in_steps(rule: Rule, speeds: Matrix) -> Rule:
    """The same rule for all bandwidths that the same links satisfy: it asks for the lowest of the links' speeds."""
    if not rule.min_gbps:
        return rule
    enough = speeds[speeds >= rule.min_gbps]
    return Rule(rule.policy, rule.prefer_ids, rule.mode, float(enough.min(initial=np.inf)))


def _quality(sets: DeviceSets, rule: Rule) -> Ranks:
    """The rank of each set by policy and links, scaled so that no other criterion counts as much; NEVER if the rule
    forbids the set.
    """
    satisfied = sets.together & (sets.gbps >= rule.min_gbps) | (sets.ids.shape[1] < 2)
    columns: list[NDArray[Any]] = []
    if rule.policy == "preferIds":
        columns.append(_listed(sets, rule.prefer_ids))
    if rule.policy == "spread":
        columns += [sets.apart, -sets.inside, -sets.near]
    elif rule.mode == "Ignore":
        columns.append(sets.in_row)
    else:
        if rule.min_gbps:
            columns.append(satisfied)
        columns += [sets.in_row & sets.together, sets.gbps, sets.inside]
    ranks = dense(*columns) * sets.levels
    if rule.mode != "Required":
        return ranks
    allowed = satisfied & sets.in_row if rule.policy == "contiguous" else satisfied
    return np.where(allowed, ranks, NEVER)


def judge(links: LinkClass, ids: Sequence[int], rule: Rule) -> tuple[float, bool]:
    """GB/s of the slowest link among several devices, given by rising ids, and whether they satisfy the rule's wish.

    With `spread` the wish is that every device is in a different island, as far as there are enough islands.
    """
    chosen = np.asarray(ids)
    gbps = float(links.gbps[np.ix_(chosen, chosen)][np.triu_indices(len(ids), 1)].min())
    of_each = [links.islands[id] for id in ids]
    if rule.policy == "spread":
        islands = set(links.islands) - {NO_ISLAND}
        apart = {island for island in of_each if island != NO_ISLAND}
        return gbps, len(apart) + of_each.count(NO_ISLAND) >= min(len(ids), max(len(islands), 1))
    together = len(set(of_each)) == 1 and of_each[0] != NO_ISLAND
    in_row = rule.policy != "contiguous" or ids[-1] - ids[0] == len(ids) - 1
    return gbps, together and in_row and gbps >= rule.min_gbps


def _listed(sets: DeviceSets, prefer_ids: tuple[int, ...]) -> Matrix:
    """How well each set follows a list of ids: an earlier id counts more than all later ones together."""
    worth = np.zeros(MOST_DEVICES)
    for place, id in enumerate(reversed([id for id in prefer_ids if 0 <= id < MOST_DEVICES])):
        worth[id] += 2.0**place
    listed: Matrix = worth[sets.ids].sum(axis=1)
    return listed
