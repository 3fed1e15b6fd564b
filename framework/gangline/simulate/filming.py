"""Pictures of a simulated cluster over time, and the page that plays them in a browser: a second for each picture."""

from __future__ import annotations

import asyncio
from functools import partial

from aiohttp import web

from gangline.api.plugin import Clock
from gangline.loop.scheduler import Scheduler
from gangline.page.feed import Feed, Look
from gangline.page.history import ClusterHistory
from gangline.page.live import history_of, taker_of
from gangline.page.serving import PATH, DecisionOf, RemediesOf, page
from gangline.page.sight import Everybody
from gangline.page.taking import TakenPart, Taker
from gangline.process.hosts import for_this_machine
from gangline.process.listening import Listener
from gangline.remedies import find_remedies
from gangline.remedies.showing import ShownRemedies

MOST_PICTURES = 300
"""Pictures of one simulation; of a longer one they are further apart."""
_LOOKS = 100
"""How often the film looks for the first node, within a second: a picture without nodes says nothing."""
_EVERY_ROW = 1_000_000


class Film:
    """Pictures at an interval of at least one second."""

    def __init__(self, seconds: float) -> None:
        """For a simulation of so many virtual seconds."""
        self._interval = max(1.0, seconds / MOST_PICTURES)
        self._taker: Taker | None = None
        self._history: ClusterHistory | None = None
        self.decision_of: DecisionOf = lambda uid: None
        self.remedies_of: RemediesOf = _nothing
        self.pictures: list[TakenPart] = []

    async def record(self, scheduler: Scheduler, clock: Clock) -> None:
        """Take pictures until cancelled; the first one as soon as the scheduler has seen a node."""
        self._history = history_of(scheduler, clock)
        self._taker = taker_of(scheduler, clock, lambda: True, self._history)
        self.decision_of = scheduler.decisions.of
        self.remedies_of = partial(_remedies_of, scheduler, clock)
        for _ in range(_LOOKS):
            if scheduler.cache.nodes.size:
                break
            await asyncio.sleep(1 / _LOOKS)
        while True:
            self.take()
            await asyncio.sleep(self._interval)

    def take(self) -> None:
        """Take a picture of what has changed since the last one."""
        if self._taker is not None and self._history is not None:
            self._history.sample()
            self.pictures.append(self._taker.take(_EVERY_ROW))

    def looking(self) -> Look:
        """Play from the beginning; the last picture stays."""
        left = iter(self.pictures)
        last = self.pictures[-1]

        async def look() -> TakenPart:
            return next(left, last)

        return look


async def play(film: Film) -> Listener:
    """Serve the page on a free port of this machine; to be stopped by the caller."""
    app = web.Application(middlewares=[for_this_machine])
    feed = Feed(film.looking)
    handlers = page(feed, lambda request: Everybody(), film.decision_of, remedies_of=film.remedies_of)
    app.add_routes([web.get(path, handler) for path, handler in handlers.items()])
    app.add_routes([web.get("/", _to_the_page)])

    async def end(app: web.Application) -> None:
        feed.close()

    app.on_shutdown.append(end)
    listener = Listener(app, "127.0.0.1:0", "--ui")
    await listener.start()
    return listener


async def _to_the_page(request: web.Request) -> web.StreamResponse:
    raise web.HTTPFound(PATH)


async def _nothing(unit: str, viewer: str) -> None:
    """Of nothing that was filmed."""


async def _remedies_of(scheduler: Scheduler, clock: Clock, uid: str, viewer: str) -> ShownRemedies | None:
    """What would let a unit start as things are at the end of the simulation, when nobody works on the columns."""
    unit = next((unit for unit in scheduler.queue if unit.uid == uid), None)
    runtime = scheduler.runtimes.get(unit.members[0].scheduler_name) if unit is not None and unit.members else None
    if unit is None or runtime is None:
        return None
    nominated = runtime.handle.nominated()
    return ShownRemedies(find_remedies(unit, runtime, scheduler.cache, nominated, clock.monotonic()))
