"""Tries a change: whether the unit would start, by the same search that decides it.

Rules:
- An attempt leaves nothing behind: pods are placed in a transaction that is undone.
- A finder has a number of attempts and CPU seconds. When either is used up, every further attempt says no at once, so
  the loops of finders come to an end.
- An attempt that fails with an error says no: only success proves that the unit would start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec
import numpy as np

from gangline import model
from gangline.api.pod_group import PodGroup
from gangline.deadline import Deadline, exceeded
from gangline.deciding.group_filling import to_the_end
from gangline.deciding.group_reading import read_group
from gangline.deciding.group_scheduling import GroupCycle
from gangline.deciding.scheduling import find_feasible, find_place
from gangline.errors import GanglineError
from gangline.groups.progress import Progress
from gangline.profile.runtime import Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.remedies.rewriting import rewritten
from gangline.state.cache import Cache
from gangline.state.node_view import Int64Column
from gangline.state.pods import PodInfo
from gangline.status import BoolColumn

MOST_ATTEMPTS = 64
"""Attempts of one finder, at most."""
SECONDS = 1.0
"""CPU seconds of one finder, at most."""
_MOST_KINDS = 16
"""Kinds of pods of one unit, at most, for which the verdicts of plugins are read."""
_HIGHEST = 2**31 - 1
"""The highest priority of a pod, that of system components included."""
Change = Callable[[PodGroup], PodGroup]
_T = TypeVar("_T")


class Trial:
    """A waiting unit, and attempts to place it."""

    def __init__(self, unit: Unit, runtime: Runtime, cache: Cache, nominations: Nominations, now: float) -> None:
        self.unit = unit
        self.runtime = runtime
        self.cache = cache
        self.pods: Sequence[PodInfo] = tuple(unit.members)
        self.tried = 0
        self.is_cut = False
        """Whether attempts or time have run out for some finder."""
        self._nominations = nominations
        self._now = now
        self._left = 0
        self._deadline = Deadline(0.0)
        group, _ = read_group(self.pods, runtime) if unit.group else (None, {})
        self.group = group if isinstance(group, PodGroup) else None
        self.waited = now - (unit.added if unit.complete is None else unit.complete)

    @property
    def name(self) -> str:
        """ "pod NAMESPACE/NAME" or "gang NAMESPACE/NAME"."""
        if self.group is None:
            return f"pod {self.pods[0].key}"
        return f"gang {self.group.namespace}/{self.group.name}"

    @property
    def progress(self) -> Progress:
        """How many members the unit has and needs; a pod on its own is a unit that needs one member."""
        if self.group is None:
            return Progress(1, 0, 1)
        return self.runtime.progress(self.group, len(self.pods))

    @contextmanager
    def finding(self, attempts: int = MOST_ATTEMPTS, seconds: float = SECONDS) -> Iterator[None]:
        """One finder works in this block."""
        self._left, self._deadline = attempts, Deadline(seconds)
        with self.runtime.evaluator.within(self._deadline):
            yield

    @property
    def is_over(self) -> bool:
        """Whether the finder has no attempt or no time left, so that it need not prepare a further attempt."""
        is_over = not self._left or self._deadline.passed
        self.is_cut = self.is_cut or is_over
        return is_over

    def starts(
        self,
        pods: Sequence[PodInfo] | None = None,
        change: Change | None = None,
        allowed: BoolColumn | None = None,
    ) -> bool:
        """Whether the unit would start on the columns as they are now.

        `pods` are records to use instead of the unit's pods, `change` turns the unit's group into the group to use, and
        `allowed` marks the rows of nodes on which the pods may be placed.
        """
        if self.is_over:
            return False
        self._left -= 1
        self.tried += 1
        return self._asked(lambda: self.place(pods or self.pods, change, allowed), None) is not None

    def place(
        self, pods: Sequence[PodInfo], change: Change | None = None, allowed: BoolColumn | None = None
    ) -> Mapping[str, int] | None:
        """By UID: the row of the node on which each pod of a unit would be placed; None if they cannot be. Raises
        GanglineError.
        """
        if not self.runtime.group_key(pods[0]):
            return find_place(pods[0], self.runtime, self.cache, self._nominations, allowed)
        cycle = self._cycle(pods, change, allowed)
        return None if cycle is None else to_the_end(cycle.fit())

    def elsewhere(self, pods: Sequence[PodInfo], allowed: BoolColumn) -> Mapping[str, int] | None:
        """By UID: the row on which each pod of another unit would be placed, on allowed nodes; None if impossible."""
        return self._asked(lambda: self.place(pods, None, allowed), None)

    def capacity(self, change: Change | None = None) -> Int64Column:
        """By row: for how many pods of the unit the node has room now; zeros if the plugins fail to say so.

        `change` turns the unit's group into the group to use.
        """
        nothing = np.zeros(self.cache.nodes.size, dtype=np.int64)
        return self._asked(partial(self._capacity, change), nothing)

    def might_do(self) -> BoolColumn:
        """The nodes that one pod of the unit might be placed on if they were empty, according to the filter plugins.

        They are asked about pods of the highest priority: some plugins call a node hopeless if the pod may not preempt
        those who hold devices there.
        """
        kinds = list({pod.cls.id: pod for pod in self.pods}.values())[:_MOST_KINDS]
        found: BoolColumn = np.zeros(self.cache.nodes.size, dtype=np.bool_)
        for pod in rewritten(kinds, _with_highest_priority, self.cache) or kinds:
            found |= self._asked(partial(self._might_do, pod), found)
        return found

    def _might_do(self, pod: PodInfo) -> BoolColumn:
        size = self.cache.nodes.size
        filtered = self.runtime.filter(pod)
        return filtered.feasible[:size] | self.runtime.evaluator.diagnose(filtered).resolvable()[:size]

    def _capacity(self, change: Change | None) -> Int64Column:
        if self.group is None:
            filtered = find_feasible(self.pods[0], self.runtime, self.cache, self._nominations)
            return filtered.feasible[: self.cache.nodes.size].astype(np.int64)
        cycle = self._cycle(self.pods, change, None)
        if cycle is None:
            return np.zeros(self.cache.nodes.size, dtype=np.int64)
        attempt = to_the_end(cycle.begin())
        total: Int64Column = np.stack([role.capacity for role in attempt.roles]).sum(axis=0)
        return total

    def _cycle(self, pods: Sequence[PodInfo], change: Change | None, allowed: BoolColumn | None) -> GroupCycle | None:
        group, members = read_group(pods, self.runtime)
        if isinstance(group, str):
            return None
        group = change(group) if change is not None else group
        if not self.runtime.progress(group, len(pods)).may_start:
            return None
        is_own = group.key == self.unit.group
        added, complete = (self.unit.added, self.unit.complete) if is_own else (self._now, None)
        unit = Unit(list(pods), added=added, complete=complete, group=group.key)
        return GroupCycle(unit, group, members, self.runtime, self.cache, self._nominations, self._now, allowed)

    def _asked(self, ask: Callable[[], _T], otherwise: _T) -> _T:
        try:
            return ask()
        except GanglineError as error:
            self.is_cut = self.is_cut or exceeded(error)
            return otherwise


def _with_highest_priority(spec: model.PodSpec) -> model.PodSpec:
    return msgspec.structs.replace(spec, priority=_HIGHEST, preemption_policy="PreemptLowerPriority")
