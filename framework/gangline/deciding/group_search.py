"""Searches for the placement of a group in stretches: other units are decided in between, so that none waits long.

A small group is decided in one stretch. The search for a large group may take seconds. It then stops at the end of its
stretch, takes its pods off the columns, and goes on later.

Rules:
- Between two stretches no pod of the group is on the columns, and no transaction is open.
- A search goes on where it stopped if nothing in the cluster has changed meanwhile. Else it begins anew, so that each
  decision holds for the cluster as it is.
- A search that begins anew gets a stretch twice as long, up to AT_ONCE_SECONDS. A group that needs longer is decided
  only when the cluster does not change, because no group may hold up all other units.
- The deadline of the group counts the time of all its stretches, not the time in between.
- A few searches can be stopped at the same time; they go on in turn. After a stretch the other units get as much time
  as the stretch took, and the loop gets at least REST seconds for watch events and bindings.
"""

from __future__ import annotations

import math
import time
from collections import deque
from typing import cast

from gangline.api.pod_group import PodGroup
from gangline.deadline import AT_ONCE_SECONDS, GANG_SECONDS, NO_DEADLINE, Deadline, exceeded
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.group_filling import Steps
from gangline.deciding.group_reading import one_of, read_group
from gangline.deciding.group_scheduling import GroupCycle
from gangline.errors import GanglineError
from gangline.profile.runtime import GROUPS, Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.state.cache import Cache

REST = 0.1
"""Seconds between two stretches, at least."""
MOST_LEFT = 8
"""Searches that can be stopped at the same time."""
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
    assert decided is not None  # only the end of a stretch interrupts a search, and this one has no end
    return decided


class GroupSearch:
    """One scheduling cycle for a group."""

    def __init__(self, unit: Unit, runtime: Runtime, cache: Cache, deadline: Deadline) -> None:
        self.unit = unit
        self.runtime = runtime
        self._restarts = 0
        self.seconds = 0.0
        """The seconds of wall-clock time that the search has worked."""
        self._cache = cache
        self._deadline = deadline
        self._cycle: GroupCycle | None = None
        self._steps: Steps[Decided] | None = None
        self._group: PodGroup | None = None

    def go_on(self, nominations: Nominations, now: float, stretch: float = math.inf) -> Decided | None:
        """Search for at most `stretch` seconds by the clock of the deadline, which counts CPU time; None, with nothing
        changed, if there is no decision yet.
        """
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
        """Give the search up; nothing in the cluster has changed."""
        if self._steps is not None:
            self._steps.close()
        self._cycle = self._steps = None

    def _search(self, nominations: Nominations, now: float, stretch: float) -> Decided | None:
        evaluator = self.runtime.evaluator
        with evaluator.within(self._deadline), self._deadline.counting():
            if self._cycle is not None and not self._cycle.come_back(nominations):
                self.stop()
                self._restarts += 1
            seconds = min(stretch * 2.0 ** min(self._restarts, 60), max(stretch, AT_ONCE_SECONDS))
            limit = self._deadline.another(seconds) if seconds < math.inf else NO_DEADLINE
            if self._cycle is None or self._steps is None:
                group, roles = read_group(self.unit.members, self.runtime)
                if isinstance(group, str):
                    one = one_of(self.unit.members, self.runtime)
                    return GroupRejection(self.unit, group, frozenset((GROUPS,)), one, is_incomplete=True)
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
    """The searches that were stopped and go on later, in the order of their turns."""

    def __init__(self, most: int = MOST_LEFT) -> None:
        self._most = most
        self._left: deque[GroupSearch] = deque()
        self._alone = self._beside_others = 0.0

    @property
    def next(self) -> GroupSearch | None:
        """The search whose turn it is."""
        return self._left[0] if self._left else None

    def leave(self, search: GroupSearch, now: float, seconds: float) -> bool:
        """Keep a search that has had a stretch of this many seconds; False if too many are kept already."""
        self.over(search)
        if len(self._left) >= self._most:
            return False
        self._left.append(search)
        self._alone, self._beside_others = now + REST, now + max(REST, seconds)
        return True

    def over(self, search: GroupSearch) -> None:
        """The search has ended."""
        if search in self._left:
            self._left.remove(search)

    def due_in(self, now: float, others: bool) -> float | None:
        """Seconds until the next search goes on, with or without other units to decide; None without a search."""
        if not self._left:
            return None
        return max(0.0, (self._beside_others if others else self._alone) - now)
