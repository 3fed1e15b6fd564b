"""Made-up clusters to look at, and the documentation's pictures of them and of the report of a replay:
`python -m gangline_e2e.scenes`.
"""

from __future__ import annotations

import asyncio
import math
import sys
import tempfile
from pathlib import Path

from click.testing import CliRunner
from playwright.async_api import Page

from gangline.main import cli
from gangline.remedies import Remedies, Remedy, RemedyCost, RemedyKind
from gangline_e2e.browser import PATIENCE, Browser, chromium, find_chromium
from gangline_e2e.shown import GANG, MadeUp

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
SIZE = {"width": 1280, "height": 720}


def small() -> MadeUp:
    """Two leaves with a gang, a pod of another team, a sick GPU, a cordoned and a tainted node, and a queue."""
    shown = MadeUp(16)
    for number in range(16):
        shown.report(number, sick=[3] if number == 5 else ())
    for rank in range(4):
        shown.bind(f"train-{rank}", rank, range(8), labels={GANG: "train"})
    shown.bind("serve", 4, [6, 7], "other")
    shown.change_node(8, unschedulable=True)
    shown.change_node(9, taints=["maintenance=soon:NoSchedule"])
    shown.wait("large", "0/16 nodes are available: 16 Insufficient nvidia.com/gpu.", gpus=64)
    return shown


def busy() -> MadeUp:
    """As `small`, with times: a pod that waits with room kept for it, a pod that is backfilled there, and a past."""
    shown = small()
    shown.bind("night", 6, range(8), runs=4000, ends=1500)
    shown.bind("filler", 10, [0, 1], "other", runs=60, ends=600)
    shown.expect(shown.wait("next", "room is kept on 2 nodes", gpus=16, seconds=900), 1500, [6, 10])
    shown.decide("night", 7, {"LeafSpine": 81.5})
    shown.remember(8, 1800.0)
    return shown


def large() -> MadeUp:
    """64 nodes with gangs and single pods of three teams, some of which wait; for the pictures."""
    shown = MadeUp(64)
    for number in range(64):
        shown.report(number, sick=[3] if number == 45 else ())
    for number, seconds in enumerate((1500, 900, 240)):
        shown.wait(f"batch-{number}", "0/64 nodes are available: 64 Insufficient nvidia.com/gpu.", 8, "audio", seconds)
    shown.remember(120, 180.0, lambda hour: 0.6 + 0.25 * math.sin(hour / 1.9) + 0.04 * math.sin(9 * hour), 64)
    gangs = (
        ("llama", "research", 0, 16, 9000, 5400),
        ("vision", "research", 16, 8, 5000, 2600),
        ("speech", "audio", 32, 12, 2000, 0),
    )
    for name, team, first, size, runs, ends in gangs:
        for rank in range(size):
            labels = {GANG: name}
            shown.bind(f"{name}-{rank}", first + rank, range(8), team, runs=runs, ends=ends, labels=labels)
    for number, (gpus, runs, ends) in enumerate([(4, 700, 900), (2, 500, 1800), (8, 90, 2200), (6, 400, 1500)]):
        shown.bind(f"sweep-{number}", 24 + number, range(gpus), "tuning", runs=runs, ends=ends)
    for number in range(12):
        shown.bind(
            f"notebook-{number}",
            44 + number % 10,
            [2 * (number // 10), 2 * (number // 10) + 1],
            "tuning",
            runs=3000 + 60 * number,
        )
    shown.change_node(60, unschedulable=True)
    shown.change_node(61, taints=["maintenance=tonight:NoSchedule"])
    why = "room is kept on 16 nodes (node-16, ...) with 128 GPUs"
    waits = shown.wait("diffusion", why, gpus=128, namespace="research", seconds=2400)
    shown.expect(waits, 2600, range(16, 32))
    shown.remedies[waits] = _remedies()
    shown.decide(
        "llama-0",
        48,
        {"TopologyPlacement": 97.0, "AntiFragmentation": 64.2},
        "research",
        ("llama", "spine-0", 0.94, 16),
    )
    return shown


async def _photograph(page: Page, name: str) -> None:
    await page.screenshot(path=PICTURES / f"{name}.png")
    print(f"docs/pictures/{name}.png")


def _remedies() -> Remedies:
    """What would let the largest of the waiting workloads start."""
    smaller = "Request 64 nvidia.com/gpu per pod instead of 128."
    freed = "Wait until 64 GPUs come free, for example when gang research/vision ends."
    return Remedies(
        "pod research/diffusion",
        (
            Remedy(RemedyKind.SMALLER_REQUESTS, smaller, {}, RemedyCost(given_up=0.5)),
            Remedy(RemedyKind.FREE_ROOM, freed, {}, RemedyCost(8, changed=8)),
        ),
        24,
    )


def _report(file: Path) -> None:
    """Write the report that docs/operating/replay.md shows."""
    words = ["replay", str(ROOT / "examples" / "replay" / "jobs.csv"), "--nodes", "16x8"]
    words += ["--profile", "gpu-scheduler", "--profile", "default", "--report", str(file)]
    CliRunner().invoke(cli, words, catch_exceptions=False, standalone_mode=False)


async def _photograph_report(file: Path, browser: Browser) -> None:
    async with browser.open_file(file, viewport={"width": 900, "height": 1330}) as page:
        await _photograph(page, "replay")


async def photographed(program: str) -> None:
    """Make the pictures of the page, and of the report of a replay."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.html"
        await asyncio.to_thread(_report, report)  # which runs a loop of its own
        async with chromium(program) as browser:
            await _photograph_report(report, browser)
    async with large().served() as url, chromium(program) as browser, browser.open(url, viewport=SIZE) as page:
        await page.goto(f"{url}#workloads")
        await page.get_by_role("button", name="research/llama").click()
        await page.get_by_text("llama-0 was placed").wait_for(timeout=PATIENCE)
        await page.goto(f"{url}#map")
        await _photograph(page, "page")
        await page.goto(f"{url}#timeline")
        await page.get_by_role("button", name="research/diffusion").click()
        await page.get_by_text("Room kept").wait_for(timeout=PATIENCE)
        await page.get_by_role("button", name="Try changes").click()
        await page.get_by_role("button", name="Try again").wait_for(timeout=PATIENCE)
        await _photograph(page, "page-timeline")
        await page.goto(f"{url}#history")
        await page.set_viewport_size({"width": 1280, "height": 960})
        await _photograph(page, "page-history")


if __name__ == "__main__":
    found = find_chromium()
    if found is None:
        sys.exit("there is no chromium: apt-get install chromium")
    asyncio.run(photographed(found))
