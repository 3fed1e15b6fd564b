"""One node's problem, cut out of the columns of candidates."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline.dra.asking import Alternative
from gangline.dra.candidates import FAILS, MEANT, USABLE, Candidates
from gangline.dra.placed import PlacedPool
from gangline.dra.pools import PoolCondition
from gangline.dra.problem import UNKNOWN, Amounts, Choice, Mask, NodeProblem, ProblemRule
from gangline.dra.reading import CONSUMES, SHAREABLE, consumption
from gangline.dra.rows import RowNumbers
from gangline.dra.solving import ProblemShape, Solver
from gangline.dra.standing import IN_USE, TAKEN
from gangline.status import BoolColumn

_MOST_SHAPES = 64
"""Shapes that are kept for one question."""


class Unallocatable(Exception):
    """The claims can be allocated on no node until an object changes: other nodes need not be tried."""


class _Devices(msgspec.Struct, frozen=True, eq=False):
    """The devices of a node that have a flag for one of the requests. A device's place among them is its *position*."""

    numbers: RowNumbers
    """By position: the row of the device in the table."""
    rows: list[int]
    """`numbers` as a list."""
    pools: list[PlacedPool]
    """By position: the pool of the device."""
    reached: NDArray[np.bool_] | None
    """By position: whether the node may use the device; None if it may use all."""


class Cut(msgspec.Struct, frozen=True, eq=False):
    """The part of a node's problem that does not depend on what claims have taken."""

    devices: _Devices
    shape: ProblemShape
    """The part that the node has in common with other nodes. `shape.problem` is the problem with all devices free, and
    with counters of which nothing is left."""
    counters: tuple[tuple[PlacedPool, tuple[str, str]], ...]
    """The counters of the problem: pool, counter set and name."""
    consuming: tuple[PlacedPool, ...]
    """Pools with devices that consume counters."""
    is_plain: bool
    """Whether no device may be shared, nor consumes counters."""


class Cutter:
    """Cuts the devices of nodes out of the columns of one question."""

    def __init__(self, candidates: Candidates, solver: Solver) -> None:
        self._candidates = candidates
        self._solver = solver
        self._attributes = [each.attribute for rules in candidates.ask.constraints for each in rules]
        self._shapes: dict[Hashable, ProblemShape] = {}
        """By `_content`: the shape of nodes whose devices nobody shares, and which consume no counters."""

    def cut(self, node: int) -> Cut:
        """The cut of the node in this row. Raises Unallocatable."""
        devices = self._devices(node)
        content = self._content(devices)
        known = self._shapes.get(content)
        if known is not None:
            return Cut(devices, known, (), (), True)
        empty = _Problem(self._candidates, devices, False)
        shape = self._solver.shape(empty.made())
        if content is not None:
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            self._shapes[content] = shape
        return Cut(devices, shape, tuple(empty.counters), empty.consuming, empty.is_plain)

    def forget(self) -> None:
        """Keep no shape any more: the shapes of nodes with many devices are large."""
        self._shapes.clear()

    def _devices(self, node: int) -> _Devices:
        candidates, table = self._candidates, self._candidates.table
        pools = table.pools_of(node)
        greedy = next((alternative for alternative in candidates.alternatives if alternative.is_all), None)
        if greedy is not None:
            _check_usable(candidates, greedy, pools)
        pools = [placed for placed in pools if placed.pool.condition is PoolCondition.USABLE]
        rows = np.concatenate([placed.rows for placed in pools]) if pools else np.arange(0)
        of_pool = [placed for placed in pools for _ in range(len(placed.rows))]
        found = np.flatnonzero(candidates.matter(rows)).tolist()
        rows = rows[found]
        numbers = rows.tolist()
        reached = None
        if any(placed.selects_devices for placed in pools):
            reached = np.array([table.reaches(row, node) for row in numbers], dtype=np.bool_)
        return _Devices(rows, numbers, [of_pool[at] for at in found], reached)

    def _content(self, devices: _Devices) -> Hashable:
        """Equal for nodes of one shape; None if more than flags and attributes of devices makes up the shape."""
        candidates, rows = self._candidates, devices.numbers
        if devices.reached is not None or (candidates.table.traits[rows] & (SHAREABLE | CONSUMES)).any():
            return None
        flags = [candidates.flags(number)[rows].tobytes() for number in candidates.firsts]
        attributes = [candidates.properties.attribute(name).values[rows] for name in self._attributes]
        return tuple(flags), tuple([_relative(values.tolist()) for values in attributes])


def _check_usable(candidates: Candidates, greedy: Alternative, pools: Sequence[PlacedPool]) -> None:
    """Raise Unallocatable if an alternative that asks for all devices sees a pool that cannot be used."""
    for placed in pools:
        pool = placed.pool
        if pool.condition is not PoolCondition.USABLE:
            of = f"{candidates.ask.named(greedy.claim)}, request {greedy.name}"
            state = "being updated" if pool.condition is PoolCondition.INCOMPLETE else "invalid"
            what = f"resource pool {pool.driver}/{pool.name} is currently {state}"
            raise Unallocatable(f"{of}: asks for all devices, but {what}")


def _relative(codes: Sequence[int]) -> tuple[int, ...]:
    """For each position a number of its value: equal numbers for equal values. What is no value stays negative."""
    numbers: dict[int, int] = {}
    return tuple(
        [
            numbers.setdefault(code, len(numbers)) if code >= 0 else max(code, UNKNOWN)  # a list counts as unknown
            for code in codes
        ]
    )


def state_of(candidates: Candidates, of: Cut) -> Hashable | None:
    """Equal for nodes of one shape that have equal problems: the states of the devices, and what is left of counters.

    None if devices are shared now: then only `problem_of` tells.
    """
    standing = candidates.standing
    states = standing.states[of.devices.numbers].tobytes()
    if IN_USE in states or IN_USE | TAKEN in states:  # the amounts that the shares consume belong to the problem too
        return None
    if not of.consuming:
        return states
    left = tuple([standing.left(placed)[counter] for placed, counter in of.counters])
    overdrawn = tuple([min(standing.left(placed).values()) < 0 for placed in of.consuming])
    return states, left, overdrawn


def problem_of(candidates: Candidates, of: Cut) -> NodeProblem:
    """The problem of a node with the devices that are taken now. Raises Unallocatable."""
    states = candidates.standing.states[of.devices.numbers]
    if not of.is_plain or (states > TAKEN).any():
        return _Problem(candidates, of.devices, True).made()
    taken = _mask(states)
    if not taken:
        return of.shape.problem
    free = ~taken
    choices = [
        each
        if each.is_admin
        else Choice(
            each.base,
            each.count,
            each.every,
            each.is_admin,
            each.candidates & free,
            each.failures & free,
            each.consumes,
        )
        for each in of.shape.problem.choices
    ]
    return replace(of.shape.problem, choices=tuple(choices))


def within(problem: NodeProblem, candidates: Candidates, allowed: Mapping[int, BoolColumn]) -> NodeProblem:
    """The problem, where some claims may get only certain devices: `allowed` has a column over the positions for the
    number of each such claim.
    """
    masks = {claim: _mask(column) for claim, column in allowed.items()}
    choices = [
        replace(choice, candidates=choice.candidates & mask, failures=choice.failures & mask)
        if (mask := masks.get(alternative.claim)) is not None
        else choice
        for choice, alternative in zip(problem.choices, candidates.alternatives, strict=True)
    ]
    return replace(problem, choices=tuple(choices))


def _mask(column: NDArray[Any]) -> Mask:
    return int.from_bytes(np.packbits(column, bitorder="little").tobytes(), "little")


class _Problem:
    """Makes the numbers of a problem."""

    def __init__(self, candidates: Candidates, of: _Devices, with_taken: bool) -> None:
        self._candidates = candidates
        self._standing = candidates.standing
        self._table = candidates.table
        self.of = of
        self.counters: list[tuple[PlacedPool, tuple[str, str]]] = []
        """The counters of the problem."""
        self._with_taken = with_taken
        states = self._standing.states[of.numbers] if with_taken else np.zeros(len(of.rows), dtype=np.uint8)
        self._free = states & TAKEN == 0
        self._in_use = states & IN_USE > 0
        traits = self._table.traits[of.numbers]
        self._shareable = np.flatnonzero(traits & SHAREABLE).tolist()
        self._consuming = np.flatnonzero(traits & CONSUMES).tolist()
        self.consuming = tuple(dict.fromkeys([of.pools[position] for position in self._consuming]))
        """Pools with devices that consume counters."""
        self.is_plain = not self._shareable and not self._consuming
        self._capacities: dict[tuple[int, str], int] = {}
        self._capacities_left: list[int] = []

    def made(self) -> NodeProblem:
        ask = self._candidates.ask
        exhausted = self._exhausted()
        choices = tuple(self._choice(number, exhausted) for number in range(len(self._candidates.alternatives)))
        counters, counters_left = self._counters()
        number = 0
        requests = []
        for each in ask.requests:
            numbers = []
            for request in each:
                numbers.append(tuple(range(number, number + len(request.alternatives))))
                number += len(request.alternatives)
            requests.append(tuple(numbers))
        return NodeProblem(
            len(self.of.rows),
            choices,
            tuple(requests),
            tuple(tuple(request.is_prioritized for request in each) for each in ask.requests),
            self._rules(requests),
            sum(1 << position for position in self._shareable),
            _mask(self._in_use),
            counters,
            counters_left,
            tuple(self._capacities_left),
        )

    def _exhausted(self) -> list[int]:
        """The positions of devices in whose pool more of some counter is consumed than there is."""
        if not self._with_taken:
            return []
        standing, of = self._standing, self.of
        return [at for at in self._consuming if standing.is_exhausted(of.rows[at], of.pools[at])]

    def _choice(self, number: int, exhausted: list[int]) -> Choice:
        candidates, rows = self._candidates, self.of.rows
        alternative = candidates.alternatives[number]
        flags = candidates.flags(number)[self.of.numbers]
        meant = flags & MEANT > 0
        if self.of.reached is not None:
            meant &= self.of.reached
        for at in np.flatnonzero(meant & self._in_use).tolist():
            meant[at] = candidates.suffices(number, rows[at])
        usable = meant & (flags & USABLE > 0)
        usable[exhausted] = False
        fails = flags & FAILS > 0
        every = None
        if alternative.is_all:
            if fails.any():
                raise Unallocatable(candidates.complaint(number, rows[int(np.argmax(fails))]))
            every = tuple(np.flatnonzero(meant).tolist())
        if not alternative.is_admin:
            usable &= self._free
            fails &= self._free
        return Choice(
            alternative.request,
            alternative.count if every is None else len(every),
            every,
            alternative.is_admin,
            _mask(usable),
            _mask(fails),
            self._consumed(number, meant),
        )

    def _consumed(self, number: int, meant: NDArray[np.bool_]) -> tuple[Amounts, ...]:
        """By position: the capacities that a share of the device consumes."""
        consumes: list[Amounts] = [()] * len(self.of.rows)
        for position in self._shareable:
            if not meant[position]:
                continue
            row = self.of.rows[position]
            pairs = []
            for name, (amount, has) in sorted(self._candidates.consumed(number, row).items()):
                index = self._capacities.setdefault((position, name), len(self._capacities))
                if index == len(self._capacities_left):
                    before = self._standing.consumed_before(row).get(name, 0) if self._with_taken else 0
                    self._capacities_left.append(has - before)
                pairs.append((index, amount.thousandths))
            consumes[position] = tuple(pairs)
        return tuple(consumes)

    def _counters(self) -> tuple[tuple[Amounts, ...], tuple[int, ...]]:
        """By position the counters that the device consumes, and by counter how much is left of it."""
        numbers: dict[tuple[str, str, str, str], int] = {}
        left: list[int] = []
        consumed: list[Amounts] = [()] * len(self.of.rows)
        for position in self._consuming:
            placed = self.of.pools[position]
            available = self._standing.left(placed)
            pairs = []
            for (counter_set, name), amount in consumption(self._table.devices[self.of.rows[position]]).items():
                key = placed.pool.driver, placed.pool.name, counter_set, name
                index = numbers.setdefault(key, len(numbers))
                if index == len(left):
                    left.append(available[counter_set, name] if self._with_taken else 0)
                    self.counters.append((placed, (counter_set, name)))
                pairs.append((index, amount))
            consumed[position] = tuple(pairs)
        return tuple(consumed), tuple(left)

    def _rules(self, requests: list[tuple[tuple[int, ...], ...]]) -> tuple[tuple[ProblemRule, ...], ...]:
        candidates = self._candidates
        found = []
        for claim, constraints in enumerate(candidates.ask.constraints):
            rules = []
            for constraint in constraints:
                codes = candidates.properties.attribute(constraint.attribute).values[self.of.numbers]
                values = _relative(codes.tolist())
                of_claim = [number for each in requests[claim] for number in each]
                choices = frozenset(
                    number for number in of_claim if candidates.alternatives[number].is_named_in(constraint.requests)
                )
                rules.append(ProblemRule(constraint.is_distinct, values, choices))
            found.append(tuple(rules))
        return tuple(found)
