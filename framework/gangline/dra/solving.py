"""Keeps the answers to problems: nodes with equal problems share one search, whichever question leads to it."""

from __future__ import annotations

from collections.abc import Hashable

from gangline.dra.best import improved
from gangline.dra.problem import NodeProblem
from gangline.dra.search import MOST_STEPS, SearchAnswer, solve
from gangline.dra.stakes import Stakes
from gangline.sizes import BoundedCache

_MOST_BYTES = 32 << 20
"""Bytes of the answers, at most; as many of the improved answers, and of the shapes."""
_PROBLEM_BYTES = 1500
"""Bytes of a problem without its positions, about."""
_POSITION_BYTES = 150
_STATE_BYTES = 500
"""Bytes of an answer that a shape keeps for a state of its devices."""


class ProblemShape:
    """Stands for all nodes that have equal problems while all their devices are free."""

    __slots__ = ("answers", "problem")

    def __init__(self, problem: NodeProblem) -> None:
        self.problem = problem
        self.answers: BoundedCache[Hashable, SearchAnswer] = BoundedCache(
            1 << 20, lambda *_: _STATE_BYTES + _POSITION_BYTES // 2 * problem.size
        )
        """By the states of the devices; see `cutting.state_of`."""


class Solver:
    """Solves problems, each once, as long as its answer is kept."""

    def __init__(self, most_steps: int = MOST_STEPS) -> None:
        self.most_steps = most_steps
        self._answers: BoundedCache[NodeProblem, SearchAnswer] = BoundedCache(_MOST_BYTES, _size)
        self._improved: BoundedCache[tuple[NodeProblem, Stakes], SearchAnswer] = BoundedCache(
            _MOST_BYTES, lambda key, _: 2 * _size(key[0], None)
        )
        self._shapes: BoundedCache[NodeProblem, ProblemShape] = BoundedCache(
            _MOST_BYTES, lambda problem, shape: _size(problem, shape) + shape.answers.bytes
        )

    def solve(self, problem: NodeProblem) -> SearchAnswer:
        """The first solution of a problem in kube-scheduler's order, or why there is none."""
        answer = self._answers.get(problem)
        if answer is None:
            answer = self._answers.put(problem, solve(problem, self.most_steps))
        return answer

    def improve(self, problem: NodeProblem, stakes: Stakes, first: SearchAnswer) -> SearchAnswer:
        """The cheapest solution that `best.improved` finds; `first` is the solution in the order of the positions."""
        key = problem, stakes
        answer = self._improved.get(key)
        if answer is None:
            answer = self._improved.put(key, improved(problem, stakes, first, self.most_steps))
        return answer

    def shape(self, problem: NodeProblem) -> ProblemShape:
        """The shape of nodes that have this problem while all their devices are free."""
        shape = self._shapes.get(problem)
        return self._shapes.put(problem, ProblemShape(problem)) if shape is None else shape

    def keep(self, shape: ProblemShape, state: Hashable, answer: SearchAnswer) -> None:
        """Remember the answer to the problem of nodes that have this shape, and whose devices are in this state."""
        shape.answers.put(state, answer)
        self._shapes.measure(shape.problem)


def _size(problem: NodeProblem, _: object) -> int:
    return _PROBLEM_BYTES + _POSITION_BYTES * problem.size * (1 + len(problem.choices))
