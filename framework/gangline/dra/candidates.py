"""Which devices the claims of a pod may get, in columns over the table, and one node's problem cut out of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gangline.dra.asking import Alternative, Ask
from gangline.dra.capacities import Amount, consumption
from gangline.dra.pools import Condition, Pool
from gangline.dra.problem import Amounts, Choice, Mask, Problem, Rule
from gangline.dra.selecting import FAILURE, YES, Selectors
from gangline.dra.standing import Standing
from gangline.dra.table import Codes
from gangline.status import BoolColumn


class Columns(NamedTuple):
    """What one alternative may get; one value for each row of the device table."""

    verdicts: Codes
    """What the selectors say."""
    meant: BoolColumn
    """Devices that are asked for: selectors hold, and the capacities could suffice."""
    candidates: BoolColumn
    """Of these, the ones that may be given."""
    failures: BoolColumn
    """Devices for which a selector fails, if coming upon one ends the search."""


class Unallocatable(Exception):
    """The claims cannot be allocated on a node, and there is no use in trying; the pod has to wait for a change."""


class Candidates:
    """The devices for one ask."""

    def __init__(self, ask: Ask, standing: Standing, selectors: Selectors) -> None:
        self.ask = ask
        self.standing = standing
        self.table = standing.table
        self.alternatives = ask.alternatives
        self._selectors = selectors
        self._consumption: dict[int, list[dict[str, tuple[Amount, int]] | None]] = {}
        self.columns = [self._columns(number) for number in range(len(self.alternatives))]

    def _columns(self, number: int) -> Columns:
        alternative = self.alternatives[number]
        table = self.table
        verdicts = self._selectors.verdicts(alternative.expressions)
        meant = (verdicts == YES) & self._sufficient(number, alternative)
        candidates = meant & ~self.standing.exhausted
        if alternative.tolerations or table.has_taints:
            candidates &= table.tolerated(alternative.tolerations)
        failures = verdicts >= FAILURE
        if not alternative.is_admin:
            candidates &= ~self.standing.taken
            failures &= ~self.standing.taken
        return Columns(verdicts, meant, candidates, failures)

    def _sufficient(self, number: int, alternative: Alternative) -> BoolColumn:
        """By row: whether the capacities suffice, as far as claims that are allocated leave them."""
        table = self.table
        kinds = table.capacities
        found = [consumption(table.devices[row].capacity, alternative.capacity) for row in kinds.first]
        self._consumption[number] = found
        suffices = (
            np.array([each is not None for each in found], dtype=np.bool_)[kinds.codes]
            if found
            else np.zeros(0, dtype=np.bool_)
        )
        for device, consumed in self.standing.usage.consumed.items():
            for row in table.index.get(device, ()):
                wanted = found[kinds.codes[row]]
                if wanted is not None:
                    suffices[row] = all(
                        amount.thousandths + consumed.get(name, 0) <= has for name, (amount, has) in wanted.items()
                    )
        return suffices

    def consumed(self, number: int, row: int) -> dict[str, tuple[Amount, int]]:
        """By capacity: what a share of a device consumes for an alternative, and what the device has."""
        return self._consumption[number][self.table.capacities.codes[row]] or {}

    def of_node(self, node: int) -> tuple[Problem, list[int]]:
        """The problem of a node, and the row of each position. Raises Unallocatable."""
        pools = self.table.pools_of(node)
        if any(alternative.is_all for alternative in self.alternatives):
            for pool in pools:
                if pool.condition is not Condition.USABLE:
                    state = "being updated" if pool.condition is Condition.INCOMPLETE else f"invalid: {pool.why}"
                    text = f"all devices are asked for, and the resource pool {pool.driver}/{pool.name} is {state}"
                    raise Unallocatable(text)
        return _Cut(self, node, [pool for pool in pools if pool.condition is Condition.USABLE]).problem()

    def failure(self, number: int, row: int) -> str:
        """Why the selectors of an alternative fail for a device."""
        return self._selectors.failures[int(self.columns[number].verdicts[row]) - FAILURE]


class _Cut:
    """The devices of one node that matter to an ask, and the numbers of a problem that they make."""

    def __init__(self, candidates: Candidates, node: int, pools: list[Pool]) -> None:
        self._candidates = candidates
        self._table = candidates.table
        self._of = candidates.alternatives
        table = self._table
        found = [(row, pool) for pool in pools for row in table.rows_of(pool)]
        rows = np.array([row for row, _ in found], dtype=np.int64)
        matters = np.zeros(len(rows), dtype=np.bool_)
        for columns in candidates.columns:
            matters |= columns.meant[rows] | (columns.verdicts[rows] >= FAILURE)
        self._rows: list[int] = rows[matters].tolist()
        self._pools = [found[index][1] for index in np.flatnonzero(matters).tolist()]
        self._reached = np.array([self._reaches(row, node) for row in self._rows], dtype=np.bool_)

    def _reaches(self, row: int, node: int) -> bool:
        number = self._table.slice_of[row]
        reached = self._table.reached.get(number)
        return reached is None or bool(reached[row - self._table.rows_of_slice(number).start][node])

    def _mask(self, column: NDArray[np.bool_]) -> Mask:
        return int.from_bytes(np.packbits(column, bitorder="little").tobytes(), "little")

    def problem(self) -> tuple[Problem, list[int]]:
        table, candidates, rows = self._table, self._candidates, self._rows
        shareable = table.shareable[rows]
        capacities: dict[tuple[int, str], int] = {}
        capacities_left: list[int] = []
        choices = []
        for number, alternative in enumerate(self._of):
            columns = candidates.columns[number]
            meant = columns.meant[rows] & self._reached
            every = None
            if alternative.is_all:
                failing = np.flatnonzero(columns.verdicts[rows] >= FAILURE)
                if len(failing):
                    raise Unallocatable(candidates.failure(number, rows[int(failing[0])]))
                every = tuple(np.flatnonzero(meant).tolist())
            consumes: list[Amounts] = [()] * len(rows)
            for position in np.flatnonzero(shareable & meant).tolist():
                row = rows[position]
                pairs = []
                for name, (amount, has) in sorted(candidates.consumed(number, row).items()):
                    index = capacities.setdefault((position, name), len(capacities))
                    if index == len(capacities_left):
                        capacities_left.append(has - candidates.standing.consumed_before(row).get(name, 0))
                    pairs.append((index, amount.thousandths))
                consumes[position] = tuple(pairs)
            choices.append(
                Choice(
                    alternative.request,
                    alternative.count if every is None else len(every),
                    every,
                    alternative.is_admin,
                    self._mask(columns.candidates[rows] & self._reached),
                    0 if alternative.is_all else self._mask(columns.failures[rows]),
                    tuple(consumes),
                )
            )
        counters, counters_left = self._counters()
        number = 0
        requests = []
        for each in candidates.ask.requests:
            numbers = []
            for request in each:
                numbers.append(tuple(range(number, number + len(request.alternatives))))
                number += len(request.alternatives)
            requests.append(tuple(numbers))
        problem = Problem(
            len(rows),
            tuple(choices),
            tuple(requests),
            tuple(tuple(request.is_prioritized for request in each) for each in candidates.ask.requests),
            self._rules(requests),
            self._mask(shareable),
            self._mask(candidates.standing.in_use[rows]),
            counters,
            counters_left,
            tuple(capacities_left),
        )
        return problem, rows

    def _counters(self) -> tuple[tuple[Amounts, ...], tuple[int, ...]]:
        """By position: the counters that a device consumes; and what is left of each counter."""
        numbers: dict[tuple[str, str, str, str], int] = {}
        left: list[int] = []
        consumed: list[Amounts] = []
        for row, pool in zip(self._rows, self._pools, strict=True):
            pairs = []
            if self._table.consumes[row]:
                available = self._candidates.standing.left(pool)
                for (counter_set, name), amount in self._table.consumption(row).items():
                    index = numbers.setdefault((pool.driver, pool.name, counter_set, name), len(numbers))
                    if index == len(left):
                        left.append(available[counter_set, name])
                    pairs.append((index, amount))
            consumed.append(tuple(pairs))
        return tuple(consumed), tuple(left)

    def _rules(self, requests: list[tuple[tuple[int, ...], ...]]) -> tuple[tuple[Rule, ...], ...]:
        found = []
        for claim, constraints in enumerate(self._candidates.ask.constraints):
            rules = []
            for constraint in constraints:
                numbers: dict[int, int] = {}
                values = tuple(
                    code if code < 0 else numbers.setdefault(code, len(numbers))
                    for code in self._table.attribute(constraint.attribute)[self._rows].tolist()
                )
                of_claim = [number for numbers_ in requests[claim] for number in numbers_]
                choices = frozenset(number for number in of_claim if self._of[number].is_named_in(constraint.requests))
                rules.append(Rule(constraint.is_distinct, values, choices))
            found.append(tuple(rules))
        return tuple(found)
