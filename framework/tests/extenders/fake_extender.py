"""Extenders that give the answers of a test and record the requests: over HTTP, and in memory."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from gangline.extenders import Endpoint

Reply = Callable[[Any], Any]
"""Called with the decoded body of a request; returns the value to encode as the answer."""


class ExtenderServer:
    """An extender on loopback; a verb without an answer from the test is answered with 404."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, Any]] = []
        self.content_types: set[str] = set()
        self._answers: dict[str, tuple[int, bytes]] = {}
        self._silent: set[str] = set()
        self._stop = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def start(self, context: ssl.SSLContext | None = None) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/scheduler/{verb}", self._serve)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context).start()
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{port}/scheduler"

    async def stop(self) -> None:
        self._stop.set()
        assert self._runner is not None
        await self._runner.cleanup()

    def answers(self, verb: str, body: Any, status: int = 200) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._answers[verb] = status, raw

    def stays_silent(self, verb: str) -> None:
        self._silent.add(verb)

    def bodies(self, verb: str) -> list[Any]:
        return [body for asked, body in self.asked if asked == verb]

    async def _serve(self, request: web.Request) -> web.Response:
        verb = request.match_info["verb"]
        self.asked.append((verb, await request.json()))
        self.content_types.add(request.content_type)
        if verb in self._silent:
            await self._stop.wait()
        status, body = self._answers.get(verb, (404, b""))
        return web.Response(status=status, body=body, content_type="application/json")


@dataclass(eq=False)
class InMemoryExtenders:
    """Implements `gangline.extenders.Asker` without a network; replies go by URL and verb."""

    replies: Mapping[tuple[str, str], Reply]
    seconds: float = 0.0
    """How long each answer takes, in the time of the loop."""
    asked: list[tuple[str, str, Any]] = field(default_factory=list)

    async def ask(self, endpoint: Endpoint, verb: str, body: bytes) -> bytes:
        decoded = json.loads(body)
        self.asked.append((endpoint.url, verb, decoded))
        await asyncio.sleep(self.seconds)
        return json.dumps(self.replies[endpoint.url, verb](decoded)).encode()

    async def aclose(self) -> None:
        """There is nothing to close."""

    def verbs(self) -> list[str]:
        return [verb for _, verb, _ in self.asked]
