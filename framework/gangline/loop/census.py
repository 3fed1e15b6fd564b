"""Looks at all waiting units, a part each second: counts them for the gauges, and tells held groups why they wait.

Only the leader tells: nobody writes what a standby says.

However many pods wait, one look takes milliseconds; with up to a few thousand pods, one look covers them all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from gangline.api.pod_group import Membership, PodGroup
from gangline.loop.elsewhere import Elsewhere
from gangline.loop.outcomes import Outcomes
from gangline.profile.runtime import Runtime
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import QUEUED, Place, Unit
from gangline.state.pods import PodInfo
from gangline.telemetry.metrics import Metrics

MOST_PODS = 8192
"""Waiting pods that one look covers, about; a group is always looked at as a whole."""
SETTLED = 1.0
"""Seconds for which a group has to be held before it is told why."""


class Census:
    """Goes over the units of the queue in rounds."""

    def __init__(
        self,
        queue: SchedulingQueue,
        runtimes: Callable[[], Mapping[str, Runtime]],
        outcomes: Outcomes,
        metrics: Metrics,
        others: Callable[[], Iterable[PodInfo]],
        leads: Callable[[], bool],
        most: int = MOST_PODS,
    ) -> None:
        self._queue = queue
        self._runtimes = runtimes
        self._outcomes = outcomes
        self._metrics = metrics
        self._pending = {place: metrics.pending.labels(place) for place in QUEUED}
        self._others = others
        self._leads = leads
        self._most = most
        self._left: list[Unit] = []
        """The units of this round that are still to come, the next one last."""
        self._elsewhere: Elsewhere | None = None
        """As it was when this round first needed it."""
        self._pods: Counter[str] = Counter()
        """The number of pods in each place, counted in this round."""
        self._groups: Counter[str] = Counter()

    def look(self, now: float) -> None:
        """Look at the next units; the gauges are set when a round is complete."""
        if not self._left:
            self._left = list(self._queue)
            self._left.reverse()
            self._elsewhere = None
        seen, pods, runtimes = 0, self._pods, self._runtimes()
        while self._left and seen < self._most:
            unit = self._left.pop()
            number = len(unit.members)
            seen += number or 1
            if unit.place is not Place.GONE:
                pods[unit.place] += number
                if unit.group and unit.scheduler_name in runtimes:
                    self._count(unit, runtimes[unit.scheduler_name], now)
        if not self._left:
            self._publish()

    def _count(self, unit: Unit, runtime: Runtime, now: float) -> None:
        """Count a group."""
        self._groups["waiting"] += 1
        membership = runtime.handle.group_of(unit.pod)
        group = membership.group if isinstance(membership, Membership) else None
        if unit.place is Place.GATED and unit.entered <= now - SETTLED and self._leads():
            self._outcomes.group_held(unit, group, unit.message + self._missing(unit, group))
        if unit.place is not Place.IN_FLIGHT and group is not None:
            self._groups["partial"] += runtime.progress(group).is_partial

    def _missing(self, unit: Unit, group: PodGroup | None) -> str:
        """Which members will not come, because they name another schedulerName."""
        if group is None:
            return ""
        if self._elsewhere is None:
            self._elsewhere = Elsewhere(self._queue, self._others, self._runtimes())
        return self._elsewhere.said(unit.group)

    def _publish(self) -> None:
        for place, gauge in self._pending.items():
            gauge.set(self._pods[place])
        self._metrics.groups.waiting.set(self._groups["waiting"])
        self._metrics.groups.partial.set(self._groups["partial"])
        self._pods.clear()
        self._groups.clear()
