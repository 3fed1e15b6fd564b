"""Searches: solutions are valid, there is one if any assignment is, and no short cut changes which one is found."""

from __future__ import annotations

from itertools import combinations
from random import Random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from gangline.dra import search
from gangline.dra.outlook import SearchOutlook
from gangline.dra.problem import Choice, NodeProblem, ProblemRule, positions
from gangline.dra.search import MOST_STEPS, Ending, SearchAnswer, solve

RANDOM = st.randoms(use_true_random=False)


def problem(
    size: int,
    claims: list[list[list[Choice]]],
    rules: list[list[ProblemRule]] | None = None,
    counters: list[tuple[tuple[int, int], ...]] | None = None,
    counters_left: tuple[int, ...] = (),
    shareable: int = 0,
    capacities_left: tuple[int, ...] = (),
) -> NodeProblem:
    """A problem of claims of requests of alternatives."""
    choices = [choice for requests in claims for request in requests for choice in request]
    numbers = iter(range(len(choices)))
    return NodeProblem(
        size,
        tuple(choices),
        tuple(tuple(tuple(next(numbers) for _ in request) for request in requests) for requests in claims),
        tuple(tuple(len(request) > 1 for request in requests) for requests in claims),
        tuple(map(tuple, rules or [[] for _ in claims])),
        shareable,
        0,
        tuple(counters or [()] * size),
        counters_left,
        capacities_left,
    )


def choice(base: int, count: int, candidates: int, size: int, **fields: object) -> Choice:
    given_fields = {"every": None, "is_admin": False, "failures": 0, "consumes": ((),) * size, **fields}
    return Choice(base=base, count=count, candidates=candidates, **given_fields)  # type: ignore[arg-type]


def some_problem(random: Random, *, distinct: bool = True, failing: bool = True) -> NodeProblem:
    """A small problem with some of everything."""
    size = random.randint(1, 6)
    everything = (1 << size) - 1
    shareable = random.getrandbits(size) & random.getrandbits(size) if random.random() < 0.3 else 0
    consumes = tuple(
        ((position, random.randint(1, 3)),) if shareable >> position & 1 else () for position in range(size)
    )

    def some_choice(base: int) -> Choice:
        mask = random.getrandbits(size) | random.getrandbits(size)
        failures = (
            random.getrandbits(size) & ~mask & random.getrandbits(size) if failing and random.random() < 0.2 else 0
        )
        if random.random() < 0.15:
            every = tuple(positions(mask))
            return choice(
                base, len(every), mask & (everything ^ (random.random() < 0.1)), size, every=every, consumes=consumes
            )
        is_admin = random.random() < 0.1
        count = random.randint(1, 3)
        return choice(base, count, mask, size, is_admin=is_admin, failures=failures, consumes=consumes)

    claims = [
        [[some_choice(base) for _ in range(random.choice([1, 1, 1, 2]))] for base in range(random.randint(1, 2))]
        for _ in range(random.randint(1, 2))
    ]
    first, rules = 0, []
    for requests in claims:
        numbers = range(first, first + sum(map(len, requests)))
        first = numbers.stop
        rules.append(
            [
                ProblemRule(
                    distinct and random.random() < 0.4,
                    tuple(random.choice([-2, -1, 0, 0, 1, 1, 2]) for _ in range(size)),
                    frozenset(number for number in numbers if random.random() < 0.8),
                )
                for _ in range(random.choice([0, 1, 1, 2]))
            ]
        )
    counters = [
        tuple((index, random.randint(0, 2)) for index in range(2) if random.random() < 0.5) for _ in range(size)
    ]
    left = random.randint(0, 4), random.randint(1, 5)
    return problem(size, claims, rules, counters, left, shareable, (4,) * size)


def is_valid(given: NodeProblem, devices: list[tuple[int, int, int]]) -> bool:
    """Whether devices (claim, choice, position) may be given together, whatever the order."""
    held: dict[int, list[tuple[int, int]]] = {}
    counters, capacities = list(given.counters_left), list(given.capacities_left)
    for claim, number, position in devices:
        held.setdefault(position, []).append((claim, number))
        for index, amount in given.choices[number].consumes[position]:
            capacities[index] -= amount
    for position, holders in held.items():
        is_shared = given.shareable >> position & 1
        normal = [each for each in holders if not given.choices[each[1]].is_admin]
        if not is_shared and (len(normal) > 1 or len({claim for claim, _ in holders}) < len(holders)):
            return False
        for index, amount in given.counters[position]:
            counters[index] -= amount * (1 if is_shared else len(holders))
    if min(counters, default=0) < 0 or min(capacities, default=0) < 0:
        return False
    for claim, rules in enumerate(given.rules):
        for rule in rules:
            values = [rule.values[at] for of, number, at in devices if of == claim and number in rule.choices]
            if -1 in values or (len(values) > 1 and -2 in values):
                return False
            if len(values) > 1 and len(set(values)) != (len(values) if rule.is_distinct else 1):
                return False
    return True


def by_brute_force(given: NodeProblem) -> bool:
    """Whether any devices at all may be given together."""
    requests = [(claim, numbers) for claim, of_claim in enumerate(given.requests) for numbers in of_claim]

    def extend(index: int, devices: list[tuple[int, int, int]]) -> bool:
        if index == len(requests):
            return is_valid(given, devices)
        claim, numbers = requests[index]
        for number in numbers:
            each = given.choices[number]
            sets = [each.every] if each.every is not None else combinations(positions(each.candidates), each.count)
            for found in sets:
                usable = all(each.candidates >> position & 1 for position in found)
                more = [*devices, *((claim, number, position) for position in found)]
                if (found or each.every is None) and usable and extend(index + 1, more):
                    return True
        return False

    return extend(0, [])


def by_trying_everything(given: NodeProblem) -> SearchAnswer:
    """The same search without memory and without counting."""
    with (
        patch.object(search._Search, "_state", lambda *_: object()),
        patch.object(SearchOutlook, "is_hopeless", lambda *_: False),
    ):
        return solve(given, 10**7)


@given(RANDOM)
def test_memory_and_counting_do_not_change_the_answer(random: Random) -> None:
    given_problem = some_problem(random)

    found, plain = solve(given_problem), by_trying_everything(given_problem)

    assert (found.ending, found.given, found.chosen) == (plain.ending, plain.given, plain.chosen)


@given(RANDOM)
def test_there_is_a_solution_if_and_only_if_brute_force_finds_one(random: Random) -> None:
    given_problem = some_problem(random, distinct=False, failing=False)

    answer = solve(given_problem)

    if answer.ending is Ending.FOUND:
        assert is_valid(given_problem, list(answer.given))
    # An admin's device is marked like any other, so that the order of requests matters; brute force has no order.
    elif answer.ending is Ending.NONE and not any(each.is_admin for each in given_problem.choices):
        assert not by_brute_force(given_problem)


def test_two_values_that_nobody_shares_are_seen_without_trying_all() -> None:
    size = 48
    rules = [
        ProblemRule(False, tuple(range(size)), frozenset((0,))),
        ProblemRule(False, tuple(range(size)), frozenset((1,))),
    ]
    everything = (1 << size) - 1
    requests = [[choice(0, 2, everything, size)], [choice(1, 12, everything, size)]]

    answer = solve(problem(size, [requests], [rules]))

    assert answer.ending is Ending.NONE
    assert answer.steps < 500


def test_pigeons_without_holes_are_counted() -> None:
    size = 32
    mask = (1 << size - 1) - 1
    claims = [[[choice(0, 16, mask, size)]], [[choice(0, 16, mask, size)]]]

    answer = solve(problem(size, claims))

    assert answer.ending is Ending.NONE
    assert answer.steps < 2000


def test_a_search_that_counting_cannot_shorten_ends_and_says_so() -> None:
    random = Random(7)
    size = 60
    counters = [tuple((index, random.randint(1, 1000)) for index in range(12)) for _ in range(size)]

    answer = solve(problem(size, [[[choice(0, 10, (1 << size) - 1, size)]]], None, counters, (3000,) * 12))

    assert answer.ending is Ending.GAVE_UP
    assert answer.steps == MOST_STEPS + 1


def test_as_many_claims_as_a_pod_can_have_need_no_recursion() -> None:
    size = 256 * 16
    everything = (1 << size) - 1

    answer = solve(problem(size, [[[choice(0, 16, everything, size)]] for _ in range(256)]))

    assert answer.ending is Ending.FOUND
    assert [position for _, _, position in answer.given] == list(range(size))
