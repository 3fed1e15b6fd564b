"""Wait until something holds, while other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], bool], seconds: float = 5.0, pause: float = 0.0) -> None:
    """Return once holds() is true; TimeoutError when that takes too long.

    While other processes are to do something, a `pause` between two looks leaves them the CPU.
    """
    async with asyncio.timeout(seconds):
        while True:
            if holds():
                return
            await asyncio.sleep(pause)
