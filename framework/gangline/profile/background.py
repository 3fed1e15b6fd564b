"""What plugins do in the background: kept going whatever it raises, and every fault of it told."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from gangline.failures import Failures, name_of, stepped

Work = Callable[[], Coroutine[Any, Any, None]]

POINT = "Background"
FIRST_PAUSE = 1.0
"""Seconds until work that failed is started again; they double with each failure."""
LONGEST_PAUSE = 300.0
SETTLED = 600.0
"""Seconds of work after which an older failure no longer counts."""


async def keep_going(work: Work, plugin: str, failures: Failures) -> None:
    """Do the work until it ends by itself; start it again, later and later, when it fails."""
    pause = FIRST_PAUSE
    loop = asyncio.get_running_loop()
    while True:
        start = loop.time()
        if await once(work, plugin, failures):
            return
        if loop.time() - start >= SETTLED:
            pause = FIRST_PAUSE
        await asyncio.sleep(pause)
        pause = min(LONGEST_PAUSE, 2 * pause)


async def once(work: Work, plugin: str, failures: Failures) -> bool:
    """Do the work; whether it came to its end. Raises nothing but that the task is cancelled."""
    plugin = plugin or name_of(work)
    try:
        doing = work()
        await (stepped(doing, lambda s: failures.slow(plugin, POINT, s)) if inspect.iscoroutine(doing) else doing)
    except BaseException as error:  # a plugin's bug ends neither the others' work nor the process
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        failures.raised(plugin, POINT, error)
        return False
    return True


def is_cancelled() -> bool:
    """Whether somebody wants the task to end, and it is not a plugin that says so."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
