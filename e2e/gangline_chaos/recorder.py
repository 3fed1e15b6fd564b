"""Records what is written to etcd, every revision, also when connections break or etcd is killed.

The recorder follows all keys through etcd's JSON gateway. Each write to etcd makes the next revision, so the revisions
of all keys have no gap, and a gap is an error. After a broken connection the recorder goes on at the next revision.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp

from gangline_chaos.judge.history import Change, Object
from gangline_e2e.errors import HarnessError, WaitedTooLong

POLL_S = 0.1
REQUEST_S = 10.0
ALL = base64.b64encode(b"\0").decode()
"""The range of all keys, for etcd: this is its key and its end."""
FIRST = 2
"""The revision of the first write."""


class HistoryLost(HarnessError):
    """Revisions are missing: they were compacted before they were recorded, or etcd has skipped some."""


class Recorder:
    """Follows one etcd, and gives each change to `told`."""

    def __init__(self, url: str, tls: ssl.SSLContext | bool, told: Callable[[Change], None]) -> None:
        self._url = url
        self._tls = tls
        self._told = told
        self._began = time.monotonic()
        self.revision = FIRST - 1
        """The last revision that was recorded."""
        self.connections = 0
        """How often the recorder has connected."""

    def now(self) -> float:
        """Seconds since the record began."""
        return time.monotonic() - self._began

    async def run(self) -> None:
        """Record until cancelled. Raises HistoryLost."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=REQUEST_S)
        connector = aiohttp.TCPConnector(ssl=self._tls, force_close=True)
        async with aiohttp.ClientSession(self._url, timeout=timeout, connector=connector) as session:
            while True:
                try:
                    async for line in self._lines(session):
                        self._take(json.loads(line))
                except (aiohttp.ClientError, ConnectionError, TimeoutError):
                    await asyncio.sleep(POLL_S)  # between two tries to connect

    async def caught_up(self, within_s: float = 60.0) -> int:
        """Wait until everything that is in etcd now is recorded; the revision of that."""
        deadline = time.monotonic() + within_s
        target = 0
        while time.monotonic() < deadline:
            try:
                target = target or await self._newest()
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                target = 0
            if target and self.revision >= target:
                return target
            await asyncio.sleep(POLL_S / 4)
        raise WaitedTooLong(f"recorder: at revision {self.revision} of {target} after {within_s:g} s")

    async def compact(self) -> int:
        """Remove the old revisions from etcd, those that are recorded; the revision up to which they are gone."""
        revision = await self.caught_up()
        await self._post("/v3/kv/compaction", {"revision": str(revision), "physical": True})
        return revision

    async def _newest(self) -> int:
        answer = await self._post("/v3/kv/range", {"key": ALL, "range_end": ALL, "count_only": True})
        return int(answer["header"]["revision"])

    async def _post(self, path: str, body: Object) -> Any:
        timeout = aiohttp.ClientTimeout(total=REQUEST_S)
        async with (
            aiohttp.ClientSession(self._url, timeout=timeout, connector=aiohttp.TCPConnector(ssl=self._tls)) as session,
            session.post(path, json=body) as answer,
        ):
            if answer.status != 200:
                raise HarnessError(f"etcd: {path}: {answer.status}: {await answer.text()}")
            return await answer.json(content_type=None)

    async def _lines(self, session: aiohttp.ClientSession) -> AsyncIterator[bytes]:
        wanted = {"key": ALL, "range_end": ALL, "start_revision": str(self.revision + 1)}
        async with session.post("/v3/watch", json={"create_request": wanted}) as answer:
            self.connections += 1
            parts: list[bytes] = []
            async for chunk in answer.content.iter_any():
                first, *more = chunk.split(b"\n")
                parts.append(first)
                for each in more:
                    yield b"".join(parts)
                    parts = [each]

    def _take(self, message: Object) -> None:
        """Tell the changes of one message, which has whole revisions."""
        if "error" in message:
            raise aiohttp.ClientPayloadError(str(message["error"]))
        result = message["result"]
        if result.get("canceled"):
            compacted = result.get("compact_revision")
            if compacted:
                raise HistoryLost(f"etcd: revision {self.revision + 1} is gone, compacted up to {compacted}")
            raise aiohttp.ClientPayloadError(str(result))
        at, before = self.now(), self.revision
        for event in result.get("events", ()):
            revision = int(event["kv"]["mod_revision"])
            if revision not in (self.revision, self.revision + 1) or revision == before:
                raise HistoryLost(f"etcd: revision {revision} came after {self.revision}")
            self.revision = revision
            self._told(Change(at, revision, _text(event["kv"]["key"]), _object(event)))


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode(errors="replace")


def _object(event: Object) -> Object | None:
    """What was written; None if the key was deleted. Values that are no JSON objects, for example of etcd's own
    bookkeeping, become empty objects.
    """
    if event.get("type") == "DELETE":
        return None
    try:
        found = json.loads(base64.b64decode(event["kv"].get("value", "")))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
