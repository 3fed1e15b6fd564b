"""The server that answers some requests itself, in front of one that counts what arrives."""

from __future__ import annotations

import random
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gangline_chaos.answering import CONFLICTS, ERRORS, REASONS, THROTTLING, RoughServer, Storm, refusal
from gangline_e2e.certificates import Authority

REQUESTS = 120


@pytest.fixture
def tls(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For servers and for their clients."""
    authority = Authority(tmp_path, "ca")
    pair = authority.server("server")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pair.certificate, pair.key)
    return server, ssl.create_default_context(cafile=authority.certificate)


@pytest.fixture
async def arrived(tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> AsyncIterator[tuple[str, Counter[str]]]:
    """The URL of a server, and how many requests of each method it has had."""
    counted: Counter[str] = Counter()

    async def answer(request: web.Request) -> web.Response:
        counted[request.method] += 1
        return web.Response(text=f"{request.path_qs} {await request.text()}")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls[0]).start()
    yield f"https://127.0.0.1:{runner.addresses[0][1]}", counted
    await runner.cleanup()


async def test_some_requests_are_passed_on_some_refused_and_of_some_only_the_answer_is_lost(
    arrived: tuple[str, Counter[str]], tls: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    url, counted = arrived
    rough = RoughServer(url, tls[1], random.Random(1))
    answers: Counter[int] = Counter()

    async with rough.running(tls[0]), aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls[1])) as session:
        for number in range(REQUESTS):
            try:
                async with session.post(f"https://127.0.0.1:{rough.port}/a?n={number}", data=f"{number}") as answer:
                    answers[answer.status] += 1
                    text = await answer.text()
                    assert text == f"/a?n={number} {number}" if answer.status == 200 else '"kind": "Status"' in text
            except aiohttp.ClientError:
                answers[0] += 1

    assert set(answers) == {0, 200, *REASONS}
    assert answers.total() == REQUESTS and rough.refused == REQUESTS - answers[200]
    assert answers[200] < counted["POST"] < REQUESTS, "some answers are lost after the request was carried out"


@pytest.mark.parametrize(
    ("storm", "reads", "writes"),
    [
        (CONFLICTS, {200}, {200, 409}),
        (THROTTLING, {200, 429}, {200, 429}),
        (ERRORS, {200, 500, 503}, {200, 500, 503, 504}),
    ],
    ids=["conflicts", "throttling", "errors"],
)
async def test_a_storm_has_answers_of_its_own(
    arrived: tuple[str, Counter[str]],
    tls: tuple[ssl.SSLContext, ssl.SSLContext],
    storm: Storm,
    reads: set[int],
    writes: set[int],
) -> None:
    rough = RoughServer(arrived[0], tls[1], random.Random(1))
    rough.storm = storm
    answers: dict[str, set[int]] = {"GET": set(), "POST": set()}

    async with rough.running(tls[0]), aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=tls[1])) as session:
        for method in ("GET", "POST") * 30:
            async with session.request(method, f"https://127.0.0.1:{rough.port}/") as answer:
                answers[method].add(answer.status)

    assert answers == {"GET": reads, "POST": writes}


def test_a_refusal_says_when_to_come_again() -> None:
    assert refusal(429).headers["Retry-After"] == "1"
    assert "Retry-After" not in refusal(503).headers
