"""All pods of the API server, from a list and a watch, for a process that has no cache of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from gangline import Gone, model, resources


class Following:
    """The pods by UID. `run` keeps them up to date until it is cancelled or the API server fails."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._changed = asyncio.Event()
        self.pods: dict[str, model.Pod] = {}
        self.listed = asyncio.Event()

    async def run(self) -> None:
        """List the pods, then watch them. Raises ApiError."""
        while True:
            listing = await self._client.list(resources.PODS)
            self.pods = {pod.metadata.uid: pod for pod in listing.items}
            self.listed.set()
            self._changed.set()
            try:
                await self._watch(listing.resource_version)
            except Gone:
                continue

    async def _watch(self, version: str) -> None:
        async with aclosing(self._client.watch(resources.PODS, resource_version=version)) as events:
            async for event in events:
                if event.object is None:
                    continue
                if event.type.value == "DELETED":
                    self.pods.pop(event.object.metadata.uid, None)
                else:
                    self.pods[event.object.metadata.uid] = event.object
                self._changed.set()

    async def until(self, ready: Callable[[], bool], seconds: float) -> bool:
        """Wait until `ready` returns True; False if it does not within so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                while not ready():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return False
        return True
