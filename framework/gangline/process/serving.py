"""The pages of the scheduler beside its metrics: the current configuration, decisions, and the version."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

import yaml
from aiohttp import web

from gangline.config import SchedulerConfiguration, show
from gangline.process import health
from gangline.process.guarding import Handler
from gangline.process.version import commit


def pages(
    configuration: Callable[[], SchedulerConfiguration],
    decisions: Callable[[str], Mapping[str, Any] | None] = lambda uid: None,
) -> Mapping[str, Handler]:
    """The handlers by their paths. ``configuration`` is called for every request for /configz.

    ``decisions`` returns for the UID of a pod why the pod is on its node; None if that is not known.
    """

    async def configz(request: web.Request) -> web.StreamResponse:
        return health.answer({"componentconfig": _without_keys(yaml.load(show(configuration()), yaml.CSafeLoader))})

    async def decision(request: web.Request) -> web.StreamResponse:
        found = decisions(request.match_info["uid"])
        if found is None:
            return health.answer({"error": "no such decision is remembered"}, status=404)
        return health.answer(found)

    return {"/configz": configz, "/decisions/{uid}": decision, "/version": _version}


async def _version(request: web.Request) -> web.StreamResponse:
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
    """The configuration without the extenders' private keys."""
    for extender in document.get("extenders") or ():
        if (tls := extender.get("tlsConfig")) and tls.get("keyData"):
            tls["keyData"] = "REDACTED"
    return document
