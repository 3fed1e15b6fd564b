"""Says over HTTP whether a process lives and is ready: Kubernetes' paths, and the older /health and /ready in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

Checks = Mapping[str, Callable[[], str | None]]
"""Checks by name; a check returns None if all is well, else the reason."""

SERVICE = "gpu-scheduler"
"""What /health and /ready call every process of the scheduler."""


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
