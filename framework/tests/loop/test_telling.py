"""After a reload the new plugins hear of all waiting pods, a part at a time."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

from gangline import PodInfo
from gangline.loop.telling import SLICE, Telling
from gangline.queueing.units import Place, Unit
from gangline.simulate import VirtualClock, run
from gangline.state.cache import Cache
from gangline.telemetry.metrics import Metrics
from gangline.testing import make_pod

CACHE = Cache()


def test_pods_are_told_of_a_part_at_a_time_and_those_that_are_gone_are_not() -> None:
    units = [Unit([CACHE.record(make_pod(f"p{n}"))], added=0.0) for n in range(3 * SLICE)]
    told: list[str] = []
    parts: list[int] = []

    def tell(pod: PodInfo) -> None:
        told.append(pod.name)
        if pod.name == f"p{SLICE}":
            raise ValueError("a fault")

    async def story() -> None:
        telling = Telling(tell, Metrics())
        task = asyncio.create_task(telling.run())
        telling.begin(units)
        units[-1].place = Place.GONE
        while not parts or len(told) > parts[-1]:
            parts.append(len(told))
            for _ in range(2):
                await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run(story(), VirtualClock())

    assert parts[0] == SLICE and all(after - before <= 2 * SLICE for before, after in itertools.pairwise(parts))
    assert told == [f"p{n}" for n in range(3 * SLICE - 1)]
