"""A real scheduler that ends, is killed, or whose viewers go, while changes are tried for the page."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gangline.process.listening import DRAIN
from gangline_e2e.forked_programs import Forking

from ..eventually import until
from .asked_scheduler import AskedScheduler
from .processes_apart import is_there

PATIENCE = 60.0, 0.02
BEFORE_ITS_END = 8.0, 0.02
"""A process that nobody ends ends itself 20 s after its start."""
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
async def asked(tmp_path: Path, forking: Forking) -> AsyncIterator[AskedScheduler]:
    made = AskedScheduler(tmp_path, forking)
    await made.start()
    async with asyncio.timeout(120.0):
        await made.waits()
    yield made
    await made.stop()


async def asking(asked: AskedScheduler, viewer: str = "me") -> tuple[asyncio.Task[object], int]:
    """A question whose process lists the cluster, and the process."""
    asked.cluster.is_holding = True
    before = asked.children()
    task = asyncio.ensure_future(asked.ask(viewer))
    await until(lambda: asked.cluster.held == 1, *PATIENCE)
    (pid,) = set(asked.children()) - set(before)
    return task, pid


async def answer(asked: AskedScheduler, viewer: str) -> Any:
    """The answer to a question; on a busy machine the time for one may be too short, so who is refused asks again."""
    async with asyncio.timeout(2 * PATIENCE[0]):
        status, said = await asked.ask(viewer)
        while status == 503:
            await asyncio.sleep(0.2)
            status, said = await asked.ask(viewer)
    assert status == 200
    return said


async def gone(*tasks: asyncio.Task[object]) -> None:
    for task in tasks:
        with suppress(aiohttp.ClientError):
            await task


async def test_a_scheduler_that_is_told_to_stop_waits_for_no_question(asked: AskedScheduler) -> None:
    task, pid = await asking(asked)
    assert asked.cluster.holder

    asked.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    await until(lambda: not is_there(pid), *PATIENCE)
    await until(lambda: not asked.cluster.holder, *PATIENCE)
    await asyncio.to_thread(asked.process.wait)

    assert time.monotonic() - began < DRAIN, asked.said
    await gone(task)


async def test_the_process_of_a_viewer_who_has_gone_ends_and_another_viewer_is_answered(asked: AskedScheduler) -> None:
    task, pid = await asking(asked)
    task.cancel()
    await until(lambda: not is_there(pid), *BEFORE_ITS_END)

    asked.cluster.is_holding = False
    assert (await answer(asked, "other"))["unit"] == "pod default/waits"


async def test_a_scheduler_that_is_killed_takes_the_process_along(asked: AskedScheduler) -> None:
    task, pid = await asking(asked)
    asked.process.send_signal(signal.SIGKILL)
    await asyncio.to_thread(asked.process.wait)

    await until(lambda: not is_there(pid), *BEFORE_ITS_END)
    await gone(task)
