"""Wait until something holds, while other tasks run."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

TURNS = 100
"""Turns of the loop that take no time: so many are enough for tasks that wait for each other."""


async def until(holds: Callable[[], bool], seconds: float = 5.0, pause: float = 0.002) -> None:
    """Return once holds() is true; TimeoutError when that takes too long.

    What comes with time, or from other processes, is looked for with a `pause` between two looks, which leaves them the
    CPU.
    """
    async with asyncio.timeout(seconds):
        for turn in itertools.count():
            if holds():
                return
            await asyncio.sleep(0 if turn < TURNS else pause)
