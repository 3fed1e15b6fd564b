"""Somebody replays a trace under two profiles and opens the report in a browser, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from playwright.async_api import expect

from gangline.main import cli
from gangline_e2e.browser import chromium, hindrances

pytestmark = pytest.mark.timeout(300)
EVIL = "<img src=x onerror=document.title='pwned'>"
TRACE = (
    "arrival,duration,pods,gpus,cpu,memory,priority\n"
    "0,3600,1,8,16,64Gi,0\n10,3600,2,8,16,64Gi,0\n20,600,1,1,2,8Gi,0\n60,600,2,8,1,1Gi,100\n"
)


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    """A report whose names are hostile."""
    trace, page = tmp_path / f"{EVIL.replace('/', '')}.csv", tmp_path / "report.html"
    trace.write_text(TRACE)
    words = ["replay", f"{trace}", "--nodes", "3x8", "--profile", "gpu-scheduler", "--profile", "default"]
    result = CliRunner().invoke(cli, [*words, "--report", f"{page}"], catch_exceptions=False)
    assert result.exit_code == 0
    return page


async def test_the_report_hinders_nobody_in_light_and_dark_and_fits_on_a_phone(
    page_file: Path, chromium_program: str
) -> None:
    async with chromium(chromium_program) as browser:
        for scheme, width in (("light", 1280), ("dark", 360)):
            viewport = {"width": width, "height": 740}
            async with browser.open_file(page_file, color_scheme=scheme, viewport=viewport) as page:
                await expect(page.locator("svg.chart")).to_have_count(6)
                await page.evaluate("() => document.querySelectorAll('details').forEach(each => each.open = true)")
                assert await hindrances(page) == []
                assert await page.evaluate("() => document.documentElement.scrollWidth") <= width
                assert await page.title() == "Replay: gpu-scheduler, default-scheduler"
                await expect(page.locator(".about")).to_contain_text(EVIL)
        assert browser.complaints == []
