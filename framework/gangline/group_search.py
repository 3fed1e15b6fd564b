"""A decision on a group, made in stretches: others are decided in between, so that nobody waits for a long search.

Rules:
- Between two stretches nothing of the group is on the columns, and no transaction is open.
- A search goes on where it was when nodes, levels and members are still the same. What it had placed is placed again
  where the filters let it; where they do not, or where more has changed, the search begins anew.
- All stretches together have the deadline of the group. What others do in between does not count, nor does placing
  again, so that each stretch gets on.
- One search at a time is left and gone on with. After a stretch others have as much time, and the loop has REST seconds
  in any case, for watch events and bindings.
"""

from __future__ import annotations

import math
import time
from typing import cast

from gangline.cache import Cache
from gangline.deadline import GANG_SECONDS, Deadline, exceeded
from gangline.errors import GanglineError
from gangline.group_filling import Steps
from gangline.group_scheduling import GroupCycle, GroupDecision, GroupRejection, one_of, read_group
from gangline.nominating import Nominations
from gangline.pod_group import PodGroup
from gangline.runtime import GROUPS, Runtime
from gangline.units import Unit

REST = 0.1
"""Seconds between two stretches, at least."""
Decided = GroupDecision | GroupRejection


def decide_group(
    unit: Unit,
    runtime: Runtime,
    cache: Cache,
    nominations: Nominations,
    now: float,
    deadline: Deadline | None = None,
) -> Decided:
    """One scheduling cycle for a group at once, within a deadline. A plugin that raises fails this unit alone."""
    decided = GroupSearch(unit, runtime, cache, deadline or Deadline(GANG_SECONDS)).go_on(nominations, now)
    assert decided is not None  # it stops early only where its turn ends
    return decided


class GroupSearch:
    """One scheduling cycle for a group."""

    def __init__(self, unit: Unit, runtime: Runtime, cache: Cache, deadline: Deadline) -> None:
        self.unit = unit
        self.runtime = runtime
        self.seconds = 0.0
        """For which it was at work, of time on the wall."""
        self._cache = cache
        self._deadline = deadline
        self._cycle: GroupCycle | None = None
        self._steps: Steps[Decided] | None = None
        self._group: PodGroup | None = None

    def go_on(self, nominations: Nominations, now: float, stretch: float = math.inf) -> Decided | None:
        """Search until there is a decision, or for so many seconds of CPU time: None then, and nothing has changed."""
        start = time.perf_counter()
        try:
            return self._search(nominations, now, stretch)
        except GanglineError as error:
            self.stop()
            is_late = exceeded(error)
            return GroupRejection(self.unit, str(error), frozenset(), self._group, is_error=True, is_late=is_late)
        except BaseException:
            self.stop()
            raise
        finally:
            self.seconds += time.perf_counter() - start

    def stop(self) -> None:
        """Give the search up; nothing has changed."""
        if self._steps is not None:
            self._steps.close()
        self._cycle = self._steps = None

    def _search(self, nominations: Nominations, now: float, stretch: float) -> Decided | None:
        evaluator = self.runtime.evaluator
        if self._cycle is not None:
            with evaluator.within(Deadline(self._deadline.seconds)):
                if not self._cycle.come_back(nominations):
                    self.stop()
        limit = Deadline(stretch)
        with evaluator.within(self._deadline), self._deadline.counting():
            if self._cycle is None or self._steps is None:
                group, roles = read_group(self.unit.members, self.runtime, self._cache)
                if isinstance(group, str):
                    one = one_of(self.unit.members, self.runtime)
                    return GroupRejection(self.unit, group, frozenset((GROUPS,)), one)
                self._group = group
                self._cycle = GroupCycle(self.unit, group, roles, self.runtime, self._cache, nominations, now)
                self._steps = self._cycle.decide()
            try:
                next(self._steps)
                while not limit.passed:
                    next(self._steps)
            except StopIteration as ended:
                return cast(Decided, ended.value)
        self._cycle.step_aside()
        return None


class LongSearch:
    """The search that was left to go on with later, if any, and when that is."""

    def __init__(self) -> None:
        self.search: GroupSearch | None = None
        self._alone = self._beside_others = 0.0

    def leave(self, search: GroupSearch, now: float, seconds: float) -> bool:
        """The search has had a stretch of so many seconds; False where another one goes on already."""
        if self.search is not None and self.search is not search:
            return False
        self.search = search
        self._alone, self._beside_others = now + REST, now + max(REST, seconds)
        return True

    def over(self, search: GroupSearch) -> None:
        """The search has come to its end."""
        if self.search is search:
            self.search = None

    def due_in(self, now: float, others: bool) -> float | None:
        """Seconds until it goes on, with or without others that are to be decided; None where there is none."""
        if self.search is None:
            return None
        return max(0.0, (self._beside_others if others else self._alone) - now)
