"""One node's problem, cut out of the columns of candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gangline.dra.candidates import FAILS, MEANT, USABLE, Candidates
from gangline.dra.pools import Condition
from gangline.dra.problem import Amounts, Choice, Mask, Problem, Rule
from gangline.dra.reading import CONSUMES, SHAREABLE, consumption
from gangline.dra.rows import RowNumbers
from gangline.dra.solving import Shape, Solver
from gangline.dra.standing import IN_USE, TAKEN
from gangline.dra.table import Placed


class Unallocatable(Exception):
    """The claims cannot be allocated on a node, and there is no use in trying; the pod has to wait for a change."""


@dataclass(frozen=True, slots=True, eq=False)
class Cut:
    """The devices of a node that matter to an ask."""

    numbers: RowNumbers
    """By position: the row."""
    rows: list[int]
    """The same numbers."""
    pools: list[Placed]
    """By position."""
    reached: NDArray[np.bool_] | None
    """By position: whether the node may use the device; None if it may use all."""
    whole: Problem | None = None
    """The problem while nothing is taken, if no device may be shared nor consumes counters: then the problem follows
    from this and from what is taken."""
    shape: Shape | None = None
    """What nodes with the same `whole` have in common."""


def cut(candidates: Candidates, node: int, solver: Solver) -> Cut:
    """The devices of a node. Raises Unallocatable."""
    table = candidates.table
    pools = table.pools_of(node)
    if any(alternative.is_all for alternative in candidates.alternatives):
        for placed in pools:
            pool = placed.pool
            if pool.condition is not Condition.USABLE:
                state = "being updated" if pool.condition is Condition.INCOMPLETE else f"invalid: {pool.why}"
                text = f"all devices are asked for, and the resource pool {pool.driver}/{pool.name} is {state}"
                raise Unallocatable(text)
    pools = [placed for placed in pools if placed.pool.condition is Condition.USABLE]
    rows = np.concatenate([placed.rows for placed in pools]) if pools else np.arange(0)
    of_pool = [placed for placed in pools for _ in range(len(placed.rows))]
    found = np.flatnonzero(candidates.matter(rows)).tolist()
    rows = rows[found]
    numbers = rows.tolist()
    reached = None
    if any(placed.selects_devices for placed in pools):
        reached = np.array([table.reaches(row, node) for row in numbers], dtype=np.bool_)
    placed_at = [of_pool[at] for at in found]
    found_cut = Cut(rows, numbers, placed_at, reached)
    if (table.traits[rows] & (SHAREABLE | CONSUMES)).any():
        return found_cut
    whole = _Problem(candidates, found_cut, False).made()
    return Cut(rows, numbers, placed_at, reached, whole, solver.shape(whole))


def problem_of(candidates: Candidates, of: Cut) -> Problem:
    """The problem of a node as things stand. Raises Unallocatable."""
    states = candidates.standing.states[of.numbers]
    if of.whole is None or (states & IN_USE).any():
        return _Problem(candidates, of, True).made()
    taken = _mask(states & TAKEN > 0)
    if not taken:
        return of.whole
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
        for each in of.whole.choices
    ]
    return replace(of.whole, choices=tuple(choices))


def _mask(column: NDArray[Any]) -> Mask:
    return int.from_bytes(np.packbits(column, bitorder="little").tobytes(), "little")


class _Problem:
    """Makes the numbers of a problem."""

    def __init__(self, candidates: Candidates, of: Cut, with_taken: bool) -> None:
        self._candidates = candidates
        self._standing = candidates.standing
        self._table = candidates.table
        self._cut = of
        states = self._standing.states[of.numbers] if with_taken else np.zeros(len(of.rows), dtype=np.uint8)
        self._free = states & TAKEN == 0
        self._in_use = states & IN_USE > 0
        traits = self._table.traits[of.numbers]
        self._shareable = np.flatnonzero(traits & SHAREABLE).tolist()
        self._consuming = np.flatnonzero(traits & CONSUMES).tolist()
        self._capacities: dict[tuple[int, str], int] = {}
        self._capacities_left: list[int] = []

    def made(self) -> Problem:
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
        return Problem(
            len(self._cut.rows),
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
        """Positions of devices that consume counters of which too much is consumed."""
        standing, of = self._standing, self._cut
        return [at for at in self._consuming if standing.is_exhausted(of.rows[at], of.pools[at])]

    def _choice(self, number: int, exhausted: list[int]) -> Choice:
        candidates, rows = self._candidates, self._cut.rows
        alternative = candidates.alternatives[number]
        flags = candidates.flags(number)[self._cut.numbers]
        meant = flags & MEANT > 0
        if self._cut.reached is not None:
            meant &= self._cut.reached
        for at in np.flatnonzero(meant & self._in_use).tolist():
            meant[at] = candidates.suffices(number, rows[at])
        usable = meant & (flags & USABLE > 0)
        usable[exhausted] = False
        fails = flags & FAILS > 0
        every = None
        if alternative.is_all:
            if fails.any():
                raise Unallocatable(candidates.failure(number, rows[int(np.argmax(fails))]))
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
        consumes: list[Amounts] = [()] * len(self._cut.rows)
        for position in self._shareable:
            if not meant[position]:
                continue
            row = self._cut.rows[position]
            pairs = []
            for name, (amount, has) in sorted(self._candidates.consumed(number, row).items()):
                index = self._capacities.setdefault((position, name), len(self._capacities))
                if index == len(self._capacities_left):
                    self._capacities_left.append(has - self._standing.consumed_before(row).get(name, 0))
                pairs.append((index, amount.thousandths))
            consumes[position] = tuple(pairs)
        return tuple(consumes)

    def _counters(self) -> tuple[tuple[Amounts, ...], tuple[int, ...]]:
        """By position: the counters that a device consumes; and what is left of each counter."""
        numbers: dict[tuple[str, str, str, str], int] = {}
        left: list[int] = []
        consumed: list[Amounts] = [()] * len(self._cut.rows)
        for position in self._consuming:
            placed = self._cut.pools[position]
            available = self._standing.left(placed)
            pairs = []
            for (counter_set, name), amount in consumption(self._table.devices[self._cut.rows[position]]).items():
                key = placed.pool.driver, placed.pool.name, counter_set, name
                index = numbers.setdefault(key, len(numbers))
                if index == len(left):
                    left.append(available[counter_set, name])
                pairs.append((index, amount))
            consumed[position] = tuple(pairs)
        return tuple(consumed), tuple(left)

    def _rules(self, requests: list[tuple[tuple[int, ...], ...]]) -> tuple[tuple[Rule, ...], ...]:
        candidates = self._candidates
        found = []
        for claim, constraints in enumerate(candidates.ask.constraints):
            rules = []
            for constraint in constraints:
                numbers: dict[int, int] = {}
                codes = candidates.properties.attribute(constraint.attribute).values[self._cut.numbers]
                values = tuple(code if code < 0 else numbers.setdefault(code, len(numbers)) for code in codes.tolist())
                of_claim = [number for each in requests[claim] for number in each]
                choices = frozenset(
                    number for number in of_claim if candidates.alternatives[number].is_named_in(constraint.requests)
                )
                rules.append(Rule(constraint.is_distinct, values, choices))
            found.append(tuple(rules))
        return tuple(found)
