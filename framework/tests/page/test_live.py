"""The page of a running scheduler looks at the columns in the thread that owns them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from aiohttp.test_utils import make_mocked_request

from gangline.clock import SystemClock
from gangline.page.live import live_page
from gangline.page.serving import PATH
from gangline.process.loops import LoopThread
from gangline.profile.runtime import Runtime
from gangline.remedies.showing import ShownRemedies

from .shown import ShownCluster, node


class Scheduler(ShownCluster):
    """A cluster as a scheduler shows it."""

    def __init__(self) -> None:
        super().__init__(node("n"))
        self.asked_in: asyncio.Queue[threading.Thread] = asyncio.Queue()

    @property
    def runtimes(self) -> Mapping[str, Runtime]:
        self.asked_in.put_nowait(threading.current_thread())
        return {}


async def _no_remedies(unit: str, viewer: str) -> ShownRemedies | None:
    return None


async def test_the_scheduler_is_looked_at_in_its_own_thread_as_soon_as_somebody_opens_the_page() -> None:
    scheduler = Scheduler()

    async with LoopThread("beside") as thread:
        page = live_page(
            scheduler, SystemClock(), lambda: True, lambda uid: None, _no_remedies, asyncio.get_running_loop()
        )

        async def open_page() -> None:
            await page.handlers()[PATH](make_mocked_request("GET", PATH))

        async def end() -> None:
            page.end()

        await thread.call(open_page)
        try:
            assert await asyncio.wait_for(scheduler.asked_in.get(), 30.0) is threading.current_thread()
        finally:
            await thread.call(end)
