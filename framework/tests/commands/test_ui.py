"""`gangline ui`: a browser without credentials sees the page with those of the kubeconfig, and nobody else does."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import click
import pytest
from yarl import URL

from gangline.commands.options import Connection
from gangline.commands.relaying import Relay, Upstream
from gangline.commands.ui import leader_among, seek
from gangline.errors import ClusterError, ConfigError
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.page.serving import POLICY
from gangline.process.listening import DRAIN
from gangline.testing import make_pod

from ..eventually import until
from ..page.served_page import ServedPage
from .scheduler_pods import forwarding


class Relayed:
    """A page behind the guard, the relay before it, and a browser."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.page = ServedPage()
        self._stack = stack

    async def start(self, token: str = "one") -> None:
        await self.page.served.open()
        self._stack.push_async_callback(self.page.served.close)
        self._stack.callback(self.page.feed.close)
        address = f"https://127.0.0.1:{self.page.served.secure_port}"
        self.upstream = Upstream(address, Credentials(lambda: Access(address, authorization=f"Bearer {token}")))
        self._stack.push_async_callback(self.upstream.close)
        self.relay = Relay(self.upstream)
        await self.relay.start()
        self._stack.push_async_callback(self.relay.stop)
        self.browser = await self._stack.enter_async_context(
            aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True))
        )

    def url(self, path: str) -> URL:
        return URL(self.relay.address).join(URL(path))

    async def status(self, path: str) -> int:
        async with self.browser.get(self.url(path)) as answer:
            return answer.status


@pytest.fixture
async def relayed() -> AsyncIterator[Relayed]:
    async with AsyncExitStack() as stack:
        made = Relayed(stack)
        await made.start()
        yield made


async def test_the_printed_address_leads_to_the_page_with_the_credentials_of_the_kubeconfig(relayed: Relayed) -> None:
    async with relayed.browser.get(relayed.relay.address) as answer:
        assert answer.status == 200 and "<title>Gangline</title>" in await answer.text()
        assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        assert str(answer.url) == str(relayed.url("/ui"))  # without the key
    async with relayed.browser.get(relayed.url("/ui/state")) as answer:
        assert set((await answer.json())["of"]) == {"one"}


async def test_who_does_not_know_the_key_sees_nothing(relayed: Relayed) -> None:
    assert [await relayed.status(path) for path in ("/", "/ui", "/ui/state", "/ui/page.js")] == [403] * 4
    async with relayed.browser.get(f"{relayed.url('/')}?key=guess") as answer:
        assert answer.status == 403 and "Set-Cookie" not in answer.headers


async def test_a_cookie_of_bytes_that_are_no_text_is_not_the_key(relayed: Relayed) -> None:
    port = relayed.url("/ui").port or 0
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /ui HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: gangline-ui-%d=\xff\xfe\r\n\r\n" % port)

    assert (await reader.readline()).startswith(b"HTTP/1.1 403 ")
    writer.close()


async def test_another_name_that_leads_to_this_machine_is_refused(relayed: Relayed) -> None:
    async with relayed.browser.get(relayed.relay.address, headers={"Host": "rebound.example.com"}) as answer:
        assert answer.status == 403 and "Set-Cookie" not in answer.headers


async def test_the_relay_passes_on_nothing_but_the_page(relayed: Relayed) -> None:
    async with relayed.browser.get(relayed.relay.address):
        pass

    assert [await relayed.status(path) for path in ("/metrics", "/configz", "/ui/a/b")] == [404] * 3


async def test_changes_come_through(relayed: Relayed) -> None:
    async with relayed.browser.get(relayed.relay.address):
        pass
    async with relayed.browser.get(relayed.url("/ui/state")) as answer:
        position = (await answer.json())["id"]
    async with relayed.browser.get(relayed.url("/ui/events"), headers={"Last-Event-ID": position}) as answer:
        relayed.page.shown.bind(make_pod("new", gpus=1, node="n", namespace="one"))
        async with asyncio.timeout(10):
            async for line in answer.content:
                if b'"new"' in line:
                    return
    raise AssertionError("the change has not come")


async def test_an_open_stream_does_not_keep_the_command_from_its_end(relayed: Relayed) -> None:
    async with relayed.browser.get(relayed.relay.address):
        pass
    async with relayed.browser.get(relayed.url("/ui/state")) as answer:
        position = (await answer.json())["id"]
    async with relayed.browser.get(relayed.url("/ui/events"), headers={"Last-Event-ID": position}) as answer:
        assert answer.status == 200
        async with asyncio.timeout(DRAIN - 1):
            await relayed.relay.stop()


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_pages_of_other_sites_and_of_other_ports_of_this_machine_ask_in_vain(relayed: Relayed, site: str) -> None:
    async with relayed.browser.get(relayed.relay.address):
        pass
    for path, status in (("/ui/state", 403), ("/ui/events", 403), ("/ui/remedies", 403), ("/ui", 200)):
        async with relayed.browser.get(relayed.url(path), headers={"Sec-Fetch-Site": site}) as answer:
            assert answer.status == status


async def test_the_credentials_go_to_no_server_that_a_request_names(relayed: Relayed) -> None:
    came: list[bytes] = []

    async def other(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readline())
        writer.close()

    async with relayed.browser.get(relayed.relay.address):
        pass
    cookies = "; ".join(f"{each.key}={each.value}" for each in relayed.browser.cookie_jar)
    async with await asyncio.start_server(other, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        for target in (f"http://127.0.0.1:{port}/ui/state", f"//127.0.0.1:{port}/ui/state"):
            reader, writer = await asyncio.open_connection("127.0.0.1", relayed.url("/").port)
            writer.write(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookies}\r\n\r\n".encode())
            assert (await reader.readline()).split()[1] in (b"400", b"404")
            writer.close()

    assert not came


async def test_the_scheduler_hears_that_the_browser_has_gone(relayed: Relayed) -> None:
    page = relayed.page
    page.shown.wait(make_pod("w", gpus=8, namespace="one"))
    page.answering.clear()
    async with relayed.browser.get(relayed.relay.address):
        pass
    url = relayed.url("/ui/remedies").with_query(namespace="one", unit="pod-one-w")
    asked = asyncio.create_task(relayed.status(str(url.relative())))
    await until(lambda: page.asked_now == 1)
    asked.cancel()

    await until(lambda: page.asked_now == 0)


async def headers_then_style(port: int, context: ssl.SSLContext | None, lines: str) -> bytes:
    """What comes on one connection for HEAD /ui/events, and for the style sheet after that."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        for request in ("HEAD /ui/events", "GET /ui/style.css"):
            writer.write(f"{request} HTTP/1.1\r\nHost: 127.0.0.1\r\n{lines}\r\n".encode())
        async with asyncio.timeout(10):
            return await reader.readuntil(b"text/css")
    finally:
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("is_relayed", [True, False], ids=["the relay", "the scheduler"])
async def test_who_asks_for_the_headers_of_a_stream_gets_no_stream(relayed: Relayed, is_relayed: bool) -> None:
    async with relayed.browser.get(relayed.relay.address):
        pass
    async with relayed.browser.get(relayed.url("/ui/state")) as answer:
        lines = f"Last-Event-ID: {(await answer.json())['id']}\r\n"
    cookies = "; ".join(f"{each.key}={each.value}" for each in relayed.browser.cookie_jar)

    if is_relayed:
        said = await headers_then_style(relayed.url("/").port or 0, None, f"{lines}Cookie: {cookies}\r\n")
    else:
        port, context = relayed.page.served.secure_port, ssl._create_unverified_context()
        said = await headers_then_style(port, context, f"{lines}Authorization: Bearer one\r\n")

    assert said.count(b"HTTP/1.1 200 OK") == 2 and b"text/event-stream" in said and b"retry:" not in said


async def test_while_the_scheduler_is_gone_a_page_names_it_and_asks_again(relayed: Relayed) -> None:
    async with relayed.browser.get(relayed.relay.address):
        pass
    await relayed.page.served.close()

    async with relayed.browser.get(relayed.url("/ui")) as answer:
        page = await answer.text()
        assert (answer.status, answer.content_type) == (502, "text/html")
        assert answer.headers["Content-Security-Policy"] == POLICY
    async with relayed.browser.get(relayed.url("/ui/state")) as answer:
        said = await answer.text()
        assert (answer.status, answer.content_type) == (502, "text/plain")

    async with relayed.browser.get(relayed.url("/ui/again.js")) as answer:
        assert (answer.status, answer.content_type) == (200, "text/javascript")

    why = f"no scheduler answers at https://127.0.0.1:{relayed.page.served.secure_port}: Connection refused"
    assert said == f"{why}\n" and why in page and '<script src="/ui/again.js" defer>' in page


async def test_when_the_pod_that_is_reached_has_gone_another_one_is_looked_for(relayed: Relayed) -> None:
    async with relayed.browser.get(relayed.relay.address):
        pass
    await relayed.page.served.close()
    tries: list[AsyncExitStack] = []

    async with AsyncExitStack() as stack:
        other = Relayed(stack)
        await other.start()
        found = await stack.enter_async_context(AsyncExitStack())
        found.push_async_callback(relayed.upstream.close)

        async def find(mine: AsyncExitStack) -> Upstream:
            tries.append(mine)
            if len(tries) == 1:
                raise ConfigError("", "", "no running pod")
            return other.upstream

        seeking = asyncio.create_task(seek(relayed.relay, find, found, again=0.0))
        stack.callback(seeking.cancel)
        async with asyncio.timeout(10):
            while await relayed.status("/ui/state") == 502:
                pass

        assert len(tries) == 2 and relayed.relay.upstream is other.upstream


async def test_a_request_to_a_pod_that_is_asked_no_longer_is_answered_as_without_a_scheduler(relayed: Relayed) -> None:
    async with relayed.browser.get(relayed.relay.address):
        pass
    await relayed.upstream.close()

    assert await relayed.status("/ui/state") == 502


async def test_a_user_who_may_not_see_the_page_is_told_so_at_once(relayed: Relayed) -> None:
    await relayed.upstream.check()
    assert await relayed.upstream.leads()
    relayed.page.reviews.tokens.clear()
    async with AsyncExitStack() as stack:
        other = Relayed(stack)
        await other.start(token="stranger")
        with pytest.raises(ClusterError, match="answers 401: Unauthorized; log in again") as caught:
            await other.upstream.check()
        assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    "address",
    [
        "http://scheduler:8080",
        "scheduler:10259",
        "https://",
        "https://[::1",
        "https://scheduler:port",
        "https://scheduler:99999",
    ],
)
async def test_credentials_go_over_tls_only(address: str) -> None:
    with pytest.raises(click.UsageError, match="expected https://HOST:PORT"):
        Upstream(address, Credentials(lambda: Access("https://api")))


def processes(folder: Path) -> list[Path]:
    """What /proc has of each kubectl that was started, while it runs."""
    return [Path("/proc") / number for number in (folder / "pids").read_text().split()]


async def test_only_the_replica_that_is_shown_stays_reached(
    relayed: Relayed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"https://127.0.0.1:{relayed.page.served.secure_port}"
    forwarding(tmp_path, address, monkeypatch)
    credentials = Credentials(lambda: Access(address, authorization="Bearer one"))

    async with AsyncExitStack() as stack:
        await leader_among([("gpu", "a"), ("gpu", "b")], Connection(), credentials, stack)

        assert [each.exists() for each in processes(tmp_path)].count(True) == 1
        assert len(processes(tmp_path)) == 2


async def test_a_replica_that_cannot_be_reached_does_not_hide_the_leader(
    relayed: Relayed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"https://127.0.0.1:{relayed.page.served.secure_port}"
    forwarding(tmp_path, address, monkeypatch, refused="a")
    credentials = Credentials(lambda: Access(address, authorization="Bearer one"))

    async with AsyncExitStack() as stack:
        upstream = await leader_among([("gpu", "a"), ("gpu", "b")], Connection(), credentials, stack)

        assert await upstream.leads()
        with pytest.raises(ConfigError, match="kubectl port-forward"):
            await leader_among([("gpu", "a")], Connection(), credentials, stack)
