"""An API server on loopback that gives the answers of a test and records the requests."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes
    peer: Any  # tells connections apart

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Answer:
    """A plain answer, or with ``chunks`` a stream; ``then`` says how the stream ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    chunks: Sequence[bytes] | None = None
    then: str = "close"  # or "break" (in the middle of a chunk) or "stay"


class FakeApiServer:
    """Answers are queued by method and path (a watch has the method WATCH); the last answer of a queue is repeated."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.url = ""
        self._answers: defaultdict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        self._changed = asyncio.Condition()
        self._stop = asyncio.Event()
        self._runner: web.AppRunner | None = None

    async def start(self, context: ssl.SSLContext | None = None) -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        port = runner.addresses[0][1]
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{port}"

    async def stop(self) -> None:
        self._stop.set()
        assert self._runner is not None
        await self._runner.cleanup()

    def answers(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        status: int = 200,
        headers: dict[str, str] | None = None,
    ) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        self._answers[method, path].append(Answer(status, raw, headers or {}))

    def fails(self, method: str, path: str, status: int, reason: str = "", **headers: str) -> None:
        body = failure(status, reason)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers(method, path, body, status=status, headers=named)

    def streams(self, path: str, *chunks: bytes, then: str = "close") -> None:
        self._answers["WATCH", path].append(Answer(chunks=chunks, then=then))

    def stays_silent(self, method: str, path: str) -> None:
        """Starts an answer that has no end."""
        self._answers[method, path].append(Answer(chunks=[], then="stay"))

    def breaks(self, method: str, path: str, *chunks: bytes) -> None:
        """Begins an answer, and breaks the connection."""
        self._answers[method, path].append(Answer(chunks=chunks, then="break"))

    def of(self, method: str, path: str) -> list[Asked]:
        return [asked for asked in self.asked if (asked.method, asked.path) == (method, path)]

    async def was_asked(self, method: str, path: str, times: int) -> list[Asked]:
        """Waits for that many requests."""
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: len(self.of(method, path)) >= times)
        return self.of(method, path)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        method = "WATCH" if request.query.get("watch") == "true" else request.method
        asked = Asked(
            method,
            request.path,
            dict(request.query),
            request.headers.copy(),
            await request.read(),
            request.get_extra_info("peername"),
        )
        async with self._changed:
            self.asked.append(asked)
            self._changed.notify_all()
        queue = self._answers[method, request.path]
        if not queue:
            return web.json_response(failure(404, "NotFound"), status=404)
        answer = queue.popleft() if len(queue) > 1 else queue[0]
        if answer.chunks is None:
            headers = {"Content-Type": "application/json", **answer.headers}
            return web.Response(status=answer.status, body=answer.body, headers=headers)
        return await self._stream(request, answer, answer.chunks)

    async def _stream(self, request: web.Request, answer: Answer, chunks: Sequence[bytes]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if answer.then == "stay":
            await self._stop.wait()
        if answer.then == "break":
            assert request.transport is not None
            request.transport.abort()
        return response


def failure(code: int, reason: str, message: str = "") -> dict[str, Any]:
    """A Status."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message or f"the fake says {reason}",
        "reason": reason,
        "code": code,
    }


def pod(name: str, version: int, *, uid: str = "", **spec: Any) -> dict[str, Any]:
    """A pod in the namespace default; its UID is made of its name unless given."""
    metadata = {
        "name": name,
        "namespace": "default",
        "uid": uid or f"uid-{name}",
        "resourceVersion": str(version),
    }
    return {"metadata": metadata, "spec": {"containers": [], **spec}, "status": {}}


def listed(version: int, *items: dict[str, Any]) -> dict[str, Any]:
    """A list of pods."""
    return {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": str(version)},
        "items": list(items),
    }


def event(kind: str, obj: dict[str, Any]) -> bytes:
    """One line of a watch."""
    return json.dumps({"type": kind, "object": obj}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    """A bookmark as API servers send it: an object that holds nothing but a resourceVersion."""
    metadata = {"resourceVersion": str(version), "creationTimestamp": None}
    spec = {"containers": None}
    return event("BOOKMARK", {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {}})
