"""An API server that has so many nodes and pods that a real one would not fit beside the scheduler on a small machine.

    python -m scaling.server NODES PODS WAITING

Serves lists in pages, watches and bindings over plain HTTP, and nothing that the scheduler does not ask for. The pages
are made before the scheduler starts: they would cost more than the scheduler does. It prints its port, then follows
orders, one in a line:

    churn SECONDS NODES_PER_SECOND KNOWN_PER_SECOND NEW_PER_SECOND
    unschedulable PODS
    delete SECONDS

and answers each with a line of JSON when the order is carried out.

The unschedulable pods ask for as much CPU as a node has left when one of the pods that run on it is deleted, so that a
deletion makes room for one of them.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

from aiohttp import web

from scaling import objects
from scaling.objects import NODES, PODS

KNOWN_MILLI, NEW_MILLI = 500, 1_000
LARGE_KINDS = 3
PAGE = 500
"""Objects in a page of a list; what the scheduler asks for."""
TICK = 0.005
"""Seconds between two portions of what is repeated."""
TOO_LARGE_PER_SECOND, BESIDE_PER_SECOND = 5000.0, 20.0
Waits = dict[str, float]
"""Seconds from the creation of a pod to its binding: p50, p99 and max; and how many pods found room in a deletion's."""


class Server:
    """The objects, by formulas; what has changed since the start is sent to watches."""

    def __init__(self, nodes: int, pods: int, waiting: int) -> None:
        self.nodes, self.pods, self.waiting = nodes, pods, waiting
        self.version = 1
        self.next_pod = pods + waiting
        self.created: dict[str, float] = {}
        """When each pod that fits and waits was shown to watches, by name."""
        self.waits: list[float] = []
        self.filled = 0
        """The unschedulable pods that were bound."""
        self._large = objects.NODE_MILLI - objects.POD_MILLI * (pods // nodes - 1) - LARGE_KINDS + 1
        self.first_binding = asyncio.Event()
        self._bound = asyncio.Event()
        self._untold: set[str] = set()
        self._told = asyncio.Event()
        self._made: dict[str, tuple[int, int]] = {}
        self._pages = {path: list(self._all_pages(path)) for path in (NODES, PODS)}
        self._watches: dict[str, list[asyncio.Queue[bytes]]] = {NODES: [], PODS: []}

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.router.add_get("/version", self._version)
        app.router.add_get("/{path:.*}", self._get)
        app.router.add_post("/{path:.*}", self._post)
        app.router.add_patch("/{path:.*}", self._patch)
        return app

    # Orders

    async def churn(self, seconds: float, node_rate: float, known_rate: float, new_rate: float) -> Waits:
        """Change nodes and make pods at these rates; says how long the pods have waited."""
        await asyncio.gather(
            self._repeat(seconds, node_rate, self._beat),
            self._repeat(seconds, known_rate, lambda: self._come(KNOWN_MILLI)),
            self._repeat(seconds, new_rate, lambda: self._come(NEW_MILLI + self.next_pod % 10_000)),
        )
        return await self._all_bound()

    async def unschedulable(self, pods: float) -> Waits:
        """Make pods of three classes that fit nowhere, and wait until each has been told so."""
        seconds = pods / TOO_LARGE_PER_SECOND
        await self._repeat(seconds, TOO_LARGE_PER_SECOND, self._come_large)
        while self._untold:
            self._told.clear()
            await self._told.wait()
        return {}

    async def delete(self, seconds: float) -> Waits:
        """Delete a pod that runs, each second, while pods come."""
        gone = iter(range(self.pods))
        await asyncio.gather(
            self._repeat(seconds, 1.0, lambda: self._go(next(gone))),
            self._repeat(seconds, BESIDE_PER_SECOND, lambda: self._come(KNOWN_MILLI)),
        )
        return await self._all_bound() | {"deleted": next(gone), "filled": self.filled}

    async def _repeat(self, seconds: float, rate: float, step: Callable[[], None]) -> None:
        began, done = time.perf_counter(), 0
        while (passed := time.perf_counter() - began) < seconds:
            due = int(passed * rate)
            for _ in range(due - done):
                step()
            done = due
            await asyncio.sleep(TICK)

    async def _all_bound(self) -> Waits:
        while self.created:
            self._bound.clear()
            await self._bound.wait()
        waits, self.waits = sorted(self.waits), []
        return {"p50": waits[len(waits) // 2], "p99": waits[int(len(waits) * 0.99)], "max": waits[-1]}

    def _go(self, number: int) -> None:
        self._send(PODS, "DELETED", objects.pod(number, f"node-{number % self.nodes:06}", self._next()))

    def _beat(self) -> None:
        version = self._next()
        self._send(NODES, "MODIFIED", objects.node(version % self.nodes, version, version))

    def _come(self, cpu_milli: int) -> None:
        self.created[f"pod-{self.next_pod:07}"] = time.perf_counter()
        self._make(cpu_milli)

    def _come_large(self) -> None:
        self._untold.add(f"pod-{self.next_pod:07}")
        self._make(self._large + self.next_pod % LARGE_KINDS)

    def _make(self, cpu_milli: int) -> None:
        number = self.next_pod
        self.next_pod += 1
        self._made[f"pod-{number:07}"] = (number, cpu_milli)
        self._send(PODS, "ADDED", objects.pod(number, version=self._next(), cpu_milli=cpu_milli))

    def _next(self) -> int:
        self.version += 1
        return self.version

    def _send(self, path: str, event: str, body: bytes) -> None:
        for queue in self._watches[path]:
            queue.put_nowait(b'{"type":"%s","object":%s}\n' % (event.encode(), body))

    # Requests

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"major": "1", "minor": "36", "gitVersion": "v1.36.2"})

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        if "watch" in request.query:
            return await self._watch(request)
        if path in (NODES, PODS):
            return self._page(request, path)
        if path.startswith("/apis/") and path.count("/") <= 3:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        return web.json_response({"metadata": {"resourceVersion": "1"}, "items": []})

    def _page(self, request: web.Request, path: str) -> web.Response:
        if request.query.get("limit") != str(PAGE):
            raise web.HTTPBadRequest(text=f"pages have {PAGE} objects")
        number = int(request.query.get("continue") or 0)
        return web.Response(body=self._pages[path][number], content_type="application/json")

    def _all_pages(self, path: str) -> Iterator[bytes]:
        total = self.nodes if path == NODES else self.pods + self.waiting
        make = objects.node if path == NODES else self._listed
        for number, begin in enumerate(range(0, total, PAGE)):
            end = min(total, begin + PAGE)
            head = {"resourceVersion": "1"} | ({"continue": str(number + 1)} if end < total else {})
            items = b",".join(make(each) for each in range(begin, end))
            yield b'{"metadata":%s,"items":[%s]}' % (json.dumps(head).encode(), items)

    def _listed(self, number: int) -> bytes:
        if number < self.pods:
            return objects.pod(number, f"node-{number % self.nodes:06}", gpus=int(number % 5 == 0))
        self._made[f"pod-{number:07}"] = (number, KNOWN_MILLI)
        return objects.pod(number, cpu_milli=KNOWN_MILLI)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        watches = self._watches.setdefault(request.path, [])
        watches.append(queue)
        try:
            with suppress(ConnectionError):
                while True:
                    await response.write(await queue.get())
        finally:
            watches.remove(queue)
        return response

    async def _post(self, request: web.Request) -> web.Response:
        body = await request.json()
        if request.path.endswith("/binding"):
            name = request.path.split("/")[-2]
            number, cpu_milli = self._made.pop(name)
            if (since := self.created.pop(name, None)) is not None:
                self.waits.append(time.perf_counter() - since)
            self.filled += cpu_milli >= self._large
            on = body["target"]["name"]
            self._send(PODS, "MODIFIED", objects.pod(number, on, self._next(), cpu_milli))
            self.first_binding.set()
            self._bound.set()
            return web.json_response({"kind": "Status", "status": "Success"}, status=201)
        if request.path.endswith("/selfsubjectaccessreviews"):
            return web.json_response({**body, "status": {"allowed": True}}, status=201)
        return web.json_response(body, status=201)

    async def _patch(self, request: web.Request) -> web.Response:
        """The status of a pod that waits; what is not of a pod is accepted and forgotten."""
        patch, name = await request.json(), request.path.split("/")[-2]
        if name not in self._made:
            return web.json_response({"metadata": {"name": name}})
        self._untold.discard(name)
        self._told.set()
        number, cpu_milli = self._made[name]
        body = objects.pod(number, version=self._next(), cpu_milli=cpu_milli, status=patch["status"])
        self._send(PODS, "MODIFIED", body)
        return web.Response(body=body, content_type="application/json")


async def _orders() -> AsyncIterator[list[str]]:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line.decode().split()


async def main(nodes: int, pods: int, waiting: int) -> None:
    """Serve until the orders end."""
    server = Server(nodes, pods, waiting)
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await server.first_binding.wait()
    print(json.dumps({"at": time.monotonic()}), flush=True)
    carry_out: dict[str, Callable[..., Awaitable[Waits]]] = {
        "churn": server.churn,
        "unschedulable": server.unschedulable,
        "delete": server.delete,
    }
    async for name, *numbers in _orders():
        print(json.dumps(await carry_out[name](*map(float, numbers))), flush=True)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:4])))
