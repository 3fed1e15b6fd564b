"""Whether a search can still succeed, by counting: a necessary condition that costs polynomial time.

The condition leaves out capacities and rules that want distinct values. It asks two things. Can each remaining request
get its number of devices out of its candidates, no device twice, with one value for each rule that wants equal values?
And if the requests get the devices that consume least of a counter, is enough left of the counter? If one answer is no,
no search can succeed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import msgspec

from gangline.dra.holding import Holding
from gangline.dra.problem import MISSING, UNKNOWN, Mask, NodeProblem

_MOST_COMBINATIONS = 64
"""Combinations of values that are tried one by one. If there are more, only the rule with the fewest values counts."""


class _Need(msgspec.Struct, frozen=True):
    """What a request needs whichever alternative is chosen: at least `count` of the devices in `mask`."""

    count: int
    mask: Mask
    is_admin: bool
    rules: tuple[int, ...]
    """The rules of the claim that want equal values of the devices."""


class SearchOutlook:
    """What the requests of a problem need."""

    def __init__(self, problem: NodeProblem) -> None:
        self._problem = problem
        self._values = [[_masks(rule.values) for rule in rules] for rules in problem.rules]
        """By claim and rule: the devices of each value."""
        self._consumers = [_grouped(problem, counter) for counter in range(len(problem.counters_left))]
        """By counter: ascending amounts, each with the devices that consume it; without shareable devices."""
        self._needs = [
            [self._need(claim, list(numbers)) for numbers in requests]
            for claim, requests in enumerate(problem.requests)
        ]

    def _need(self, claim: int, numbers: list[int]) -> _Need | None:
        """What a request needs; None if it can never be met."""
        choices = [self._problem.choices[number] for number in numbers]
        possible = [
            (number, choice)
            for number, choice in zip(numbers, choices, strict=True)
            if choice.every is None or (choice.every and all(choice.candidates >> each & 1 for each in choice.every))
        ]
        if not possible:
            return None
        mask = 0
        for _, choice in possible:
            mask |= choice.candidates
        rules = tuple(
            index
            for index, rule in enumerate(self._problem.rules[claim])
            if not rule.is_distinct and all(number in rule.choices for number, _ in possible)
        )
        count = min(choice.count for _, choice in possible)
        return _Need(count, mask, any(choice.is_admin for _, choice in possible), rules)

    def is_hopeless(self, holding: Holding, claim: int, request: int, number: int, index: int, start: int) -> bool:
        """Whether the search cannot succeed from here: the next device is the `index`-th of a request, and only devices
        from position `start` on may be given to it.
        """
        problem = self._problem
        choice = problem.choices[number]
        mask = choice.candidates if choice.every is not None else choice.candidates >> start << start
        rules = tuple(
            i for i, rule in enumerate(problem.rules[claim]) if not rule.is_distinct and number in rule.choices
        )
        first = _Need(choice.count - index, mask, choice.is_admin, rules)
        unfit = self._unfit(holding)
        rest = [[first, *self._needs[claim][request + 1 :]], *self._needs[claim + 1 :]]
        total: list[_Need] = []
        for which, needs in enumerate(rest, claim):
            known = [need for need in needs if need is not None]
            if len(known) < len(needs):
                return True
            own = holding.held_by[which]
            kept = holding.held | unfit
            combinations = self._combinations(holding, which)
            if not any(self._can_be_met(holding, kept, own | unfit, known, values) for values in combinations):
                return True
            total += known
        return len(rest) > 1 and not self._can_be_met(holding, holding.held | unfit, unfit, total, {})

    def _unfit(self, holding: Holding) -> Mask:
        """Devices that consume more of a counter than is left."""
        found = 0
        for left, groups in zip(holding.counters, self._consumers, strict=True):
            for amount, mask in reversed(groups):
                if amount <= left:
                    break
                found |= mask
        return found

    def _exceeds_counters(self, holding: Holding, number: int, mask: Mask) -> bool:
        """Whether any `number` of the devices consume more of some counter than is left."""
        for left, groups in zip(holding.counters, self._consumers, strict=True):
            wanted = number - (mask & ~_union([each for _, each in groups])).bit_count()
            consumed = 0
            for amount, each in groups:
                if wanted <= 0:
                    break
                taken = min(wanted, (mask & each).bit_count())
                consumed += taken * amount
                wanted -= taken
            if consumed and consumed > left:
                return True
        return False

    def _combinations(self, holding: Holding, claim: int) -> Iterator[dict[int, Mask]]:
        """For each combination of values, one per rule that wants equal values: by rule, the devices with the value.

        A rule that has accepted a device has one possible value.
        """
        options: dict[int, list[Mask]] = {}
        for index, rule in enumerate(self._problem.rules[claim]):
            if not rule.is_distinct:
                count, values = holding.marks[claim][index]
                masks = self._values[claim][index]
                options[index] = [masks.get(values[0], 0)] if count else list(masks.values()) or [0]
        if prod(map(len, options.values())) > _MOST_COMBINATIONS:
            index = min(options, key=lambda each: len(options[each]))
            options = {index: options[index]}
        for masks_of in product(*options.values()):
            yield dict(zip(options, masks_of, strict=True))

    def _can_be_met(
        self, holding: Holding, kept: Mask, kept_from_admins: Mask, needs: list[_Need], values: dict[int, Mask]
    ) -> bool:
        """Whether each need can get its devices, without `kept` or, with admin access, without `kept_from_admins`."""
        shareable = self._problem.shareable
        wanted: list[tuple[int, Mask]] = []
        for need in needs:
            mask = need.mask & ~(kept_from_admins if need.is_admin else kept)
            for rule in need.rules:
                mask &= values.get(rule, -1)
            count = need.count - (mask & shareable).bit_count()
            if count > (mask & ~shareable).bit_count():
                return False
            if count > 0 and not need.is_admin:
                wanted.append((count, mask & ~shareable))
        if self._consumers and wanted:
            total = sum(count for count, _ in wanted)
            if self._exceeds_counters(holding, total, _union([mask for _, mask in wanted])):
                return False
        return len(wanted) < 2 or _can_be_dealt(wanted)


def _grouped(problem: NodeProblem, counter: int) -> list[tuple[int, Mask]]:
    """Amounts of a counter, ascending, each with the devices that consume it; without devices that may be shared."""
    groups: dict[int, Mask] = {}
    for position, amounts in enumerate(problem.counters):
        amount = sum(each for index, each in amounts if index == counter)
        if amount and not problem.shareable >> position & 1:
            groups[amount] = groups.get(amount, 0) | 1 << position
    return sorted(groups.items())


def _masks(values: tuple[int, ...]) -> dict[int, Mask]:
    """The devices of each value."""
    masks: dict[int, Mask] = {}
    for position, value in enumerate(values):
        if value == UNKNOWN:
            masks[-position - 3] = 1 << position  # equals no other device, so only alone
        elif value != MISSING:
            masks[value] = masks.get(value, 0) | 1 << position
    return masks


def _can_be_dealt(needs: list[tuple[int, Mask]]) -> bool:
    """Whether each need can get its number of devices of its mask, no device twice: bipartite matching by augmenting
    paths (Kuhn's algorithm).
    """
    free = 0
    for _, mask in needs:
        free |= mask
    if sum(count for count, _ in needs) > free.bit_count():
        return False
    has = [0] * len(needs)
    for need, (count, _) in enumerate(needs):
        for _ in range(count):
            if not _takes_one_more(needs, need, free, has):
                return False
            free &= ~_union(has)
    return True


def _union(masks: list[Mask]) -> Mask:
    found = 0
    for mask in masks:
        found |= mask
    return found


def _takes_one_more(needs: list[tuple[int, Mask]], need: int, free: Mask, has: list[Mask]) -> bool:
    """Give a need one more device, for which other needs may change devices. Returns whether that was possible.

    `has` has the devices of each need, and is changed in place.
    """
    queue = [need]
    hands_over: dict[int, tuple[int, Mask]] = {}
    """By need: the need to which it gives one of its devices once it gets another, and this device."""
    for getting in queue:
        found = needs[getting][1] & free
        if found:
            has[getting] |= found & -found
            while getting != need:
                taker, device = hands_over[getting]
                has[getting] &= ~device
                has[taker] |= device
                getting = taker
            return True
        for owner, owned in enumerate(has):
            common = owned & needs[getting][1]
            if common and owner != need and owner not in hands_over:
                hands_over[owner] = getting, common & -common
                queue.append(owner)
    return False
