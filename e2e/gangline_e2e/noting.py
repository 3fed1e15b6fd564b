"""Notes objects that satisfy a condition for a moment only, so that a test need not look at just that moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gangline_e2e.api import Api
from gangline_e2e.workloads import Manifest, Manifests


class Noted:
    """The objects that have satisfied a condition, each as it was then for the first time."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._found: dict[str, Manifest] = {}

    async def follow(self, path: str, version: str, holds: Callable[[Manifest], bool]) -> None:
        """Note objects that change after this resource version, until this is cancelled."""
        async for line in self._api.lines(path, version):
            item = json.loads(line)["object"]
            if "uid" in item["metadata"] and holds(item):
                self._found.setdefault(item["metadata"]["uid"], item)

    async def until(self, count: int, what: str) -> Manifests:
        """Wait until so many objects are noted; returns them."""

        async def are_there() -> bool:
            return len(self._found) >= count

        await self._api.until(are_there, what)
        return list(self._found.values())


@asynccontextmanager
async def noting(api: Api, path: str, holds: Callable[[Manifest], bool]) -> AsyncIterator[Noted]:
    """Note the objects of a collection that satisfy a condition, from now on until the block ends."""
    noted = Noted(api)
    version = (await api.get(path))["metadata"]["resourceVersion"]
    task = asyncio.create_task(noted.follow(path, version, holds))
    try:
        yield noted
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
