"""Follow the pods of gangs from the start, and note when each got its node; the objects at the end do not show that."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager

from gangline_e2e.api import Api
from gangline_e2e.gangs import GANG, Gang
from gangline_e2e.workloads import Manifest, is_bound


class History:
    """Which pods of each gang have got a node, in the order in which the API server says so."""

    def __init__(self) -> None:
        self.bound: dict[str, dict[str, float]] = defaultdict(dict)
        """Gang to pod name to when it was bound, on the monotonic clock."""
        self.order: list[Manifest] = []
        """The pods as they were when they were bound."""
        self._changed = asyncio.Event()

    def note(self, pod: Manifest) -> None:
        """A pod was seen."""
        times = self.bound[pod["metadata"].get("labels", {}).get(GANG, "")]
        name = pod["metadata"]["name"]
        if is_bound(pod) and name not in times:
            times[name] = time.monotonic()
            self.order.append(pod)
            self._changed.set()

    async def until(self, gangs: Iterable[Gang], timeout_s: float) -> None:
        """Wait until each of the gangs has the nodes that it needs."""
        waiting = {gang.name: gang for gang in gangs}
        try:
            async with asyncio.timeout(timeout_s):
                while waiting:
                    waiting = {name: gang for name, gang in waiting.items() if len(self.bound[name]) < gang.min_member}
                    if waiting:
                        await self.change()
        except TimeoutError:
            said = ", ".join(f"{name} {len(self.bound[name])} of {gang.size}" for name, gang in waiting.items())
            raise AssertionError(f"after {timeout_s:g} s gangs wait: {said}") from None

    async def change(self) -> None:
        """Wait until one more pod has a node."""
        self._changed.clear()
        await self._changed.wait()

    def phases(self, gangs: Iterable[Gang]) -> dict[str, float]:
        """For each gang that got what it needs the seconds from its first pod on a node until then."""
        found = {}
        for gang in gangs:
            times = sorted(self.bound[gang.name].values())
            if len(times) >= gang.min_member:
                found[gang.name] = times[gang.min_member - 1] - times[0]
        return found

    def partial(self, gangs: Iterable[Gang]) -> list[Gang]:
        """The gangs of which some pods have a node, but fewer than they need."""
        return [gang for gang in gangs if 0 < len(self.bound[gang.name]) < gang.min_member]

    def until_time(self, moment: float) -> list[Manifest]:
        """The pods of the gangs of which a pod had a node by then."""
        begun = {gang for gang, times in self.bound.items() if min(times.values(), default=moment + 1) <= moment}
        return [pod for pod in self.order if pod["metadata"].get("labels", {}).get(GANG, "") in begun]


@asynccontextmanager
async def history(api: Api) -> AsyncIterator[History]:
    """The history of the pods in the client's namespace, until the block ends."""
    noted = History()

    async def follow() -> None:
        async with aclosing(api.watch(api.pods)) as events:  # type: ignore[type-var]  # an async generator, by contract
            async for event, pod in events:
                if event in ("ADDED", "MODIFIED"):
                    noted.note(pod)

    following = asyncio.create_task(follow())
    try:
        yield noted
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
