"""People stay on the page for long: with a keyboard, with many tabs, and with connections that fall silent."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gangline_e2e.browser import Browser, view
from gangline_e2e.shown import MadeUp

pytestmark = [pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]


async def test_a_gpu_keeps_its_number_where_another_one_is_missing(browser: Browser) -> None:
    shown = MadeUp(1)
    shown.report(0, sick=[3], missing=[2])
    shown.bind("mine", 0, [6, 7])
    async with shown.served() as url, browser.open(url) as page:
        await view(page, "Nodes")
        await page.get_by_role("button", name="node-0").click()
        details = page.locator("#details")

        await expect(details).to_contain_text("team/mine GPU 6, 7")
        await expect(details).to_contain_text("GPU 3: XID 79")
        await expect(details).to_contain_text("NVLink between 0, 1, 3; NVLink between 4–7")
