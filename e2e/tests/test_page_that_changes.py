"""People look at the cluster in a browser while it changes, while schedulers are restarted, and while none answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from playwright.async_api import Route, expect

from gangline.commands.relaying import Relay, Upstream
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline_e2e.browser import PATIENCE, Browser, hindrances, view
from gangline_e2e.ports import free_port
from gangline_e2e.scenes import small
from gangline_e2e.shown import GANG, MadeUp, Stranger

pytestmark = [pytest.mark.timeout(240), pytest.mark.asyncio(loop_scope="module")]
UNREACHABLE = "The scheduler is unreachable; trying again …"
NOBODY = Credentials(lambda: Access("https://unused"))


class PlainUpstream(Upstream):
    """A made-up scheduler, which asks nobody for credentials."""

    def __init__(self, url: str) -> None:
        super().__init__("https://unused", NOBODY)
        self._plain = url.removesuffix("/ui")

    @asynccontextmanager
    async def get(self, path: str, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """See `Upstream`."""
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.get(f"{self._plain}{path}", headers=headers) as answer,
        ):
            yield answer


@asynccontextmanager
async def relayed(upstream: Upstream) -> AsyncIterator[Relay]:
    """The relay of `gangline ui` before a scheduler, for the time of the block."""
    relay = Relay(upstream)
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
        await upstream.close()
        await relay.upstream.close()


async def test_what_changes_in_the_cluster_changes_on_the_page(browser: Browser) -> None:
    shown = small()
    async with shown.served() as url, browser.open(url) as page:
        await view(page, "Nodes")
        shown.bind("late", 15, range(4), "other")
        shown.report(15, sick=[7])

        row = page.locator("#nodes tbody tr").nth(15)
        await expect(row).to_contain_text("4 of 8", timeout=PATIENCE)
        await expect(row).to_contain_text("other/late")
        await expect(row).to_contain_text("1 sick")
        shown.cache.remove_node("node-15")
        await expect(page.locator("#nodes tbody tr")).to_have_count(15)


async def test_who_reads_a_table_is_not_disturbed_by_changes(browser: Browser) -> None:
    shown = MadeUp(64)
    async with shown.served() as url, browser.open(url) as page:
        await view(page, "Nodes")
        table = page.get_by_role("region", name="Nodes")
        await table.focus()
        await table.evaluate("table => table.scrollTop = 500")
        shown.bind("late", 20, range(4), "other")
        await expect(page.locator("#nodes")).to_contain_text("other/late")
        assert await table.evaluate("table => table.scrollTop") == 500
        await expect(table).to_be_focused()
        await page.get_by_role("button", name="node-20").focus()
        shown.bind("later", 20, range(4, 8), "other")
        await expect(page.locator("#nodes")).to_contain_text("other/later")

        await expect(page.get_by_role("button", name="node-20")).to_be_focused()


async def test_what_is_chosen_stays_up_to_date_while_somebody_reads_it(browser: Browser) -> None:
    shown = MadeUp(2)
    shown.bind("train-0", 0, range(8), labels={GANG: "train"})
    async with shown.served() as url, browser.open(url) as page:
        await view(page, "Workloads")
        await page.get_by_role("button", name="team/train").click()
        details = page.locator("#details")
        await details.get_by_role("button", name="node-0").focus()
        shown.bind("train-1", 1, range(8), labels={GANG: "train"})
        await expect(details).to_contain_text("2 pods on 2 nodes")
        await expect(details.get_by_role("button", name="node-0")).to_be_focused()
        for name in ("train-0", "train-1"):
            shown.cache.remove_pod(f"pod-team-{name}")
        await expect(details.locator("p")).to_have_text("team/train is no longer there.")
        await expect(page.locator("#said")).to_have_text("team/train is no longer there")
        await expect(details).to_be_focused()
        shown.bind("train-0", 1, range(4), labels={GANG: "train"})  # created anew

        await expect(details).to_contain_text("train-0 (GPU 0–3) on node-1")


async def test_who_loses_the_right_to_see_a_chosen_workload_is_not_told_that_it_is_gone(browser: Browser) -> None:
    class Neighbour(Stranger):
        seen = frozenset({"team", "own"})

        async def may_list_pods(self, namespace: str) -> bool:
            return namespace in self.seen

    shown, viewer = MadeUp(2), Neighbour()
    shown.bind("train", 0, range(8))
    async with shown.served(viewer) as url, browser.open(url) as page:
        await view(page, "Workloads")
        await page.get_by_role("button", name="team/train").click()
        viewer.seen = frozenset({"own"})
        shown.bind("mine", 1, range(4), "own")
        text = "team/train is no longer there, or you may no longer see the namespace team"

        await expect(page.locator("#details p")).to_have_text(f"{text}.", timeout=PATIENCE)
        await expect(page.locator("#said")).to_have_text(text)


async def test_a_link_leads_to_what_it_names_after_the_rows_have_moved(browser: Browser) -> None:
    shown = MadeUp(2)
    shown.bind("a", 0, range(2))
    async with shown.served() as url, browser.open(url) as page:
        await view(page, "Workloads")
        await expect(page.locator("#workloads tbody tr")).to_have_count(1)
        shown.bind("b", 1, range(4))
        shown.cache.remove_pod("pod-team-a")
        await expect(page.locator("#workloads tbody tr")).to_contain_text(["team/b"])
        await page.get_by_role("button", name="team/b").click()

        await expect(page.locator("#details")).to_contain_text("b (GPU 0–3) on node-1")


async def test_what_is_chosen_is_found_again_after_a_restart_of_the_scheduler(browser: Browser) -> None:
    before, after = MadeUp(2), MadeUp(2)
    before.bind("train", 0, range(8))
    after.bind("first", 1, range(4))  # has now the number of the other one
    after.bind("train", 0, range(8))
    async with (
        before.served() as url,
        after.served() as other,
        relayed(PlainUpstream(url)) as relay,
        browser.open(relay.address) as page,
    ):
        await view(page, "Workloads")
        await page.get_by_role("button", name="team/train").click()
        heading = page.locator("#details h2")
        await expect(heading).to_have_text("team/train")
        await relay.upstream.close()
        relay.upstream = PlainUpstream(other)
        await expect(page.locator("#workloads")).to_contain_text("team/first")

        await expect(heading).to_have_text("team/train")


@pytest.mark.parametrize("status", [0, 502], ids=["no answer", "gangline ui has none"])
async def test_a_scheduler_that_does_not_answer_is_unreachable_until_it_answers(browser: Browser, status: int) -> None:
    async with small().served() as url, browser.open(url) as page:
        await page.route(
            "**/ui/state", lambda route: route.fulfill(status=status, body="why") if status else route.abort()
        )
        await page.reload()
        await expect(page.locator("#connection")).to_have_text(UNREACHABLE)
        await page.unroute("**/ui/state")
        await expect(page.locator("#connection")).to_have_text("live")
    browser.complaints.clear()  # of requests in vain


async def test_the_page_of_gangline_ui_without_a_scheduler_hinders_nobody_and_goes_on_by_itself(
    browser: Browser,
) -> None:
    gone = Upstream(f"https://127.0.0.1:{free_port()}", NOBODY)
    async with (
        small().served() as url,
        relayed(gone) as relay,
        browser.open(relay.address, is_live=False) as page,
    ):
        await expect(page.get_by_role("heading")).to_have_text("The scheduler is unreachable")
        assert await hindrances(page) == []
        relay.upstream = PlainUpstream(url)

        await expect(page.locator("#connection")).to_have_text("live")
    browser.complaints.clear()  # of requests in vain


async def test_changes_that_never_come_are_noticed_also_after_they_were_refused(browser: Browser) -> None:
    asked, again = 0, asyncio.Event()

    async def answer(route: Route) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            await route.fulfill(status=503, body="too many streams")
            return
        await route.abort()
        if asked == 3:
            again.set()

    async with small().served() as url, browser.open(url) as page:
        await page.route("**/ui/events?*", answer)
        await page.reload()
        await again.wait()
        await expect(page.locator("#connection")).to_have_text("live")
        await expect(page.locator("#connection")).to_have_text(UNREACHABLE)
    browser.complaints.clear()  # of requests in vain
