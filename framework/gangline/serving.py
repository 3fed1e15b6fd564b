"""Serves health, metrics and the running configuration over HTTP."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import yaml
from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.aiohttp import make_aiohttp_handler

from gangline.config import SchedulerConfiguration, show
from gangline.errors import ConfigError

Checks = Mapping[str, Callable[[], str | None]]
"""By name; a check returns None if all is well, else why not."""

SERVICE = "gpu-scheduler"


def parse_listen(listen: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[::]:PORT`` or ``:PORT`` (every address) as host and port; ConfigError for all else."""
    host, colon, port = listen.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535 or (":" in bare and bare == host):
        raise ConfigError("", "--listen", f"expected HOST:PORT, such as 0.0.0.0:8080, got {listen!r}")
    return bare or "0.0.0.0", int(port)


class Server:
    """The HTTP server of one process; make one for each registry, to which it adds the metrics of the process.

    ``live`` are the checks behind /healthz, /livez and /health, ``ready`` those behind /readyz and /ready.
    ``configuration`` is asked on every request for /configz. ``port`` is the real one after `start`, also for port 0.
    """

    def __init__(
        self,
        listen: str,
        live: Checks,
        ready: Checks,
        registry: CollectorRegistry,
        configuration: Callable[[], SchedulerConfiguration],
    ) -> None:
        self._listen = listen
        self._host, self.port = parse_listen(listen)
        self._live = live
        self._ready = ready
        self._configuration = configuration
        for collector in (ProcessCollector, GCCollector, PlatformCollector):
            collector(registry=registry)
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/livez", self._healthz),
                web.get("/health", self._health),
                web.get("/readyz", self._readyz),
                web.get("/ready", self._is_ready),
                web.get("/metrics", make_aiohttp_handler(registry)),
                web.get("/configz", self._configz),
                web.get("/version", self._version),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> None:
        """Listens; ConfigError if the address cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self.port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigError("", "--listen", f"cannot listen on {self._listen}: {_reason(error)}") from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Closes every connection."""
        await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return _as_kubernetes(request, self._live, failed=500)

    async def _readyz(self, request: web.Request) -> web.Response:
        return _as_kubernetes(request, self._ready, failed=503)

    async def _health(self, request: web.Request) -> web.Response:
        if failing := _failing(self._live):
            return _json({"status": "unhealthy", "service": SERVICE, "failing": _lines(failing)}, status=500)
        return _json({"status": "healthy", "service": SERVICE})

    async def _is_ready(self, request: web.Request) -> web.Response:
        if failing := _failing(self._ready):
            return _json({"status": "not ready", "service": SERVICE, "waiting_for": _lines(failing)}, status=503)
        return _json({"status": "ready", "service": SERVICE})

    async def _configz(self, request: web.Request) -> web.Response:
        return _json({"componentconfig": _without_keys(yaml.safe_load(show(self._configuration())))})

    async def _version(self, request: web.Request) -> web.Response:
        version = metadata.version("gangline")
        major, minor = version.split(".")[:2]
        return _json(
            {
                "major": major,
                "minor": minor,
                "gitVersion": f"v{version}",
                "pythonVersion": platform.python_version(),
                "platform": f"{platform.system().lower()}/{platform.machine()}",
            }
        )


def _failing(checks: Checks) -> dict[str, str]:
    return {name: why for name, check in checks.items() if (why := check()) is not None}


def _lines(failing: Mapping[str, str]) -> list[str]:
    return [f"{name}: {why}" for name, why in failing.items()]


def _as_kubernetes(request: web.Request, checks: Checks, failed: int) -> web.Response:
    """``ok``, or a line for each check where one fails or ``?verbose`` asks for it."""
    failing = _failing(checks)
    if not failing and "verbose" not in request.query:
        return web.Response(text="ok")
    lines = [f"[-]{name} failed: {failing[name]}" if name in failing else f"[+]{name} ok" for name in checks]
    verdict = "failed" if failing else "passed"
    lines.append(f"{request.path.strip('/')} check {verdict}\n")
    return web.Response(text="\n".join(lines), status=failed if failing else 200)


def _json(body: Mapping[str, Any], status: int = 200) -> web.Response:
    return web.json_response(body, status=status, dumps=lambda value: json.dumps(value, separators=(",", ":")))


def _without_keys(document: dict[str, Any]) -> dict[str, Any]:
    """The configuration without the extenders' private keys: whoever reaches the port may read it."""
    for extender in document.get("extenders") or ():
        if (tls := extender.get("tlsConfig")) and tls.get("keyData"):
            tls["keyData"] = "REDACTED"
    return document


def _reason(error: OSError) -> str:
    """The operating system's words; asyncio puts its own around them."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
