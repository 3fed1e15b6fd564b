"""The ways to choose alternatives for the requests of a pod, and which of them have to be counted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, product
from math import prod
from typing import NamedTuple

from gangline.dra.asking import MOST_DEVICES, Ask

_MOST_COMBINATIONS = 64
"""Combinations of alternatives; if there are more, nothing is counted."""


class DeviceWant(NamedTuple):
    """What alternatives have in common that may be given the same devices."""

    kind: int
    is_bound: bool
    """Whether the constraints are about the alternatives."""
    is_admin: bool
    is_all: bool


Way = dict[DeviceWant, int]
"""How many devices are given, if certain alternatives are chosen; for each alternative that asks for all devices, 1."""


class Ways:
    """The ways to satisfy an ask; none if counting cannot say anything about it."""

    def __init__(self, ask: Ask, kind_of: Sequence[int]) -> None:
        """`kind_of` has for each alternative the number of its kind."""
        bound = _bound(ask)
        self.wants = [
            DeviceWant(kind, number in bound[0] if bound else False, each.is_admin, each.is_all)
            for number, (each, kind) in enumerate(zip(ask.alternatives, kind_of, strict=True))
        ]
        """By alternative."""
        constraints = [each for rules in ask.constraints for each in rules]
        self.attributes = [each.attribute for each in constraints]
        """By constraint."""
        self.is_distinct = any(each.is_distinct for each in constraints)
        """Whether the constraint wants distinct values."""
        requests = [each for of_claim in ask.requests for each in of_claim]
        self.has_alternatives = any(each.is_prioritized for each in requests)
        self.may_overlap = not any(each.is_prioritized for each in requests[1:])
        """Whether the search finds the first combination for which there are devices, also where a device may be given
        for several requests. If not, it keeps the devices of earlier requests while it tries the alternatives.
        """
        self.has_first = self.may_overlap or not constraints
        """Whether the search finds the first combination for which there are devices."""
        self.combinations = _combinations(ask) if _is_countable(ask, bound) else []
        """One alternative of each request, by number, in the order in which they are tried."""
        self.all = [self._way(ask, numbers) for numbers in self.combinations]
        """By combination."""
        self.least = _least(self.all)
        """The ways that are to be counted to find out whether there are devices for any."""

    def _way(self, ask: Ask, numbers: tuple[int, ...]) -> Way:
        """What is given if these alternatives are chosen."""
        way: Way = {}
        alternatives = ask.alternatives
        for number in numbers:
            each, want = alternatives[number], self.wants[number]
            if count := 1 if each.is_all else each.count:
                way[want] = way.get(want, 0) + count
        return way


def _combinations(ask: Ask) -> list[tuple[int, ...]]:
    """The ways to choose alternatives, given by their numbers; none if there are too many."""
    lengths = [len(request.alternatives) for requests in ask.requests for request in requests]
    if prod(lengths) > _MOST_COMBINATIONS:
        return []
    ends = accumulate(lengths)
    return list(product(*[range(end - length, end) for end, length in zip(ends, lengths, strict=True)]))


def _least(ways: list[Way]) -> list[Way]:
    """Of two ways, one of which asks for no more of anything than the other, it is the only one that counts: where
    there are devices for the other, there are for this one.
    """
    found: list[Way] = []
    for way in ways:
        if not any(_asks_no_more(other, way) for other in found):
            found = [other for other in found if not _asks_no_more(way, other)]
            found.append(way)
    return found


def _asks_no_more(one: Way, other: Way) -> bool:
    return all(need <= other.get(want, 0) for want, need in one.items())


def _bound(ask: Ask) -> list[frozenset[int]]:
    """By constraint: the numbers of the alternatives that it is about."""
    return [
        frozenset(
            number
            for number, each in enumerate(ask.alternatives)
            if each.claim == claim and each.is_named_in(constraint.requests)
        )
        for claim, constraints in enumerate(ask.constraints)
        for constraint in constraints
    ]


def _is_countable(ask: Ask, bound: list[frozenset[int]]) -> bool:
    """Whether counting may say anything."""
    alternatives = ask.alternatives
    if len(ask.claims) > 1 and any(each.is_admin for each in alternatives):
        return False  # a claim may observe devices that another claim gets
    for requests in ask.requests:
        if sum(max(each.count for each in request.alternatives) for request in requests) > MOST_DEVICES:
            return False
    if len(set(bound)) > 1 or any(alternatives[number].is_all for numbers in bound for number in numbers):
        return False
    if not any(each.is_distinct for constraints in ask.constraints for each in constraints):
        return True
    return len(bound) == 1 and len(bound[0]) == len(alternatives) and _forgets_nothing(ask)


def _forgets_nothing(ask: Ask) -> bool:
    """Whether kube-scheduler remembers the values of all devices that it has given. Of a request it remembers only the
    last one, and forgets it when it takes back a device.
    """
    most = max(each.count for each in ask.alternatives)
    return most <= 1 or (most == 2 and sum(map(len, ask.requests)) == 1)
