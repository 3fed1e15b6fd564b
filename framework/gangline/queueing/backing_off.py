"""For how long a unit backs off.

Backing off doubles with each rejection. It ends on whole seconds, so that of units rejected at about the same time the
most important one comes first, not the oldest. A unit that took too long to decide backs off for longer each time until
it changes; what changes all the time is not tried all the time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gangline.queueing.units import Unit

MAX_UNSCHEDULABLE = 300.0
"""Seconds after which a rejected unit is tried again whatever happened."""
MAX_OVERRUN_BACKOFF = 600.0
"""Seconds, at most, for which a unit backs off whose decision took too long."""
_MOST_DOUBLINGS = 60


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Seconds, as in KubeSchedulerConfiguration."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_unschedulable: float = MAX_UNSCHEDULABLE

    def after_rejection(self, unit: Unit) -> float:
        """Seconds for which a unit backs off that has been rejected so often."""
        return min(self.max_backoff, self.initial_backoff * 2.0 ** min(unit.rejections - 1, _MOST_DOUBLINGS))

    def after_overrun(self, unit: Unit) -> float:
        """Seconds for which a unit backs off whose decisions have taken too long so often."""
        return min(MAX_OVERRUN_BACKOFF, self.max_backoff * 2.0 ** min(unit.overruns, _MOST_DOUBLINGS))


def due(now: float, seconds: float) -> float:
    """When backing off for so long ends: at the next whole second, as in kube-scheduler, unless it lasts less."""
    return now + seconds if seconds < 1.0 else math.ceil(now + seconds)
