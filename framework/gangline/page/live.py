"""The page of a running scheduler. The page is served in another thread than the one that owns the columns.

What serves the page is loaded with the handlers, for the first connection; its history begins at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from gangline.api.outlook import Outlook
from gangline.api.plugin import Clock
from gangline.failures import described
from gangline.groups import Groups
from gangline.overview.gpu_use import catch_up
from gangline.page.expecting import Expecting
from gangline.page.feed import Feed, Look
from gangline.page.history import ClusterHistory
from gangline.page.taking import TakenPart, Taker
from gangline.process.loops import across
from gangline.profile.runtime import Runtime, first_grouping
from gangline.queueing.queue import SchedulingQueue
from gangline.state.cache import Cache
from gangline.state.topology import Topology
from gangline.telemetry.metrics import Metrics

if TYPE_CHECKING:
    from aiohttp import web

    from gangline.page.serving import DecisionOf, RemediesOf
    from gangline.page.sight import PageViewer
    from gangline.process.guarding import Handler

log = logging.getLogger(__name__)


class ShownScheduler(Protocol):
    """The scheduler that is shown."""

    cache: Cache
    queue: SchedulingQueue
    groups: Groups
    metrics: Metrics

    @property
    def runtimes(self) -> Mapping[str, Runtime]:
        """The profiles in use."""
        ...


def history_of(scheduler: ShownScheduler, clock: Clock) -> ClusterHistory:
    """A history of the scheduler that begins now."""
    return ClusterHistory(scheduler.cache, scheduler.queue, scheduler.metrics, clock)


def taker_of(scheduler: ShownScheduler, clock: Clock, leads: Callable[[], bool], history: ClusterHistory) -> Taker:
    """A taker that takes parts of the scheduler's columns and queue."""

    def outlooks() -> Iterator[tuple[str, Outlook]]:
        return (each for runtime in scheduler.runtimes.values() for each in runtime.handle.outlooks)

    expecting = Expecting(outlooks, scheduler.metrics.failures)
    topology = partial(_topology, scheduler)
    return Taker(scheduler.cache, scheduler.queue, scheduler.groups, topology, leads, clock, expecting, history)


@dataclass(frozen=True, slots=True)
class LivePage:
    """The page, and what its server calls."""

    handlers: Callable[[], Mapping[str, Handler]]
    """By their paths; to be called in the thread of the endpoints."""
    end: Callable[[], None]
    """Ends all streams."""


def live_page(
    scheduler: ShownScheduler,
    clock: Clock,
    leads: Callable[[], bool],
    decision_of: DecisionOf,
    remedies_of: RemediesOf,
    loop: asyncio.AbstractEventLoop,
) -> LivePage:
    """The page, to be put behind the guard.

    ``loop`` is the loop of the scheduler, in which this is called. ``decision_of`` may be called in any thread,
    ``remedies_of`` is called in that of the endpoints.
    """
    history = history_of(scheduler, clock)
    keeping = loop.create_task(_kept(history))

    def looking() -> Look:
        take = _taking(scheduler, taker_of(scheduler, clock, leads, history))
        return lambda: across(loop, take)

    def handlers() -> Mapping[str, Handler]:
        from gangline.page.serving import page
        from gangline.process.guarding import VIEWER

        def viewer_of(request: web.Request) -> PageViewer:
            return request[VIEWER]

        return page(feed, viewer_of, decision_of, remedies_of=remedies_of)

    def close() -> None:
        feed.close()
        with suppress(RuntimeError):  # the loop has ended, and the task with it
            loop.call_soon_threadsafe(keeping.cancel)

    feed = Feed(looking)
    return LivePage(handlers, close)


def _taking(scheduler: ShownScheduler, taker: Taker) -> Callable[[], Coroutine[Any, Any, TakenPart]]:
    """Takes one part after the other, in the loop of the scheduler."""

    async def take() -> TakenPart:
        for _ in catch_up(scheduler.cache):
            await asyncio.sleep(0)
        return taker.take()

    return take


async def _kept(history: ClusterHistory) -> None:
    """Take samples until cancelled; an error costs one sample."""
    while True:
        try:
            await history.keep()
        except Exception as error:
            log.exception("the history of the page has a gap: %s", described(error))


def _topology(scheduler: ShownScheduler) -> Topology | None:
    """The topology of the first profile that groups pods; if none does, of the first profile."""
    runtimes = scheduler.runtimes.values()
    found = first_grouping(runtimes) or next(iter(runtimes), None)
    return found.topology if found is not None else None
