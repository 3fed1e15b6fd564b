"""The endpoints of a process: health for all clients, other paths over TLS for users that the API server allows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from gangline.kube.interface import Client
from gangline.process.certificate_files import Certificates
from gangline.process.client_ca import follow_client_ca
from gangline.process.listening import Listener
from gangline.process.server_tls import ServerTLS
from gangline.telemetry.exposition import Exposition

if TYPE_CHECKING:
    from aiohttp import web

    from gangline.process.guarding import Handler
    from gangline.process.health import Checks


class Endpoints(msgspec.Struct, frozen=True):
    """Addresses, each with its command-line option; an empty address means no listener."""

    listen: str
    """Address for health, over plain HTTP."""
    secure_listen: str
    """Address for all paths, over TLS."""
    certificates: Certificates | None = None
    """The files of the TLS certificate; None for a self-signed certificate."""
    plain_metrics: bool = False
    """Whether metrics are served over plain HTTP too, to every client."""
    ui: bool = False
    """Whether the page that shows the cluster is among the guarded paths."""


class Pages(msgspec.Struct, frozen=True):
    """The paths that are served, and their handlers."""

    live: Checks
    ready: Checks
    exposition: Exposition | None = None
    guarded: Callable[[], Mapping[str, Handler]] = dict
    """More paths, for users that the API server allows; called for the first connection, which loads them."""
    at_end: Callable[[], None] | None = None
    """Called when the listeners close, to end long answers such as streams."""


class Served:
    """The listeners of one process. Between `open` and `close` the ports are the ports in use; 0 means no listener."""

    def __init__(self, endpoints: Endpoints, pages: Pages, client: Client | None) -> None:
        """The client asks the API server which users may read a path. Without it there is no TLS listener."""
        self.port = 0
        self.secure_port = 0
        self._endpoints = endpoints
        self._pages = pages
        self._client = client
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        """Listen on all addresses. Raises ConfigError, and listens on none, if one address cannot be used."""
        async with AsyncExitStack() as stack:
            if self._endpoints.listen:
                self.port = await _started(Listener(self._plain, self._endpoints.listen, "--listen"), stack)
            if self._endpoints.secure_listen and self._client is not None:
                self.secure_port = await self._open_secure(self._client, stack)
            if self._pages.at_end is not None:
                stack.callback(self._pages.at_end)
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Closes every connection."""
        await self._stack.aclose()

    async def _open_secure(self, client: Client, stack: AsyncExitStack) -> int:
        tls = ServerTLS(self._endpoints.certificates)
        app = partial(self._secure, client)
        listener = Listener(app, self._endpoints.secure_listen, "--secure-listen", lambda: tls.context)
        port = await _started(listener, stack)
        for work in (tls.run(), follow_client_ca(client, tls.trust)):
            task = asyncio.create_task(work)
            stack.callback(task.cancel)
        return port

    def _plain(self) -> web.Application:
        from gangline.process import applications

        pages = self._pages
        exposition = pages.exposition if self._endpoints.plain_metrics else None
        return applications.plain(pages.live, pages.ready, exposition)

    def _secure(self, client: Client) -> web.Application:
        from gangline.process import applications

        pages = self._pages
        return applications.secure(pages.live, pages.ready, pages.exposition, pages.guarded(), client)


def add_process(registry: CollectorRegistry) -> None:
    """Add the metrics that every Python process has."""
    for collector in (ProcessCollector, GCCollector, PlatformCollector):
        collector(registry=registry)


async def _started(listener: Listener, stack: AsyncExitStack) -> int:
    await listener.start()
    stack.push_async_callback(listener.stop)
    return listener.port
