"""Wait until something holds, while other tasks run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    """Return once holds() is true; TimeoutError when that takes too long."""
    async with asyncio.timeout(seconds):
        while True:
            if holds():
                return
            await asyncio.sleep(0)
