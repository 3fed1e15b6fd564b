"""The endpoints of a process: health for all clients, other paths over TLS for users that the API server allows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from gangline.kube.interface import Client
from gangline.process.certificate_files import Certificates
from gangline.process.guarding import Guard, Handler, follow_client_ca
from gangline.process.health import Checks, routes
from gangline.process.listening import Listener
from gangline.process.server_tls import ServerTLS
from gangline.telemetry.exposition import Exposition

log = logging.getLogger(__name__)

METRICS = "/metrics"


@dataclass(frozen=True, slots=True)
class Endpoints:
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


@dataclass(frozen=True, slots=True)
class Pages:
    """The paths that are served, and their handlers."""

    live: Checks
    ready: Checks
    exposition: Exposition | None = None
    guarded: Mapping[str, Handler] = field(default_factory=dict)
    """More paths, for users that the API server allows."""
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
                self.port = await _started(Listener(self._plain(), self._endpoints.listen, "--listen"), stack)
            if self._endpoints.secure_listen and self._client is not None:
                self.secure_port = await self._open_secure(self._client, stack)
            self._stack = stack.pop_all()

    async def close(self) -> None:
        """Closes every connection."""
        await self._stack.aclose()

    async def _open_secure(self, client: Client, stack: AsyncExitStack) -> int:
        tls = ServerTLS(self._endpoints.certificates)
        app = self._secure(Guard(client))
        listener = Listener(app, self._endpoints.secure_listen, "--secure-listen", lambda: tls.context)
        port = await _started(listener, stack)
        for work in (tls.run(), follow_client_ca(client, tls.trust)):
            task = asyncio.create_task(work)
            stack.callback(task.cancel)
        return port

    def _plain(self) -> web.Application:
        app = web.Application()
        app.add_routes(routes(self._pages.live, self._pages.ready))
        if self._endpoints.plain_metrics and self._pages.exposition is not None:
            app.add_routes([web.get(METRICS, metrics(self._pages.exposition))])
        return app

    def _secure(self, guard: Guard) -> web.Application:
        app = web.Application()
        app.add_routes(routes(self._pages.live, self._pages.ready))
        guarded = dict(self._pages.guarded)
        if self._pages.exposition is not None:
            guarded[METRICS] = metrics(self._pages.exposition)
        app.add_routes([web.get(path, guard.protected(handler)) for path, handler in guarded.items()])
        if (at_end := self._pages.at_end) is not None:

            async def end(app: web.Application) -> None:
                at_end()

            app.on_shutdown.append(end)
        return app


def add_process(registry: CollectorRegistry) -> None:
    """Add the metrics that every Python process has."""
    for collector in (ProcessCollector, GCCollector, PlatformCollector):
        collector(registry=registry)


def metrics(exposition: Exposition) -> Handler:
    """The handler of /metrics."""

    async def handle(request: web.Request) -> web.StreamResponse:
        page = exposition.page(request.headers.get("Accept", ""), request.headers.get("Accept-Encoding", ""))
        return web.Response(body=page.body, headers=page.headers)

    return handle


async def _started(listener: Listener, stack: AsyncExitStack) -> int:
    await listener.start()
    stack.push_async_callback(listener.stop)
    return listener.port
