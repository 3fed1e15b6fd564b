"""What a leader still does when it is told to stop, after it has begun its last decision."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from gangline.kube.handing_over import Writes
from gangline.loop.binding import Binder
from gangline.loop.following import TOLD_WITHIN, Informers
from gangline.profile.background import Background

log = logging.getLogger(__name__)

StopWriting = Callable[[], Awaitable[bool]]
"""Makes the client send no write any more; returns whether the API server carries out none any more."""
FINISHING = 5.0
"""Seconds that the bindings which have begun may take."""
SPAWNED_WITHIN = 2.0
"""Seconds that the spawned work of plugins may take: the rest of a gang is evicted."""


async def finish(
    binder: Binder, spawned: Background, informers: Informers, writes: Writes, stop_writing: StopWriting | None
) -> bool:
    """Carry out what has begun; returns whether no write is under way any more.

    Bindings that take longer than FINISHING write nothing any more: the next leader decides on their pods anew. After
    the last write the watches may take TOLD_WITHIN seconds to show what was written, so that the next leader can be
    told. If `stop_writing` is None, writes may be under way as long as bindings are.
    """
    all_are_over = await _has_bound(binder)
    with suppress(TimeoutError):
        async with asyncio.timeout(SPAWNED_WITHIN):
            await spawned.finished()
    if not all_are_over and (stop_writing is None or not await stop_writing()):
        log.warning("writes are still under way: the Lease is not released, the next leader waits until it expires")
        return False
    with suppress(TimeoutError):
        async with asyncio.timeout(TOLD_WITHIN):
            await informers.confirmed(writes)
    return True


async def _has_bound(binder: Binder) -> bool:
    """Whether all bindings that have begun are over soon."""
    try:
        async with asyncio.timeout(FINISHING):
            await binder.finish()
    except TimeoutError:
        under_way = binder.pending + binder.slow
        log.warning("stopping with %d bindings under way: %g s have passed", under_way, FINISHING)
        return False
    return True
