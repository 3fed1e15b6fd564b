"""Keeps a standby warm: every few seconds it computes where one pod of each profile would go, and drops the result.

A first decision computes tables and verdicts for all nodes; the next ones compute only what has changed. Without
rehearsals a standby of 5,000 nodes that becomes the leader would spend its first half second on the tables. A rehearsal
draws no random numbers, so decisions are the same with rehearsals as without them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress

from gangline.deadline import POD_SECONDS, Deadline
from gangline.errors import GanglineError
from gangline.profile.runtime import Runtime
from gangline.state.pods import PodInfo
from gangline.telemetry.metrics import Metrics

PAUSE = 2.0
"""Seconds between two rehearsals."""


class Rehearsals:
    """The rehearsals of one process; `is_due` says whether the process stands by now."""

    def __init__(
        self, runtimes: Callable[[], Mapping[str, Runtime]], is_due: Callable[[], bool], metrics: Metrics
    ) -> None:
        self._runtimes = runtimes
        self._is_due = is_due
        self._metrics = metrics
        self._last: dict[str, PodInfo] = {}
        """By profile: the pod that was queued last."""

    def note(self, pod: PodInfo) -> None:
        """A pod was queued."""
        self._last[pod.scheduler_name] = pod

    async def run(self) -> None:
        """Rehearse until cancelled."""
        while True:
            await asyncio.sleep(PAUSE)
            try:
                self.rehearse()
            except Exception as error:
                self._metrics.fault("rehearsals", error)

    def rehearse(self) -> None:
        """Filter and score for the last pod of each profile, if this process stands by."""
        if not self._is_due():
            return
        runtimes = self._runtimes()
        for name, pod in list(self._last.items()):
            if name not in runtimes:
                del self._last[name]
                continue
            evaluator = runtimes[name].evaluator
            with suppress(GanglineError), evaluator.within(Deadline(POD_SECONDS)):  # the leader reports faults
                filtered = runtimes[name].filter(pod.anew())
                if filtered.feasible.any():
                    evaluator.ranking(filtered)
