"""Says over HTTP whether a process lives and is ready: Kubernetes' paths, and the older /health and /ready in JSON."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from gangline.errors import ConfigError

Checks = Mapping[str, Callable[[], str | None]]
"""By name; a check returns None if all is well, else why not."""

SERVICE = "gpu-scheduler"
"""What /health and /ready call every process of the scheduler."""
DRAIN = 5.0
"""Seconds that requests under way have when a listener stops."""


def parse_address(address: str, option: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[::]:PORT`` or ``:PORT`` (every address) as host and port; ConfigError for all else."""
    host, colon, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535 or (":" in bare and bare == host):
        raise ConfigError("", option, f"expected HOST:PORT or :PORT, got {address!r}")
    return bare or "0.0.0.0", int(port)


def routes(live: Checks, ready: Checks) -> list[web.RouteDef]:
    """``live`` are the checks behind /healthz, /livez and /health, ``ready`` those behind /readyz and /ready."""

    async def healthz(request: web.Request) -> web.Response:
        return _as_kubernetes(request, live, failed=500)

    async def readyz(request: web.Request) -> web.Response:
        return _as_kubernetes(request, ready, failed=503)

    async def health(request: web.Request) -> web.Response:
        if failing := _failing(live):
            return answer({"status": "unhealthy", "service": SERVICE, "failing": _lines(failing)}, status=500)
        return answer({"status": "healthy", "service": SERVICE})

    async def is_ready(request: web.Request) -> web.Response:
        if failing := _failing(ready):
            return answer({"status": "not ready", "service": SERVICE, "waiting_for": _lines(failing)}, status=503)
        return answer({"status": "ready", "service": SERVICE})

    return [
        web.get("/healthz", healthz),
        web.get("/livez", healthz),
        web.get("/health", health),
        web.get("/readyz", readyz),
        web.get("/ready", is_ready),
    ]


def answer(body: Mapping[str, Any], status: int = 200) -> web.Response:
    """JSON without spaces."""
    return web.json_response(body, status=status, dumps=lambda value: json.dumps(value, separators=(",", ":")))


class Listener:
    """One application on one address; ``port`` is the real one after `start`, also for port 0.

    ``option`` is the command line's name for the address. ConfigError if the address is none.
    """

    def __init__(self, app: web.Application, address: str, option: str, context: ssl.SSLContext | None = None) -> None:
        self._address = address
        self._option = option
        self._host, self.port = parse_address(address, option)
        self._context = context
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=DRAIN)
        self.listening = False

    async def start(self) -> None:
        """Listens; ConfigError if the address cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self.port, ssl_context=self._context).start()
        except OSError as error:
            await self._runner.cleanup()
            # The operating system's words; asyncio puts its own around them.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
            raise ConfigError("", self._option, f"cannot listen on {self._address}: {reason}") from error
        self.port = self._runner.addresses[0][1]
        self.listening = True

    async def stop(self) -> None:
        """Takes no new connections, and ends the open ones when their requests are answered."""
        self.listening = False
        await self._runner.cleanup()


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
