"""A real `gangline run` before a cluster in memory, whose lists a test can hold up while changes are tried."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from gangline.errors import ApiError
from gangline.kube.resources import LEASES, NODES, PODS
from gangline.simulate.history import Revision
from gangline.testing import make_node
from gangline_e2e.forked_programs import Forking
from gangline_e2e.ports import free_port

from ..kube.fake_api_server import failure
from .cluster_over_http import PATH, ClusterOverHttp


class AskedCluster(ClusterOverHttp):
    """Keeps leases, and lets everybody do everything. Lists of nodes have no end while `is_holding`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_holding = False
        self.held = 0
        """Lists that were held up."""
        self._end = asyncio.Event()

    def _app(self) -> web.Application:
        app = super()._app()
        app.router.add_route("*", "/{path:.*}", self._write)
        return app

    @property
    def holder(self) -> str:
        """The scheduler that holds the Lease; "" if none does."""
        (lease,) = self.server.list(LEASES)
        return str(lease.data["spec"].get("holderIdentity") or "")

    async def stop(self) -> None:
        self._end.set()
        await super().stop()

    def _list(self, request: web.Request, resource: Any, namespace: str) -> web.Response:
        if self.is_holding and resource is NODES:
            raise Held
        return super()._list(request, resource, namespace)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        try:
            return await super()._serve(request)
        except Held:
            self.held += 1
            await self._end.wait()
            raise ConnectionResetError from None

    async def _write(self, request: web.Request) -> web.StreamResponse:
        said = await request.json() if request.can_read_body else {}
        found = PATH.fullmatch(request.path)
        kind = found["rest"].split("/")[-1 if request.method == "POST" else -2] if found is not None else ""
        if kind in ("tokenreviews", "subjectaccessreviews"):
            user = {"username": said["spec"].get("token", ""), "groups": []}
            return web.json_response({**said, "status": {"authenticated": True, "allowed": True, "user": user}})
        if kind != "leases":
            return web.json_response(failure(403, "Forbidden"), status=403)
        try:
            stored = self._keep(request, said)
        except ApiError as error:
            return web.json_response(failure(error.status, error.reason, error.message), status=error.status)
        return web.Response(body=stored.body, content_type="application/json")

    def _keep(self, request: web.Request, said: Any) -> Revision:
        """Write a lease as the request says."""
        if request.method == "POST":
            return self.server.create(LEASES, said)
        if request.method == "PUT":
            return self.server.replace(LEASES, said)
        *_, namespace, _, name = request.path.split("/")
        return self.server.patch(LEASES, name, said, namespace=namespace)


class Held(Exception):
    """A list that is held up."""


class AskedScheduler:
    """The process, and a pod that waits."""

    def __init__(self, folder: Path, forking: Forking) -> None:
        self.cluster = AskedCluster(folder)
        self._forking = forking
        self._log = folder / "log"
        self._port = free_port()

    async def start(self) -> None:
        await self.cluster.start()
        self.cluster.add(NODES, make_node("small", gpus=4))
        self.cluster.add_pod("waits", gpus=8)
        (pod,) = self.cluster.server.list(PODS)
        self.unit: str = pod.data["metadata"]["uid"]
        words = ["--kubeconfig", str(self.cluster.kubeconfig), "--listen", "127.0.0.1:0"]
        words += ["--secure-listen", f"127.0.0.1:{self._port}", "--leader-elect"]
        self.process = self._forking.logged(["run", *words], self._log)

    async def stop(self) -> None:
        self.process.close()
        await self.cluster.stop()

    @property
    def said(self) -> str:
        """The log."""
        return self._log.read_text()

    async def ask(self, viewer: str = "me") -> tuple[int, Any]:
        """The status and the answer to the question what would let the pod start."""
        status, text = await self._get(f"/ui/remedies?namespace=default&unit={self.unit}", viewer)
        return status, json.loads(text) if status == 200 else text

    async def waits(self) -> None:
        """Return when the page shows that the pod waits."""
        while True:
            with suppress(aiohttp.ClientError):
                if self.unit in (await self._get("/ui/state", "first"))[1]:
                    return
            await asyncio.sleep(0.1)

    async def _get(self, path: str, viewer: str) -> tuple[int, str]:
        url, headers = f"https://127.0.0.1:{self._port}{path}", {"Authorization": f"Bearer {viewer}"}
        async with aiohttp.request("GET", url, headers=headers, ssl=False) as answer:
            return answer.status, await answer.text()

    def children(self) -> list[int]:
        """The processes that the scheduler has started, those included that have ended and were not waited for."""
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(each) for task in tasks for each in task.read_text().split()]
