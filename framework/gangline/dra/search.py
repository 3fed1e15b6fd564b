"""The first solution of kube-scheduler's search, device by device, without its exponential time.

kube-scheduler's allocator (k8s.io/dynamic-resource-allocation/structured) takes requests in order and devices in order,
and goes back where no device can be given. This search does the same, with three differences. Two cannot change the
result: the search remembers states from which no solution was found, and does not enter a branch that counting
(`outlook`) proves to be without a solution. The third is a limit: after so many steps the search gives up, and its
answer says so.
"""

from __future__ import annotations

import enum
from collections.abc import Generator, Hashable
from dataclasses import dataclass, field

from gangline.dra.asking import MOST_DEVICES
from gangline.dra.holding import Holding, Violation
from gangline.dra.outlook import SearchOutlook
from gangline.dra.problem import Choice, NodeProblem, ProblemRule, positions

MOST_STEPS = 50_000
"""Steps of one search, at most: devices that are tried, and calls of and returns from a step of the walk."""
_MOST_KINDS = 32
"""With more kinds of alike devices than this, a state lists the devices themselves instead of counting each kind."""


class Ending(enum.Enum):
    """How a search ends."""

    FOUND = "found"
    NONE = "none"
    """There is no solution."""
    FAILED = "failed"
    """A selector fails with an error for a device that the search has reached."""
    VIOLATED = "violated"
    """A request asks for all devices, and these devices break a constraint."""
    GAVE_UP = "gave up"
    """The search has taken as many steps as it may."""


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """How a search ended, and the devices that it gave."""

    ending: Ending
    given: tuple[tuple[int, int, int], ...] = ()
    """Claim, choice and position of each device, in the order in which the devices were given."""
    chosen: dict[tuple[int, int], int] = field(default_factory=dict)
    """By claim and request, for requests that list alternatives: the number of the choice."""
    culprit: tuple[int, int] | None = None
    """Choice and position of the device that ended a FAILED or VIOLATED search."""
    steps: int = 0


def solve(problem: NodeProblem, most_steps: int = MOST_STEPS) -> SearchAnswer:
    """The first solution in kube-scheduler's order."""
    return _Search(problem, most_steps).run()


def is_free_of_order(problem: NodeProblem) -> bool:
    """Whether the order of the devices decides only which devices are given, and not how the search ends."""
    return not _remembers_order(problem) and not _can_end_early(problem)


class _Result(enum.Enum):
    FOUND = enum.auto()
    NONE = enum.auto()
    TOO_MANY = enum.auto()
    """Whatever is chosen from here, the claim gets more devices than it may have."""


class _Failure(Exception):
    def __init__(self, choice: int, position: int) -> None:
        super().__init__(choice, position)
        self.culprit = choice, position


class _TooLong(Exception):
    pass


_Walk = Generator["_Walk", _Result, _Result]


class _Search:
    def __init__(self, problem: NodeProblem, most_steps: int) -> None:
        self._problem = problem
        self._holding = Holding(problem)
        self._most = most_steps
        self._steps = 0
        self._chosen: dict[tuple[int, int], int] = {}
        self._remembers_order = _remembers_order(problem)
        can_end_early = _can_end_early(problem)
        self._looks_ahead = not (self._remembers_order or can_end_early)
        self._outlook: SearchOutlook | None = None
        """Made when the search turns back for the first time: most searches never do."""
        self._alike = None if self._remembers_order or can_end_early else _alike(problem)
        if self._alike is not None and len(self._alike) > _MOST_KINDS:
            self._alike = None
        self._has_turned_back = False
        self._dead: dict[Hashable, tuple[_Result, list[list[tuple[int, dict[int, int]]]] | None]] = {}

    def run(self) -> SearchAnswer:
        """The answer. Unfinished walks are on a stack of their own, so Python's recursion limit does not matter."""
        try:
            result = self._walk()
        except _Failure as failure:
            return SearchAnswer(Ending.FAILED, culprit=failure.culprit, steps=self._steps)
        except Violation as violation:
            return SearchAnswer(Ending.VIOLATED, culprit=(violation.choice, violation.position), steps=self._steps)
        except _TooLong:
            return SearchAnswer(Ending.GAVE_UP, steps=self._steps)
        if result is not _Result.FOUND:
            return SearchAnswer(Ending.NONE, steps=self._steps)
        given = tuple((claim, choice, position) for claim, choice, position, _ in self._holding.given)
        return SearchAnswer(Ending.FOUND, given, self._chosen, steps=self._steps)

    def _walk(self) -> _Result:
        stack = [self._request(0, 0)]
        result: _Result | None = None
        while stack:
            self._count()
            try:
                step = stack[-1].send(result)  # type: ignore[arg-type]  # the first send of a generator is None
            except StopIteration as end:
                stack.pop()
                result = end.value
                continue
            stack.append(step)
            result = None
        assert result is not None
        return result

    def _count(self) -> None:
        self._steps += 1
        if self._steps > self._most:
            raise _TooLong

    def _request(self, claim: int, request: int) -> _Walk:
        """Walk on from the start of a request to the end of all claims."""
        problem = self._problem
        if claim == len(problem.requests):
            return _Result.FOUND
        if request == len(problem.requests[claim]):
            result = yield self._request(claim + 1, 0)
            return result if result is _Result.FOUND else _Result.NONE
        choices = problem.requests[claim][request]
        if not problem.prioritized[claim][request]:
            result = yield self._device(claim, request, choices[0], 0, 0)
            return result
        all_too_many = True
        for number in choices:
            result = yield self._device(claim, request, number, 0, 0)
            if result is _Result.FOUND:
                self._chosen[claim, request] = number
                return result
            all_too_many = all_too_many and result is _Result.TOO_MANY
        return _Result.TOO_MANY if all_too_many else _Result.NONE

    def _device(self, claim: int, request: int, number: int, index: int, start: int) -> _Walk:
        """Walk on from the `index`-th device of a request to the end of all claims.

        Devices before position `start` are not tried for this device.
        """
        choice = self._problem.choices[number]
        if choice.every is not None and not choice.every:
            return _Result.NONE
        if index >= choice.count:
            result = yield self._request(claim, request + 1)
            return result
        holding = self._holding
        has = holding.numbers[claim]
        if has + choice.count - index > MOST_DEVICES:
            return _Result.TOO_MANY
        key = self._state(claim, number, index, start, has)
        if key in self._dead:
            result, marks = self._dead[key]
            if marks is not None:
                holding.marks = _copied(marks)
            return result
        if (
            self._has_turned_back
            and self._looks_ahead
            and self._ahead.is_hopeless(holding, claim, request, number, index, start)
        ):
            result = _Result.NONE
        elif choice.every is not None:
            result = yield self._every(claim, request, number, index)
        else:
            result = yield self._some(claim, request, number, index, start)
        if result is not _Result.FOUND:
            self._has_turned_back = True
            self._dead[key] = result, _copied(holding.marks) if self._remembers_order else None
        return result

    @property
    def _ahead(self) -> SearchOutlook:
        if self._outlook is None:
            self._outlook = SearchOutlook(self._problem)
        return self._outlook

    def _every(self, claim: int, request: int, number: int, index: int) -> _Walk:
        """Give the next device of a request that asks for all devices: no other device can take its place."""
        choice = self._problem.choices[number]
        assert choice.every is not None
        position = choice.every[index]
        if not choice.candidates >> position & 1 or not self._holding.give(claim, number, position, True):
            return _Result.NONE
        result = yield self._device(claim, request, number, index + 1, 0)
        if result is not _Result.FOUND:
            self._holding.take_back()
        return result

    def _some(self, claim: int, request: int, number: int, index: int, start: int) -> _Walk:
        """Try each device in turn."""
        holding = self._holding
        choice = self._problem.choices[number]
        met = (choice.candidates | choice.failures) & ~holding.kept_from(claim, choice)
        for position in positions(met >> start << start):
            self._count()
            if choice.failures >> position & 1:
                raise _Failure(number, position)
            if not holding.has_capacity(choice, position) or not holding.give(claim, number, position, False):
                continue
            result = yield self._device(claim, request, number, index + 1, position + 1)
            if result is _Result.FOUND:
                return result
            holding.take_back()
            if result is _Result.TOO_MANY:
                return result
        return _Result.NONE

    def _state(self, claim: int, number: int, index: int, start: int, has: int) -> Hashable:
        """Equal for two states of the search from which the rest of the search has the same result."""
        holding = self._holding
        where = claim, number, index, has
        marks = tuple(
            (count > 0, tuple(sorted(values.values())) if count else ()) for count, values in holding.marks[claim]
        )
        left = tuple(holding.counters), tuple(holding.capacities), holding.shared
        if self._alike is None:
            exact = tuple((count, tuple(sorted(values.items()))) for count, values in holding.marks[claim])
            return where, start, holding.held, holding.held_by[claim], exact, left
        held, own = holding.held, holding.held_by[claim]
        after = -1 << start
        counts = tuple(
            (
                (held & mask).bit_count(),
                (held & mask & after).bit_count(),
                (own & mask).bit_count(),
                (mask & after).bit_count(),
            )
            for mask in self._alike
        )
        return where, counts, marks, left


def _copied(marks: list[list[tuple[int, dict[int, int]]]]) -> list[list[tuple[int, dict[int, int]]]]:
    return [[(count, dict(values)) for count, values in rules] for rules in marks]


def _rules(problem: NodeProblem) -> list[ProblemRule]:
    return [rule for rules in problem.rules for rule in rules]


def _remembers_order(problem: NodeProblem) -> bool:
    """Whether a rule remembers values that depend on devices which were given and taken back before.

    As in kube-scheduler, a rule that wants distinct values remembers one value for each request, and forgets the value
    when any device of the request is taken back. So with requests of several devices the search enters every branch.
    """
    return any(
        rule.is_distinct and any(problem.choices[number].count > 1 for number in rule.choices)
        for rule in _rules(problem)
    )


def _can_end_early(problem: NodeProblem) -> bool:
    """Whether a search may end when it reaches a certain device."""
    return any(choice.failures for choice in problem.choices) or _can_violate(problem)


def _can_violate(problem: NodeProblem) -> bool:
    """Whether a search may end because a request asks for all devices and these break a rule."""
    return any(problem.choices[number].every for rule in _rules(problem) for number in rule.choices)


def _alike(problem: NodeProblem) -> list[int]:
    """The kinds of devices, as masks: the search cannot tell devices of one kind apart."""

    def kind(position: int) -> Hashable:
        def of(choice: Choice) -> Hashable:
            is_every = choice.every is not None and position in choice.every
            return choice.candidates >> position & 1, is_every, choice.consumes[position]

        return (
            tuple(of(choice) for choice in problem.choices),
            tuple(rule.values[position] for rule in _rules(problem)),
            problem.shareable >> position & 1,
            problem.in_use >> position & 1,
            problem.counters[position],
        )

    masks: dict[Hashable, int] = {}
    for position in range(problem.size):
        key = kind(position)
        masks[key] = masks.get(key, 0) | 1 << position
    return list(masks.values())
