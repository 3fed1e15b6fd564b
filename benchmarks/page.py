"""What the page costs: the first picture and the frames in a browser, and the CPU of the scheduler's side with viewers.

The cluster is made up, with the columns, the queue and the page of the scheduler, and without an API server. Pods come
and go all the time. The side of the scheduler is a process of its own, whose CPU time is read at the start and the end
of each stretch, so that other work on the machine does not count. The bar is 1 % of a core more with five viewers, and
a first picture within a second.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import aiohttp
from playwright.async_api import Page

from gangline.process.memory import settle_memory
from gangline_e2e.browser import Browser, chromium, find_chromium, work_of_frames
from gangline_e2e.browser import first_picture as picture_of
from gangline_e2e.shown import MadeUp

GPUS = 8
GANG = 64
"""Members of a gang, one on each node."""
SETTLE = 5.0
"""Seconds before each stretch that are not measured."""
SAMPLES = 20


def cpu() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def serve(nodes: int, churn: float) -> None:
    """Serve the page: prints its address, and then its CPU time for each line on standard input."""
    shown = MadeUp(nodes, pause=1.0)
    shown.fill(gangs=nodes * 9 // 10 // GANG, size=GANG)
    first = nodes * 9 // 10 // GANG * GANG
    settle_memory()  # as the scheduler does
    loop = asyncio.get_running_loop()
    async with shown.served() as url:
        work = loop.create_task(_churn(shown, first, nodes, churn))
        began = cpu()
        for _ in range(SAMPLES):
            shown.history.sample()
        print(url, (cpu() - began) / SAMPLES, flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(cpu(), flush=True)
        work.cancel()


async def _churn(shown: MadeUp, first: int, nodes: int, rate: float) -> None:
    """So many pods a second come on the nodes from the first one on, each in the place of the oldest one there."""
    room = max(1, nodes - first)
    for number in itertools.count():
        if number >= room:
            shown.cache.remove_pod(f"pod-churn-job-{number - room}")
        shown.bind(f"job-{number}", first + number % room, range(4), "churn", runs=60, ends=600)
        await asyncio.sleep(1.0 / rate)


class ServedProcess:
    """The process that serves."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None and process.stdin is not None
        self._said, self._asked = process.stdout, process.stdin
        self.url, sample = self._said.readline().split()
        self.sample = float(sample)
        """CPU seconds of one sample of the history."""

    def cpu(self) -> float:
        """CPU seconds that the process has used."""
        self._asked.write("\n")
        self._asked.flush()
        return float(self._said.readline())


@contextmanager
def served(nodes: int, churn: float) -> Iterator[ServedProcess]:
    """The process, for the time of the block."""
    words = [sys.executable, os.path.abspath(__file__), "--serve", "--nodes", str(nodes), "--churn", str(churn)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield ServedProcess(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


async def _follow(session: aiohttp.ClientSession, url: str) -> None:
    """A viewer: the picture once, then its changes, as the browser asks for them."""
    position = ""
    while not position:
        async with session.get(f"{url}/state") as answer:
            if answer.status == 429:  # too many pictures for one viewer at a time
                await asyncio.sleep(float(answer.headers["Retry-After"]))
            else:
                position = (await answer.json())["id"]
    while True:
        async with session.get(f"{url}/events", headers={"Last-Event-ID": position}) as answer:
            async for line in answer.content:
                if line.startswith(b"id: "):
                    position = line[4:].strip().decode()
        await asyncio.sleep(0.2)


async def cost(process: ServedProcess, viewers: int, seconds: float) -> float:
    """The part of a core that the process uses with so many viewers."""
    async with aiohttp.ClientSession(read_bufsize=2**24, timeout=aiohttp.ClientTimeout(total=None)) as session:
        tasks = [asyncio.create_task(_follow(session, process.url)) for _ in range(viewers)]
        await asyncio.sleep(SETTLE)
        began, before = time.monotonic(), process.cpu()
        await asyncio.sleep(seconds)
        used = (process.cpu() - before) / (time.monotonic() - began)
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return used


async def first_picture(browser: Browser, process: ServedProcess) -> str:
    """How long a new viewer waits for the first picture, and the CPU of both sides until then."""
    before, browsed = process.cpu(), await browser.cpu()
    async with browser.open(process.url) as page:
        drawn = await picture_of(page)
        served_in, browsed = process.cpu() - before, await browser.cpu() - browsed
        return f"{drawn:.0f} ms; CPU: scheduler {1000 * served_in:.0f} ms, browser {1000 * browsed:.0f} ms"


async def panned(page: Page) -> tuple[list[float], list[float]]:
    """Drag the map about: milliseconds of work for each frame, and between frames, both in order of size."""
    await page.get_by_role("button", name="Zoom in").click(click_count=5)
    await work_of_frames(page)
    await page.evaluate(_WATCH)
    await page.mouse.move(300, 400)
    await page.mouse.down()
    for step in range(240):
        await page.mouse.move(300 + 4 * (step % 60), 400 + 2 * (step % 120))
    await page.mouse.up()
    between: list[float] = await page.evaluate("() => window.between.splice(0)")
    return await work_of_frames(page), sorted(between)


_WATCH = """() => {
  window.between = [];
  let before = performance.now();
  const tick = (now) => { window.between.push(now - before); before = now; requestAnimationFrame(tick); };
  requestAnimationFrame(tick);
}"""


async def measured(nodes: int, churn: float, seconds: float, viewers: int) -> None:
    """Print all figures."""
    with served(nodes, churn) as process:
        alone = await cost(process, 0, seconds)
        program = find_chromium()
        if program is None:
            print("no chromium: the browser is left out")
        else:
            async with chromium(program) as browser:
                print(f"first picture, when nobody has looked before: {await first_picture(browser, process)}")
                print(f"first picture, when others look: {await first_picture(browser, process)}")
                async with browser.open(process.url) as page:
                    work, between = await panned(page)
            middle, most = work[len(work) // 2], work[len(work) * 19 // 20]
            print(f"work for a frame while the map is moved: {middle:.1f} ms, 19 of 20 at most {most:.1f} ms")
            print(f"between two frames: {between[len(between) // 2]:.1f} ms ({len(between)} frames)")
        looked_at = await cost(process, viewers, seconds)
        print(f"CPU with {churn:g} pods a second and nobody looking: {alone:.2%} of a core")
        print(f"CPU with {viewers} viewers: {looked_at:.2%} of a core, {looked_at - alone:.2%} more")
        print(f"a sample of the history: {1000 * process.sample:.0f} ms, every 30 s, whether somebody looks or not")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--churn", type=float, default=20.0, help="pods that come in a second, and as many that go")
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each stretch")
    parser.add_argument("--viewers", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.nodes, options.churn))
    else:
        asyncio.run(measured(options.nodes, options.churn, options.seconds, options.viewers))


if __name__ == "__main__":
    main()
