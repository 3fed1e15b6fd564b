"""A cluster in memory behind HTTP, a kubeconfig for it, and commands of `gangline` that read it."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web
from click.testing import CliRunner, Result

from gangline import main
from gangline.clock import SystemClock
from gangline.errors import ApiError
from gangline.kube.resources import NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS, Resource
from gangline.model import ObjectMeta, PodGroup, PodGroupSpec
from gangline.simulate import InMemoryServer
from gangline.simulate.server import KNOWN
from gangline.testing import make_node, make_pod
from gangline.testing.gangs import GROUP

from ..kube.fake_api_server import failure

PATH = re.compile(r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>[^/]+)(?:/(?P<rest>.*))?")


class ClusterOverHttp:
    """Serves lists, watches and single objects. A test may refuse paths, each with a status and a message."""

    def __init__(self, folder: Path) -> None:
        self.server = InMemoryServer(SystemClock())
        self.refused: dict[str, tuple[int, str]] = {}
        self.asked: list[str] = []
        self.url = ""
        self.kubeconfig = folder / "kubeconfig"
        self.watched = asyncio.Event()
        self._runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1)

    def _app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._serve)
        return app

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self.write_kubeconfig()

    async def stop(self) -> None:
        self.server.disconnect()
        await self._runner.cleanup()

    def write_kubeconfig(self, namespace: str = "", server: str = "", **user: str) -> None:
        """A context `lab`, with a namespace if one is given."""
        context = {"cluster": "lab", "user": "me", **({"namespace": namespace} if namespace else {})}
        entries = {
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": context}],
            "clusters": [{"name": "lab", "cluster": {"server": server or self.url}}],
            "users": [{"name": "me", "user": {"token": "secret", **user}}],
        }
        self.kubeconfig.write_text(yaml.safe_dump(entries))

    def add(self, resource: Resource[Any], *objects: Any) -> None:
        for each in objects:
            self.server.create(resource, msgspec.to_builtins(each))

    def add_nodes(self, *names: str, **more: Any) -> None:
        self.add(NODES, *(make_node(name, **more) for name in names))

    def add_pod(self, name: str, namespace: str = "default", **spec: Any) -> None:
        self.add(PODS, make_pod(name, namespace=namespace, **{"scheduler_name": "gpu-scheduler", **spec}))

    def add_gang(self, name: str, namespace: str, size: int, **labels: str) -> None:
        meta = ObjectMeta(name=name, namespace=namespace)
        self.add(SCHEDULER_PLUGINS_POD_GROUPS, PodGroup(meta, PodGroupSpec(min_member=size)))
        for number in range(size):
            self.add_pod(f"{name}-{number}", namespace, gpus=8, labels={GROUP: name, **labels})

    async def run(self, *words: str) -> Result:
        """A command, in a thread: it has an event loop of its own."""
        given = [*words, "--kubeconfig", str(self.kubeconfig)]
        return await asyncio.to_thread(CliRunner().invoke, main.cli, given)

    async def said(self, *words: str) -> str:
        """What a command prints; it must succeed."""
        result = await self.run(*words)
        assert result.exit_code == 0, f"{result.output} {result.exception!r}"
        return result.stdout

    # Serving

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        if request.path in self.refused:
            status, message = self.refused[request.path]
            return web.json_response(failure(status, "Refused", message), status=status)
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.2"})
        try:
            return await self._of_kind(request)
        except ApiError as error:
            return web.json_response(failure(error.status, error.reason, error.message), status=error.status)

    async def _of_kind(self, request: web.Request) -> web.StreamResponse:
        found = PATH.fullmatch(request.path)
        if found is None:
            return web.json_response(failure(404, "NotFound"), status=404)
        group, version, rest = found["group"] or "", found["version"], (found["rest"] or "").split("/")
        if rest == [""]:
            names = [{"name": name} for name in self.server.served(group, version)]
            return web.json_response({"resources": names}, status=200 if names else 404)
        namespace, parts = (rest[1], rest[2:]) if rest[0] == "namespaces" and len(rest) > 2 else ("", rest)
        kinds = (each for each in KNOWN if (each.group, each.version, each.plural) == (group, version, parts[0]))
        if (resource := next(kinds, None)) is None:
            return web.json_response(failure(404, "NotFound"), status=404)
        if len(parts) > 1:
            body = self.server.get(resource, parts[1], namespace=namespace).body
            return web.Response(body=body, content_type="application/json")
        if "watch" in request.query:
            return await self._watch(request, resource)
        return self._list(request, resource, namespace)

    def _list(self, request: web.Request, resource: Resource[Any], namespace: str) -> web.Response:
        query = request.query
        selectors = {"label_selector": query.get("labelSelector", ""), "field_selector": query.get("fieldSelector", "")}
        found = self.server.list(resource, namespace=namespace, **selectors)
        items = [json.loads(each.body) for each in found]
        return web.json_response({"metadata": {"resourceVersion": str(self.server.version)}, "items": items})

    async def _watch(self, request: web.Request, resource: Resource[Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        stream = self.server.watch(resource, request.query["resourceVersion"])
        await response.prepare(request)
        self.watched.set()
        with suppress(ConnectionResetError):
            async for notice in stream:
                await response.write(notice.line + b"\n")
        return response
