"""Claims come from a watch, else from one quick question; a slow or broken API server holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import msgspec
import pytest

from gangline.errors import ApiError, Forbidden, NotFound, Unavailable
from gangline.kube.interface import Client, Listing
from gangline.wire.custom_resources import GpuClaim
from gangline_webhook.claims import MISSING, UNREADABLE, Found, NoClaims, WatchedClaims


def claim(name: str, version: str = "1") -> GpuClaim:
    metadata = {"name": name, "namespace": "team", "uid": name, "resourceVersion": version}
    return msgspec.convert({"metadata": metadata}, GpuClaim)


class FakeClient:
    """Lists ``listed`` and then is silent; answers single questions by ``answer``."""

    def __init__(self, *listed: GpuClaim, answer: Callable[[], Awaitable[GpuClaim]] | None = None) -> None:
        self._listed = list(listed)
        self._answer = answer
        self.failing: ApiError | None = None

    async def list(self, *_: Any, **__: Any) -> Listing[GpuClaim]:
        if self.failing:
            raise self.failing
        return Listing(self._listed, "1")

    async def watch(self, *_: Any, **__: Any) -> Any:
        await asyncio.Event().wait()
        yield

    async def get(self, *_: Any, **__: Any) -> GpuClaim:
        assert self._answer is not None, "nobody should have asked"
        return await self._answer()


async def found(client: FakeClient, name: str, namespace: str = "team", patience: float = 60.0) -> Found:
    """What is found after the first list was tried."""
    claims = WatchedClaims(cast(Client, client), patience)
    await claims._informer.step()
    return await claims.find(namespace, name)


async def test_a_watched_claim_is_found_without_a_question() -> None:
    assert await found(FakeClient(claim("four")), "four") == Found(claim("four"))


async def test_a_claim_that_is_newer_than_the_watch_is_asked_for() -> None:
    async def answer() -> GpuClaim:
        return claim("new")

    assert await found(FakeClient(answer=answer), "new") == Found(claim("new"))


async def test_a_claim_of_another_namespace_is_not_taken() -> None:
    async def answer() -> GpuClaim:
        raise NotFound(404, "NotFound", "no")

    assert await found(FakeClient(claim("four"), answer=answer), "four", "other") == Found(doubt=MISSING)


@pytest.mark.parametrize("error", [Unavailable(0, "", "down"), Forbidden(403, "", "no")], ids=["down", "forbidden"])
async def test_an_error_leaves_the_question_open(error: ApiError) -> None:
    async def answer() -> GpuClaim:
        raise error

    assert await found(FakeClient(answer=answer), "four") == Found(doubt=UNREADABLE)


async def test_a_slow_api_server_is_not_waited_for() -> None:
    async def answer() -> GpuClaim:
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(5):
        assert await found(FakeClient(answer=answer), "four", patience=0.05) == Found(doubt=UNREADABLE)


async def failing(answer: Callable[[], Awaitable[GpuClaim]], patience: float = 60.0) -> WatchedClaims:
    """The list of claims fails, and questions are answered so."""
    client = FakeClient(answer=answer)
    client.failing = Unavailable(0, "", "down")
    claims = WatchedClaims(cast(Client, client), patience)
    await claims._informer.step()
    return claims


async def test_a_claim_is_asked_for_while_the_watch_fails() -> None:
    async def answer() -> GpuClaim:
        return claim("four")

    assert await (await failing(answer)).find("team", "four") == Found(claim("four"))


async def test_while_the_watch_fails_nobody_asks_after_a_question_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline_webhook.claims.PAUSE", 60.0)
    asked = 0

    async def answer() -> GpuClaim:
        nonlocal asked
        asked += 1
        return await asyncio.Future()

    claims = await failing(answer, patience=0.05)

    assert [await claims.find("team", name) for name in ("four", "five", "six")] == 3 * [Found(doubt=UNREADABLE)]
    assert asked == 1


async def test_a_removed_claim_is_forgotten() -> None:
    async def answer() -> GpuClaim:
        raise NotFound(404, "NotFound", "no")

    claims = WatchedClaims(cast(Client, FakeClient(answer=answer)))
    claims.upsert(claim("four"))
    claims.remove("team", "four", "four")

    assert await claims.find("team", "four") == Found(doubt=MISSING)


async def test_without_a_watch_nothing_is_known_and_nothing_is_missing() -> None:
    assert await NoClaims().find("team", "four") == Found()
