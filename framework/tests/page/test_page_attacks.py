"""Somebody who wants more of the page than it gives: work, memory, other people's places, or what they may not know."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Collection

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from gangline.errors import AskLater
from gangline.page.feed import Feed
from gangline.page.serving import MOST_QUESTIONS_OF_ONE, MOST_STATES, MOST_STATES_OF_ONE, PATIENCE, page
from gangline.page.sight import PageViewer
from gangline.page.taking import TakenPart
from gangline.process.listening import Listener
from gangline.testing import make_pod

from ..eventually import until
from .served_page import ServedPage, remedies_told


@pytest.mark.parametrize("path", ["/ui/why?pod=q", "/ui/remedies?unit=pod-two-w"])
async def test_whether_a_namespace_is_there_does_not_show_in_the_answer_or_in_how_long_it_takes(
    path: str, served: ServedPage
) -> None:
    served.shown.wait(make_pod("w", gpus=8, namespace="two"))
    said, asked = [], []
    for namespace in ("two", "guess"):
        made = ServedPage(shown=served.shown)
        await made.served.open()
        async with made.ask(f"{path}&namespace={namespace}", "one") as answer:
            said.append((answer.status, await answer.read()))
        asked.append(made.reviews.asked)
        made.feed.close()
        await made.served.close()

    assert said[0] == said[1] == (200, b"null")
    assert asked[0] == asked[1]


async def test_who_asks_too_much_is_told_when_to_ask_again(waiting: ServedPage) -> None:
    waiting.remedies["pod-one-w"] = AskLater("you have asked much", 17)

    async with waiting.ask("/ui/remedies?namespace=one&unit=pod-one-w", "one") as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (429, "17")
        assert await answer.text() == "you have asked much: ask again in 17 s\n"
    assert waiting.asking == [("pod-one-w", "one")]


async def test_the_question_of_a_viewer_who_has_gone_is_cancelled(waiting: ServedPage) -> None:
    waiting.answering.clear()
    asked = asyncio.create_task(remedies_told(waiting, "one", "pod-one-w", "one"))
    await until(lambda: waiting.asked_now == 1)
    asked.cancel()

    await until(lambda: waiting.asked_now == 0)


DATA = ["/ui/state", "/ui/events", "/ui/why?namespace=one&pod=p", "/ui/remedies?namespace=one&unit=pod-one-w"]
PAGES_OF_OTHERS = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "nonsense"},
    {"Origin": "https://evil.example.com"},
    {"Origin": "null"},
]


@pytest.mark.parametrize("path", DATA)
@pytest.mark.parametrize("headers", PAGES_OF_OTHERS, ids=[" ".join(each.values()) for each in PAGES_OF_OTHERS])
async def test_a_page_of_another_site_gets_nothing_and_sets_nothing_in_motion(
    waiting: ServedPage, path: str, headers: dict[str, str]
) -> None:
    async with waiting.ask(path, "admin", **headers) as answer:
        assert (answer.status, await answer.text()) == (403, "asked by a page of another site\n")
    assert not waiting.asking and not waiting.feed.is_working


@pytest.mark.parametrize("own", [{"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": ""}])
async def test_the_page_itself_is_answered(waiting: ServedPage, own: dict[str, str]) -> None:
    headers = {name: value or f"https://127.0.0.1:{waiting.served.secure_port}" for name, value in own.items()}
    async with waiting.ask(DATA[-1], "admin", **headers) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("path", DATA)
async def test_a_token_of_bytes_that_are_no_text_is_no_token(waiting: ServedPage, path: str) -> None:
    context = ssl._create_unverified_context()
    reader, writer = await asyncio.open_connection("127.0.0.1", waiting.served.secure_port, ssl=context)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\n".encode() + b"Authorization: Bearer \xff\xfe\r\n\r\n")

    assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
    writer.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", DATA)
async def test_there_is_nothing_to_be_done_but_to_get(waiting: ServedPage, method: str, path: str) -> None:
    async with waiting.ask(path, "admin", method) as answer:
        assert answer.status == 405
    assert not waiting.asking


async def test_who_wants_headers_alone_sets_nothing_in_motion(waiting: ServedPage) -> None:
    async with waiting.ask(DATA[-1], "admin", "HEAD") as answer:
        assert answer.status == 200
    assert not waiting.asking


@pytest.mark.parametrize("head", ["Content-Length: 10000000", "Transfer-Encoding: chunked"])
@pytest.mark.parametrize("path", DATA)
async def test_a_request_with_a_body_is_refused_before_the_body_has_come(
    waiting: ServedPage, head: str, path: str
) -> None:
    context = ssl._create_unverified_context()
    reader, writer = await asyncio.open_connection("127.0.0.1", waiting.served.secure_port, ssl=context)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer admin\r\n{head}\r\n\r\n".encode())

    assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
    writer.close()
    assert not waiting.asking


ODD = [
    "%00",
    "%ff%fe",
    "%ED%A0%80",
    "..%2f..",
    "%0d%0aX:%20y",
    "one%00",
    "%F0%9F%98%80" * 200,
    "%5Bobject%20Object%5D",
    "'\";--",
]


@pytest.mark.parametrize("odd", ODD, ids=range(len(ODD)))
async def test_odd_names_are_names_of_nothing(waiting: ServedPage, odd: str) -> None:
    for query in (f"namespace={odd}&unit=pod-one-w&pod=p", f"namespace=one&unit={odd}&pod={odd}", f"{odd}={odd}&{odd}"):
        for path in ("remedies", "why"):
            async with waiting.ask(URL(f"/ui/{path}?{query}", encoded=True), "one") as answer:
                assert (answer.status, await answer.read()) == (200, b"null")
    assert not waiting.asking


class LongAnswer:
    """Changes that take many bytes to write."""

    namespaces = frozenset[str]()

    def told(self, seen: Collection[str]) -> bytes:
        return b'"' + b"x" * 64 * 1024 * 1024 + b'"'


async def unread(served: ServedPage, path: str) -> asyncio.StreamWriter:
    """A connection that asks, and takes nothing but the head of the answer."""
    context = ssl._create_unverified_context()
    reader, writer = await asyncio.open_connection("127.0.0.1", served.served.secure_port, ssl=context)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer one\r\n\r\n".encode())
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
    return writer


async def test_who_does_not_read_answers_gets_no_more_of_them(waiting: ServedPage) -> None:
    waiting.remedies["pod-one-w"] = LongAnswer()
    writers = [await unread(waiting, DATA[-1]) for _ in range(MOST_QUESTIONS_OF_ONE)]

    assert await remedies_told(waiting, "one", "pod-one-w", "one") == "you ask too much at a time: ask again in 5 s\n"
    waiting.remedies["pod-one-w"] = None
    assert await remedies_told(waiting, "one", "pod-one-w", "admin") is None
    for writer in writers:
        writer.transport.abort()
    async with asyncio.timeout(10.0):
        while await remedies_told(waiting, "one", "pod-one-w", "one") is not None:
            """The listener has not seen yet that the connections are gone."""


class HeldUp:
    """Viewers of whom the API server says nothing until it is let."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.now: Counter[str] = Counter()

    def viewer(self, name: str) -> PageViewer:
        held = self

        class Viewer:
            @property
            def name(self) -> str:
                return name

            async def may_list_pods(self, namespace: str) -> bool:
                held.now[name] += 1
                await held.go.wait()
                return True

        return Viewer()


async def test_so_many_whole_pictures_are_on_their_way_to_one_viewer_and_to_all(served: ServedPage) -> None:
    held = HeldUp()
    app = web.Application()
    handlers = page(served.feed, lambda request: held.viewer(request.query["viewer"]))
    app.add_routes([web.get("/ui/state", handlers["/ui/state"])])
    listener = Listener(app, "127.0.0.1:0", "--listen")
    await listener.start()

    async def status(viewer: str) -> int:
        async with aiohttp.request("GET", f"http://127.0.0.1:{listener.port}/ui/state?viewer={viewer}") as answer:
            await answer.read()
            return answer.status

    one = [asyncio.create_task(status("one")) for _ in range(MOST_STATES_OF_ONE + 3)]
    await until(lambda: sum(each.done() for each in one) == 3)
    others = [asyncio.create_task(status(f"viewer-{number}")) for number in range(MOST_STATES)]
    await until(lambda: held.now.total() == MOST_STATES)
    assert held.now["one"] == MOST_STATES_OF_ONE
    held.go.set()

    assert sorted(await asyncio.gather(*one)) == [200] * MOST_STATES_OF_ONE + [429] * 3
    assert await asyncio.gather(*others) == [200] * MOST_STATES
    await listener.stop()


class LargeFeed(Feed):
    """A feed whose picture is larger than what the system keeps for a connection."""

    def whole(self, namespace: str) -> bytes:
        return b'"' + b"x" * (1 << 20) + b'"'


def viewer_named(name: str) -> PageViewer:
    held = HeldUp()
    held.go.set()
    return held.viewer(name)


async def test_viewers_who_do_not_read_their_pictures_give_way_to_one_who_waits(served: ServedPage) -> None:
    taker = served.shown.new_taker()

    async def look() -> TakenPart:
        return taker.take()

    feed = LargeFeed(lambda: look)
    app = web.Application()
    handlers = page(feed, lambda request: viewer_named(request.query["viewer"]))
    app.add_routes([web.get("/ui/state", handlers["/ui/state"])])
    listener = Listener(app, "127.0.0.1:0", "--listen")
    await listener.start()
    stalled = [socket.socket() for _ in range(MOST_STATES)]
    for number, each in enumerate(stalled):
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        each.connect(("127.0.0.1", listener.port))
        each.sendall(f"GET /ui/state?viewer={number} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    await until(lambda: listener.open_connections == MOST_STATES)

    async with asyncio.timeout(3 * PATIENCE):
        async with aiohttp.request("GET", f"http://127.0.0.1:{listener.port}/ui/state?viewer=good") as answer:
            assert answer.status == 200 and len(await answer.read()) > 1 << 20

    for each in stalled:
        each.close()
    feed.close()
    await listener.stop()
