"""The cheapest of several solutions of a problem: the allocation order `best`.

kube-scheduler takes the first solution in the order of the devices. This module looks for other solutions by the same
search, which is given the devices in other orders: first the devices with the least loss, then, where several devices
are asked for, the devices that are linked with one of them. So all solutions obey the same rules, and the order `best`
has a solution exactly if kube-scheduler's order has one. Where the order of the devices can also change how a search
ends (`search.is_free_of_order`), nothing is reordered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from gangline.dra.problem import Choice, Mask, NodeProblem, positions
from gangline.dra.search import Ending, SearchAnswer, is_free_of_order, solve
from gangline.dra.stakes import Stakes

MOST_STARTS = 16
"""Groups of linked devices, at most, that are tried in turn as the group that comes first."""
_MOST_CELLS = 200_000
"""Devices times choices, summed over all orders that are tried: a very large problem keeps its first solution."""
_EQUAL = 1e-9
"""Losses that differ by less than this count as equal: the difference is a rounding error."""


def improved(problem: NodeProblem, stakes: Stakes, first: SearchAnswer, most_steps: int) -> SearchAnswer:
    """The cheapest solution that was found; `first`, the solution in the order of the positions, if none is cheaper."""
    if not first.given or not is_free_of_order(problem):
        return first
    best, least = first, loss_of(problem, stakes, first)
    most_orders = _MOST_CELLS // (problem.size * (1 + len(problem.choices)))
    for order in islice(_orders(problem, stakes, len(first.given)), most_orders):
        answer = _solved(problem, order, most_steps // (1 + MOST_STARTS))
        if answer.ending is Ending.FOUND and (loss := loss_of(problem, stakes, answer)) < least - _EQUAL:
            best, least = answer, loss
    return best


def loss_of(problem: NodeProblem, stakes: Stakes, answer: SearchAnswer) -> float:
    """The loss with the devices of an answer; devices that a claim only observes cost nothing."""
    taken = [position for _, number, position in answer.given if not problem.choices[number].is_admin]
    return stakes.loss(sorted(taken))


def _orders(problem: NodeProblem, stakes: Stakes, number: int) -> Iterator[list[int]]:
    """The orders in which the positions are tried, the most promising first; `number` devices are asked for."""
    candidates: Mask = 0
    for choice in problem.choices:
        candidates |= choice.candidates
    losses = {position: stakes.loss([position]) for position in positions(candidates)}
    by_loss = sorted(losses, key=lambda position: losses[position])
    rest = [position for position in range(problem.size) if position not in losses]
    yield [*by_loss, *rest]
    if number < 2:
        return
    starts: dict[tuple[object, ...], int] = {}
    for position in by_loss:
        kind = stakes.links[position], tuple(each for each, _ in stakes.parts[position])
        starts.setdefault(kind, position)
    for start in list(starts.values())[:MOST_STARTS]:
        own = {each for each, _ in stakes.parts[start]}
        far = {
            position: (stakes.far(start, position), own.isdisjoint(each for each, _ in stakes.parts[position]))
            for position in by_loss
        }
        yield [*sorted(by_loss, key=lambda position: far[position]), *rest]


def _solved(problem: NodeProblem, order: Sequence[int], most_steps: int) -> SearchAnswer:
    """The first solution if the positions are tried in this order."""
    answer = solve(_reordered(problem, order), most_steps)
    return replace(answer, given=tuple((claim, choice, order[at]) for claim, choice, at in answer.given))


def _reordered(problem: NodeProblem, order: Sequence[int]) -> NodeProblem:
    """The same problem, with the device of position `order[i]` at position i."""
    place = {position: at for at, position in enumerate(order)}

    def moved(mask: Mask) -> Mask:
        return sum(1 << place[position] for position in positions(mask))

    def choice(each: Choice) -> Choice:
        return replace(
            each,
            every=None if each.every is None else tuple(place[position] for position in each.every),
            candidates=moved(each.candidates),
            failures=moved(each.failures),
            consumes=tuple(each.consumes[position] for position in order),
        )

    return replace(
        problem,
        choices=tuple(map(choice, problem.choices)),
        rules=tuple(
            tuple(rule._replace(values=tuple(rule.values[position] for position in order)) for rule in rules)
            for rules in problem.rules
        ),
        shareable=moved(problem.shareable),
        in_use=moved(problem.in_use),
        counters=tuple(problem.counters[position] for position in order),
    )
