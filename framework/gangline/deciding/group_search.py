"""A decision on a group, made in stretches: others are decided in between, so that nobody waits for a long search.

Rules:
- Between two stretches nothing of the group is on the columns, and no transaction is open.
- A search goes on where it was when nothing at all has changed meanwhile; else it begins anew, so that each decision is
  one on the cluster as it is. What begins anew has twice as long a stretch each time, up to AT_ONCE_SECONDS: a group
  that needs longer than that is decided only where the cluster rests, for nobody may hold up everybody else.
- All stretches together have the deadline of the group; what others do in between does not count.
- A few searches are left and gone on with in turn. After a stretch others have as much time, and the loop has REST
  seconds in any case, for watch events and bindings.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import cast

from gangline.api.pod_group import PodGroup
from gangline.deadline import AT_ONCE_SECONDS, GANG_SECONDS, Deadline, exceeded
from gangline.deciding.group_filling import Steps
from gangline.deciding.group_reading import one_of, read_group
from gangline.deciding.group_scheduling import GroupCycle, GroupDecision, GroupRejection
from gangline.errors import GanglineError
from gangline.profile.runtime import GROUPS, Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.state.cache import Cache

REST = 0.1
"""Seconds between two stretches, at least."""
MOST_LEFT = 8
"""Searches that are left at the same time, at most."""
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
    assert decided is not None  # it stops early only where its stretch ends
    return decided


class GroupSearch:
    """One scheduling cycle for a group."""

    def __init__(self, unit: Unit, runtime: Runtime, cache: Cache, deadline: Deadline) -> None:
        self.unit = unit
        self.runtime = runtime
        self._restarts = 0
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
        with evaluator.within(self._deadline), self._deadline.counting():
            if self._cycle is not None and not self._cycle.come_back(nominations):
                self.stop()
                self._restarts += 1
            limit = Deadline(min(stretch * 2.0 ** min(self._restarts, 60), max(stretch, AT_ONCE_SECONDS)))
            if self._cycle is None or self._steps is None:
                group, roles = read_group(self.unit.members, self.runtime)
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


class LongSearches:
    """The searches that were left to go on with later, the next one first, and when that is."""

    def __init__(self, most: int = MOST_LEFT) -> None:
        self._most = most
        self._left: deque[GroupSearch] = deque()
        self._alone = self._beside_others = 0.0

    @property
    def next(self) -> GroupSearch | None:
        """The one whose turn it is."""
        return self._left[0] if self._left else None

    def leave(self, search: GroupSearch, now: float, seconds: float) -> bool:
        """The search has had a stretch of so many seconds, others go first; False where too many are left already."""
        self.over(search)
        if len(self._left) >= self._most:
            return False
        self._left.append(search)
        self._alone, self._beside_others = now + REST, now + max(REST, seconds)
        return True

    def over(self, search: GroupSearch) -> None:
        """The search has come to its end."""
        if search in self._left:
            self._left.remove(search)

    def due_in(self, now: float, others: bool) -> float | None:
        """Seconds until the next one goes on, with or without others that are to be decided; None without one."""
        if not self._left:
            return None
        return max(0.0, (self._beside_others if others else self._alone) - now)
