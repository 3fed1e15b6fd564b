"""A browser for the page of the scheduler: chromium, driven by playwright, with the errors that chromium reports."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, async_playwright, expect

_ARGUMENTS = ("--disable-dev-shm-usage", "--force-prefers-reduced-motion")
PATIENCE = 30_000
"""Milliseconds for which the page may take to show something, on a machine that is busy."""
LEFT = "net::ERR_ABORTED"
"""The failure of a request that was under way, for example for the icon, when its page was left or loaded anew."""
expect.set_options(timeout=PATIENCE)
_FRAMES = """
const real = window.requestAnimationFrame.bind(window);
window.frames_ms = [];
window.requestAnimationFrame = (work) => real((now) => {
  const began = performance.now();
  work(now);
  window.frames_ms.push(performance.now() - began);
});
"""
"""Measures how long the page works for each frame."""


def find_chromium() -> str | None:
    """The program, or None: `apt-get install chromium` installs it on Debian."""
    return shutil.which("chromium")


class Browser:
    """Pages in one chromium, and the errors and warnings that these pages cause."""

    def __init__(self, browser: Any) -> None:
        self._browser = browser
        self.complaints: list[str] = []
        """Errors and warnings on the console, and exceptions."""

    @asynccontextmanager
    async def open(self, url: str, is_live: bool = True, **options: Any) -> AsyncIterator[Page]:
        """A new page, as soon as it is live if it is to be, for the time of the block; options are those of
        playwright's contexts.
        """
        async with self._page(options) as page:
            await page.add_init_script(_FRAMES)
            await page.goto(url)
            if is_live:
                await expect(page.locator("#connection")).to_have_text("live", timeout=PATIENCE)
            yield page

    @asynccontextmanager
    async def open_file(self, file: Path, **options: Any) -> AsyncIterator[Page]:
        """A new page that shows a file and has no network, for the time of the block; options as those of `open`."""
        async with self._page({"offline": True, **options}) as page:
            await page.goto(file.as_uri())
            yield page

    @asynccontextmanager
    async def _page(self, options: Mapping[str, Any]) -> AsyncIterator[Page]:
        """An empty page, for the time of the block; what it complains of is noted."""
        context = await self._browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        page: Page = await context.new_page()
        page.set_default_timeout(PATIENCE)
        listeners = {
            "console": lambda said: self._note(said.type, said.text),
            "pageerror": lambda error: self.complaints.append(str(error)),
            "requestfailed": lambda request: self._failed(request),
        }
        for event, listener in listeners.items():
            page.on(event, listener)  # type: ignore[call-overload]  # an overload for each name
        try:
            yield page
        finally:
            for event, listener in listeners.items():  # a request that is under way fails now
                page.remove_listener(event, listener)
            await context.close()

    async def cpu(self) -> float:
        """CPU seconds that all processes of the browser have used."""
        session = await self._browser.new_browser_cdp_session()
        found = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
        await session.detach()
        return sum(float(each["cpuTime"]) for each in found)

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def _failed(self, request: Any) -> None:
        is_stream = "/events" in request.url  # it ends when the server does
        if request.failure != LEFT and not is_stream:
            self.complaints.append(f"{request.url}: {request.failure}")


@asynccontextmanager
async def chromium(program: str) -> AsyncIterator[Browser]:
    """A chromium for the time of the block."""
    arguments = [*_ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=arguments)
        try:
            yield Browser(browser)
        finally:
            await browser.close()


async def view(page: Page, name: str) -> None:
    """Go to a view."""
    await page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
    await expect(page.locator(f"#{name.lower()}")).to_be_visible(timeout=PATIENCE)


async def hindrances(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """What axe-core finds that hinders people, each with its place: contrast, labels, structure; or by these rules."""
    only = {"runOnly": {"type": "rule", "values": [*rules]}} if rules else {}
    found = (await Axe().run(page, options={"resultTypes": ["violations"], **only})).response["violations"]
    return [f"{each['id']}: {node['target']} {node['failureSummary']}" for each in found for node in each["nodes"]]


async def first_picture(page: Page) -> float:
    """Milliseconds from the begin of loading until everything in sight was drawn."""
    await page.wait_for_function("() => performance.getEntriesByName('first-picture').length")
    found: float = await page.evaluate("() => performance.getEntriesByName('first-picture')[0].startTime")
    return found


async def work_of_frames(page: Page) -> list[float]:
    """Milliseconds of work for each frame since the last call, in order of size."""
    found: list[float] = await page.evaluate("() => window.frames_ms.splice(0)")
    return sorted(found)
