"""Watches one kind of object inside the simulation: all existing objects first, then every change."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, closing
from typing import Any

from gangline.errors import Gone
from gangline.kube.interface import EventType
from gangline.kube.resources import Resource
from gangline.simulate.history import Notice, Revision
from gangline.simulate.server import InMemoryServer


async def follow(server: InMemoryServer, resource: Resource[Any]) -> AsyncGenerator[Notice, None]:
    """Notices of all objects and changes, without end; when a watch ends, the next one begins.

    If the server has forgotten changes, objects that are gone are reported as deleted, and all existing ones as added.
    """
    known: dict[str, Revision] = {}
    version = 0
    while True:
        if not version:
            version = server.version
            there = {_uid(each): each for each in server.list(resource)}
            gone = [each for uid, each in known.items() if uid not in there]
            known = there
            for each in gone:
                yield Notice(EventType.DELETED, each)
            for each in there.values():
                yield Notice(EventType.ADDED, each)
        try:
            with closing(server.watch(resource, str(version))) as watch:
                async for notice in watch:
                    version = notice.revision.version
                    if notice.type is EventType.DELETED:
                        del known[_uid(notice.revision)]
                    else:
                        known[_uid(notice.revision)] = notice.revision
                    yield notice
        except Gone:
            version = 0


async def follow_all(server: InMemoryServer, resource: Resource[Any], see: Callable[[Notice], None]) -> None:
    """Call `see` with each notice of `follow`, without end."""
    async with aclosing(follow(server, resource)) as notices:
        async for notice in notices:
            see(notice)


def _uid(revision: Revision) -> str:
    uid: str = revision.data["metadata"]["uid"]
    return uid
