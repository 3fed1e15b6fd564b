"""One node's problem in numbers: devices are bits of masks, and equal numbers make equal problems.

No part of a problem names a device or a node, so all nodes of one shape have one problem, which is solved once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

Mask = int
"""Some devices of a node; bit i is the device at position i."""
Amounts = tuple[tuple[int, int], ...]
"""Pairs of an index and an amount."""
MISSING = -1
"""The value of an attribute that a device does not have."""
UNKNOWN = -2
"""The value of an attribute whose type is not known."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One alternative of a request, as the devices of a node meet it."""

    base: int
    """The number of the choice's request in the claim."""
    count: int
    every: tuple[int, ...] | None
    """The positions of all devices that the choice asks for, if it asks for all; else None."""
    is_admin: bool
    """Whether the choice may be given devices that other claims have (adminAccess)."""
    candidates: Mask
    """Devices that may be given, as far as that does not depend on which other devices the search gives."""
    failures: Mask
    """Devices for which a selector fails: the search ends when it reaches one of them."""
    consumes: tuple[Amounts, ...]
    """By position: which capacities a share of the device consumes, and how much."""


class ProblemRule(NamedTuple):
    """A constraint of a claim."""

    is_distinct: bool
    values: tuple[int, ...]
    """By position: the value of the attribute, MISSING or UNKNOWN."""
    choices: frozenset[int]
    """The choices whose devices the rule is about."""


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """What the claims of a pod ask for on one node."""

    size: int
    """The number of devices."""
    choices: tuple[Choice, ...]
    requests: tuple[tuple[tuple[int, ...], ...], ...]
    """By claim and request: the numbers of its choices."""
    prioritized: tuple[tuple[bool, ...], ...]
    """By claim and request: whether the request lists alternatives."""
    rules: tuple[tuple[ProblemRule, ...], ...]
    """By claim."""
    shareable: Mask
    """Devices that may be given more than once."""
    in_use: Mask
    """Shareable devices of which claims have shares: `counters_left` is already without their counters."""
    counters: tuple[Amounts, ...]
    """By position: which counters the device consumes, and how much."""
    counters_left: tuple[int, ...]
    capacities_left: tuple[int, ...]
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = self.size, self.choices, self.rules, self.counters, self.counters_left, self.capacities_left
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        return self._hash


def positions(mask: Mask) -> Iterator[int]:
    """The positions of a mask, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
