"""For how long a unit backs off before it is tried again.

The time doubles with each rejection. It ends at a whole second: of several units that were rejected at about the same
time, the one with the highest priority then comes first, not the one rejected first. A unit that took too long to
decide backs off for longer each time, until the unit changes. A unit that changes all the time still backs off.
"""

from __future__ import annotations

import math

import msgspec

from gangline.queueing.units import Unit

MAX_UNSCHEDULABLE = 300.0
"""Seconds after which a rejected unit is tried again even if no event has come."""
MAX_OVERRUN_BACKOFF = 600.0
"""The longest time, in seconds, for which a unit backs off whose decision took too long."""
_MOST_DOUBLINGS = 60


class QueueSettings(msgspec.Struct, frozen=True):
    """Seconds, as in KubeSchedulerConfiguration."""

    initial_backoff: float = 1.0
    max_backoff: float = 10.0
    max_unschedulable: float = MAX_UNSCHEDULABLE

    def after_rejection(self, unit: Unit) -> float:
        """Seconds for which the unit backs off, by the number of its rejections."""
        return min(self.max_backoff, self.initial_backoff * 2.0 ** min(unit.rejections - 1, _MOST_DOUBLINGS))

    def after_overrun(self, unit: Unit) -> float:
        """Seconds for which the unit backs off, by the number of its decisions that took too long."""
        return min(MAX_OVERRUN_BACKOFF, self.max_backoff * 2.0 ** min(unit.overruns, _MOST_DOUBLINGS))


def due(now: float, seconds: float) -> float:
    """The time at which the backoff ends.

    That is the next whole second, as in kube-scheduler; a backoff of less than a second is not rounded.
    """
    return now + seconds if seconds < 1.0 else math.ceil(now + seconds)
