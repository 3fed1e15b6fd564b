"""Which nodes may still be better than the best node so far, while the removed pods return to all of them in step.

The pods of a node return in the order of their importance, so a victim is never more important than the one before it.
Each victim makes a node more expensive, and a node on which some pod has to go costs at least its least important pod.
So a node that costs more than the best one already, or as much and comes later, need not be examined to the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from gangline import PodInfo
from gangline_plugins.default_preemption.importance import Cost, cost_of, start_of_most_important
from gangline_plugins.preemption.precedence import started

_Standing = tuple[Cost, str, int]
"""What a node costs, the start time of its victims, and its place among the nodes."""


@dataclass(slots=True, eq=False)
class NodeTrial:
    """One node on which the pod fits after all pods of lower priority are removed."""

    row: int
    place: int
    """Its place among the nodes of the batch."""
    returning: list[PodInfo]
    """The removed pods, in the order in which they return."""
    protected: int
    """How many of them, counted from the first, a PodDisruptionBudget protects."""
    returned: int = 0
    """For how many of them, counted from the first, it is known whether they stay."""
    victims: list[PodInfo] = field(default_factory=list)
    violations: int = 0

    @property
    def is_over(self) -> bool:
        """Whether all victims are known."""
        return self.returned == len(self.returning)

    @property
    def next(self) -> PodInfo:
        """The pod that returns next."""
        return self.returning[self.returned]

    def note(self, stays: bool) -> None:
        """The next pod has returned: it stays, or is a victim."""
        if not stays:
            self.victims.append(self.next)
            self.violations += self.returned < self.protected
        self.returned += 1


class Race:
    """The best node so far, among the nodes of one batch that have no budgets."""

    def __init__(self, costly: Collection[int] | None) -> None:
        """`costly` are the rows of the nodes on which at least one pod has to go; None to examine each node."""
        self._costly = costly
        self._best: _Standing | None = None

    @property
    def is_on(self) -> bool:
        """Whether nodes may be left out."""
        return self._costly is not None

    def finished(self, trial: NodeTrial) -> None:
        """All victims of a node are known."""
        if self._costly is None or not trial.victims:
            return
        cost, start = cost_of(trial.victims, trial.violations), start_of_most_important(trial.victims)
        if self._best is None or _is_better((cost, start, trial.place), self._best):
            self._best = cost, start, trial.place

    def going_on(self, trials: Iterable[NodeTrial]) -> list[NodeTrial]:
        """The trials that are not over, and of which the nodes may still be the best."""
        return [trial for trial in trials if not trial.is_over and self._may_win(trial)]

    def _may_win(self, trial: NodeTrial) -> bool:
        if self._costly is None or self._best is None or trial.row not in self._costly:
            return True
        if trial.victims:
            least, latest = cost_of(trial.victims, trial.violations), start_of_most_important(trial.victims)
        else:
            least = cost_of(trial.returning[-1:], 0)
            latest = max([started(pod) for pod in trial.returning[trial.returned :]])
        return _is_better((least, latest, trial.place), self._best)


def _is_better(one: _Standing, other: _Standing) -> bool:
    """Whether the first costs less, or as much and its victims started later, or as late and it comes first."""
    if one[0] != other[0]:
        return one[0] < other[0]
    return one[1] > other[1] if one[1] != other[1] else one[2] < other[2]
