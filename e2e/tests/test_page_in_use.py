"""People stay on the page for long: with a keyboard, with many tabs, and with connections that fall silent."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

from gangline_e2e.browser import Browser, view
from gangline_e2e.shown import GANG, MadeUp

pytestmark = [pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]
SEEN = """(isSeen) => {
  Object.defineProperty(document, "hidden", { value: !isSeen, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
"""As if the tab were before the others, or behind them."""
USED = """() => {
  const map = document.getElementById("canvas"), copy = new OffscreenCanvas(map.width, map.height).getContext("2d");
  copy.drawImage(map, 0, 0);
  const { data } = copy.getImageData(0, 0, map.width, map.height);
  let coloured = 0;
  for (let at = 0; at < data.length; at += 4) {
    const pixel = data.subarray(at, at + 3);
    if (Math.max(...pixel) - Math.min(...pixel) > 80) coloured++;
  }
  return (4 * coloured) / data.length;
}"""
"""The part of the map that has the colour of a workload."""


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


async def test_more_tabs_are_open_than_a_browser_has_connections(browser: Browser) -> None:
    shown = MadeUp(2)
    async with shown.served() as url, browser.open(url) as first:
        for _ in range(7):  # a browser has 6 connections to one server
            await first.evaluate(SEEN, False)
            later = await first.context.new_page()
            await later.goto(url)
            await expect(later.locator("#connection")).to_have_text("live")
            await later.evaluate(SEEN, False)
        shown.bind("late", 1, range(8))
        await first.evaluate(SEEN, True)

        await expect(first.locator("#summary")).to_contain_text("8 of 16 GPUs used")


async def test_the_picture_that_the_page_asks_for_while_it_loads_is_the_one_that_is_shown(browser: Browser) -> None:
    async with MadeUp(2).served() as url, browser.open(url) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        await page.reload()
        await expect(page.locator("#connection")).to_have_text("live")

        assert asked.count(f"{url}/state") == 1


async def test_a_request_that_is_under_way_when_the_page_is_loaded_anew_is_no_complaint(browser: Browser) -> None:
    async with MadeUp(2).served() as url, browser.open(url) as page, page.expect_event("requestfailed"):
        await page.route("**/icon.svg?held", lambda route: None)
        async with page.expect_request("**/icon.svg?held"):
            await page.evaluate("() => { fetch('icon.svg?held') }")
        await page.reload()

    assert browser.complaints == []


async def test_the_focus_stays_in_a_table_from_which_its_row_has_gone(browser: Browser) -> None:
    shown = MadeUp(101)
    for number in range(3):
        shown.wait(f"late-{number}", "no room", seconds=60 - number)
        shown.bind(f"job-{number}", number, range(8))
    async with shown.served() as url, browser.open(url) as page:
        await view(page, "Queue")
        await page.get_by_role("button", name="team/late-1").focus()
        shown.queue.remove("pod-team-late-1")
        await expect(page.locator("#queue tbody tr")).to_have_count(2)
        await expect(page.get_by_role("button", name="team/late-2")).to_be_focused()
        shown.queue.remove("pod-team-late-2")
        await expect(page.get_by_role("region", name="Waiting, longest first")).to_be_focused()
        await view(page, "Workloads")
        await page.get_by_role("button", name="team/job-1").focus()
        shown.cache.remove_pod("pod-team-job-1")
        await expect(page.get_by_role("button", name="team/job-2")).to_be_focused()
        await view(page, "Nodes")
        await page.get_by_role("button", name="Later").focus()
        shown.cache.remove_node("node-100")
        await expect(page.locator("#nodes caption")).to_have_text("Nodes: 100")

        await expect(page.get_by_role("region", name="Nodes")).to_be_focused()


async def test_the_focus_stays_on_a_member_while_others_go(browser: Browser) -> None:
    shown = MadeUp(8)
    shown.fill(1, 8)
    async with shown.served() as url, browser.open(url) as page:
        await view(page, "Workloads")
        await page.get_by_role("button", name="team-0/gang-0").click()
        details = page.locator("#details")
        await details.get_by_role("button", name="node-5").focus()
        shown.cache.remove_pod("pod-team-0-gang-0-2")
        await expect(details).to_contain_text("7 pods on 7 nodes")

        await expect(details.get_by_role("button", name="node-5")).to_be_focused()


async def test_the_chosen_node_stays_in_sight_while_keys_zoom(browser: Browser) -> None:
    shown = MadeUp(64)
    shown.bind("mine", 0, range(8))
    async with shown.served() as url, browser.open(url) as page:
        await page.locator("#canvas").focus()
        await page.keyboard.press("ArrowRight")
        await expect(page.locator("#details h2")).to_have_text("node-0")
        for _ in range(12):
            await page.keyboard.press("+")

        await page.wait_for_function(f"() => ({USED})() > 0.01")


async def test_what_is_chosen_is_not_taken_for_another_kind_with_its_name(browser: Browser) -> None:
    shown = MadeUp(2)
    shown.bind("web", 0, range(2))
    async with shown.served() as url, browser.open(url) as page:
        await view(page, "Workloads")
        await page.get_by_role("button", name="team/web").click()
        shown.bind("web-0", 1, range(8), labels={GANG: "web"})
        await expect(page.locator("#workloads tbody tr")).to_have_count(2)
        shown.cache.remove_pod("pod-team-web")

        await expect(page.locator("#details p")).to_have_text("team/web is no longer there.")


async def test_marks_on_a_name_as_tall_as_may_be_cover_nothing_of_others(browser: Browser) -> None:
    """Not each font piles marks up, so what is looked at is that each part with the name cuts off what goes beyond."""
    shown = MadeUp(2)
    shown.wait("a", "no room", seconds=70, labels={GANG: "x" + "\u0301" * 200})
    async with shown.served() as url, browser.open(url) as page:
        await view(page, "Queue")
        await page.get_by_role("button", name="team/x").click()
        for each in ("#queue tbody button", "#details h2", "#details code"):
            part = page.locator(each, has_text="x\u0301")
            assert await part.evaluate("(part) => getComputedStyle(part).overflowY") == "clip", each
