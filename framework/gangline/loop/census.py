"""Sets the gauges of waiting pods and groups, and tells groups that are held for a while why they wait.

A part of the groups is looked at each second. Only the leader tells groups, because the events of a standby are not
written.

One look takes milliseconds, however many pods wait: pods on their own are counted by the queue when they move, and a
look covers a limited number of groups, or all groups if they have up to a few thousand pods.
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
"""Waiting pods of groups that one look covers, about; a group is always looked at as a whole."""
SETTLED = 1.0
"""Seconds for which a group has to be held before it is told why."""


class Census:
    """Goes over the groups in the queue in rounds."""

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
        self._counts: Mapping[str, int] = {}
        """The values of the gauges, by place."""
        self._others = others
        self._leads = leads
        self._most = most
        self._left: list[Unit] = []
        """The groups of this round that are still to come, the next one last."""
        self._elsewhere: Elsewhere | None = None
        """The members of other schedulers, as they were when this round first asked for them."""
        self._groups: Counter[str] = Counter()
        """The groups, counted in this round."""

    def look(self, now: float) -> None:
        """Look at the next groups; the gauges of groups are set when a round is complete."""
        counts = self._queue.counts()
        if counts != self._counts:
            self._counts = counts
            for place, gauge in self._pending.items():
                gauge.set(counts[place])
        if not self._left:
            self._left = self._queue.groups()
            self._left.reverse()
            self._elsewhere = None
        seen, runtimes = 0, self._runtimes()
        while self._left and seen < self._most:
            unit = self._left.pop()
            seen += len(unit.members) or 1
            if unit.place is not Place.GONE and unit.scheduler_name in runtimes:
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
        self._metrics.groups.waiting.set(self._groups["waiting"])
        self._metrics.groups.partial.set(self._groups["partial"])
        self._groups.clear()
