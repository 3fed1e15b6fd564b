"""Follows a collection event by event: what is written is seen, in its order, also when a connection breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import aiohttp
import msgspec

from gangline_e2e.api import POLL_S, Api
from gangline_e2e.errors import HarnessError

T = TypeVar("T")
BOOKMARKS = {"allowWatchBookmarks": "true"}


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _Version(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str


class _Any(msgspec.Struct, frozen=True):
    metadata: _Version


class Follower(Generic[T]):
    """Follows one collection. Every object is decoded as ``kind`` and given to ``fold``, with the event and the time.

    A watch that ends goes on from the last revision. Raises HarnessError if the API server no longer has the
    changes since then.
    """

    def __init__(
        self, api: Api, path: str, kind: type[T], fold: Callable[[str, T, float], None], **params: str
    ) -> None:
        self._api = api
        self._path = path
        self._params = params
        self._line = msgspec.json.Decoder(_Line)
        self._any = msgspec.json.Decoder(_Any)
        self._object: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)
        self._fold = fold
        self._version = ""
        self.started = asyncio.Event()
        """Set once ``fold`` has got all objects that existed at the start."""

    async def run(self) -> None:
        """Follow until cancelled."""
        listed = await self._api.request("GET", self._path, headers=None, **self._params)
        for item in listed["items"]:
            self._fold("ADDED", self._object.decode(msgspec.json.encode(item)), time.monotonic())
        self._version = listed["metadata"]["resourceVersion"]
        self.started.set()
        while True:
            try:
                await self._watch()
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                await asyncio.sleep(POLL_S)  # between two tries to connect

    async def _watch(self) -> None:
        async for text in self._api.lines(self._path, self._version, **self._params, **BOOKMARKS):
            line = self._line.decode(text)
            if line.type == "ERROR":
                raise HarnessError(f"{self._path}: no history from {self._version} on: {bytes(line.object)[:300]!r}")
            self._version = self._any.decode(line.object).metadata.resource_version
            if line.type != "BOOKMARK":
                self._fold(line.type, self._object.decode(line.object), time.monotonic())
