"""Asks an API server that may be away for a while: again and again, until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest

RETRY_S = 0.2
Answer = TypeVar("Answer")


async def patiently(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until there is an answer, and return it. Raises Refused if the request itself is at fault."""
    while True:
        try:
            return await ask()
        except (aiohttp.ClientError, OSError):
            await asyncio.sleep(RETRY_S)
        except Refused as error:
            if error.status < 429:
                raise
            await asyncio.sleep(RETRY_S)


async def put(api: Api, manifest: Manifest) -> None:
    """Create an object, unless it is there."""
    try:
        await patiently(lambda: api.create(manifest))
    except Refused as error:
        if error.reason != "AlreadyExists":
            raise


async def change(api: Api, path: str, patch: Manifest) -> None:
    """Change an object by a merge patch, unless it is gone."""
    try:
        await patiently(lambda: api.merge(path, patch))
    except Refused as error:
        if error.status != 404:
            raise
