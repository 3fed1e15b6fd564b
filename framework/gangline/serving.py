"""Serves health, metrics and the running configuration over HTTP."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any

import yaml
from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.aiohttp import make_aiohttp_handler

from gangline import health
from gangline.config import SchedulerConfiguration, show
from gangline.health import Checks
from gangline.version import commit


class Server:
    """The HTTP server of one process; make one for each registry, to which it adds the metrics of the process.

    ``live`` and ``ready`` are the checks of `gangline.health`. ``configuration`` is asked on every request for
    /configz. ``port`` is the real one after `start`, also for port 0.
    """

    def __init__(
        self,
        listen: str,
        live: Checks,
        ready: Checks,
        registry: CollectorRegistry,
        configuration: Callable[[], SchedulerConfiguration],
    ) -> None:
        self._configuration = configuration
        app = web.Application()
        app.add_routes(
            [
                *health.routes(live, ready),
                web.get("/metrics", make_aiohttp_handler(registry)),
                web.get("/configz", self._configz),
                web.get("/version", self._version),
            ]
        )
        self._listener = health.Listener(app, listen, "--listen")
        for collector in (ProcessCollector, GCCollector, PlatformCollector):
            collector(registry=registry)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._listener.port

    async def start(self) -> None:
        """Listens; ConfigError if the address cannot be had."""
        await self._listener.start()

    async def stop(self) -> None:
        """Closes every connection."""
        await self._listener.stop()

    async def _configz(self, request: web.Request) -> web.Response:
        return health.answer({"componentconfig": _without_keys(yaml.safe_load(show(self._configuration())))})

    async def _version(self, request: web.Request) -> web.Response:
        version = metadata.version("gangline")
        major, minor = version.split(".")[:2]
        return health.answer(
            {
                "major": major,
                "minor": minor,
                "gitVersion": f"v{version}",
                "gitCommit": commit(),
                "pythonVersion": platform.python_version(),
                "platform": f"{platform.system().lower()}/{platform.machine()}",
            }
        )


def _without_keys(document: dict[str, Any]) -> dict[str, Any]:
    """The configuration without the extenders' private keys: whoever reaches the port may read it."""
    for extender in document.get("extenders") or ():
        if (tls := extender.get("tlsConfig")) and tls.get("keyData"):
            tls["keyData"] = "REDACTED"
    return document
