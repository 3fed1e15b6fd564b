"""Finds workloads that wait though there is room for them, and for how long that has been so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gangline_e2e.day.fitting import Column, Floor, Shape, fits, places
from gangline_e2e.day.ledger import Ledger
from gangline_e2e.day.progress import Progress
from gangline_e2e.day.workload import WHOLE


@dataclass(frozen=True, slots=True)
class Promise:
    """A free place that is kept for a pod which preempts: the row of the node, devices, and for whom."""

    row: int
    gpus: int
    workload: str
    value: int


class Waiting:
    """The workloads that wait although they fit. A workload fits since a moment if it did at every look since then.

    Workloads that come before it (of a higher priority, or of the same and complete earlier) are counted first, with
    the most places that they could take. So a workload that fits here does fit, whatever the scheduler places first.
    """

    def __init__(self, floor: Floor) -> None:
        self._floor = floor
        self.since: dict[str, float] = {}
        """Since when each workload that waits has fitted."""
        self.alone: list[str] = []
        """Names of workloads that would fit if no workload before them took any room."""
        self.longest: dict[str, float] = {}
        """The longest time at a stretch, in seconds, for which each workload waited although it fitted."""

    def look(self, waiting: Iterable[Progress], ledger: Ledger, promises: Mapping[str, Promise], now: float) -> None:
        """Find the waiting workloads that fit now."""
        ranked = sorted(waiting, key=lambda each: (-each.workload.value, each.complete_s))
        known: dict[tuple[Shape, int], Column] = {}
        promisers = {each.workload for each in promises.values()}
        before, fitting, alone = 0, {}, []
        for each in ranked:
            workload, shape = each.workload, Shape.of(each.workload)
            if workload.name in promisers:
                there = places(shape, ledger, _kept(ledger, promises, workload.value, workload.name))
            else:
                key = shape, workload.value
                if key not in known:
                    known[key] = places(shape, ledger, _kept(ledger, promises, workload.value, ""))
                there = known[key]
            if not fits(shape, there, self._floor):
                continue
            alone.append(workload.name)
            if fits(shape, there, self._floor, less=before * (WHOLE // shape.milli)):
                fitting[workload.name] = self.since.get(workload.name, now)
            before += workload.size * max(workload.gpus, 1)
        self.since, self.alone = fitting, alone
        for name, since in fitting.items():
            self.longest[name] = max(self.longest.get(name, 0.0), now - since)


def _kept(ledger: Ledger, promises: Mapping[str, Promise], value: int, own: str) -> Column:
    """For each node the devices kept for pods of at least this priority, without those of the workload `own`."""
    kept = np.zeros(len(ledger.there), np.int64)
    for each in promises.values():
        if each.value >= value and each.workload != own:
            kept[each.row] += each.gpus
    return kept
