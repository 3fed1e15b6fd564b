"""The applications behind the endpoints of a process."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from gangline.kube.interface import Client
from gangline.process.guarding import Guard, Handler
from gangline.process.health import Checks, routes
from gangline.telemetry.exposition import Exposition

METRICS = "/metrics"


def plain(live: Checks, ready: Checks, exposition: Exposition | None) -> web.Application:
    """Health and, if there are any, metrics, for every client."""
    app = web.Application()
    app.add_routes(routes(live, ready))
    if exposition is not None:
        app.add_routes([web.get(METRICS, metrics(exposition))])
    return app


def secure(
    live: Checks, ready: Checks, exposition: Exposition | None, guarded: Mapping[str, Handler], client: Client
) -> web.Application:
    """Health for every client, and metrics and other paths for users that the API server allows."""
    guard = Guard(client)
    app = web.Application()
    app.add_routes(routes(live, ready))
    handlers = {**guarded, **({METRICS: metrics(exposition)} if exposition is not None else {})}
    app.add_routes([web.get(path, guard.protected(handler)) for path, handler in handlers.items()])
    return app


def metrics(exposition: Exposition) -> Handler:
    """The handler of /metrics."""

    async def handle(request: web.Request) -> web.StreamResponse:
        page = exposition.page(request.headers.get("Accept", ""), request.headers.get("Accept-Encoding", ""))
        return web.Response(body=page.body, headers=page.headers)

    return handle
