"""A cluster without an API server, made up to be looked at: the columns, the queue, and the page over them."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from gangline import model
from gangline.api.outlook import ExpectedStart
from gangline.clock import SystemClock, rfc3339
from gangline.errors import GanglineError
from gangline.groups import Groups
from gangline.kube.resources import GPU_NODE_STATUSES, RESOURCE_CLAIMS
from gangline.page.expecting import Expecting
from gangline.page.feed import Feed, Look
from gangline.page.history import ClusterHistory
from gangline.page.serving import page
from gangline.page.sight import Everybody, PageViewer
from gangline.page.taking import TakenPart, Taker
from gangline.process.listening import Listener
from gangline.queueing.queue import SchedulingQueue
from gangline.remedies import Remedies
from gangline.remedies.showing import ShownRemedies
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.topology import Topology
from gangline.status import SUCCESS
from gangline.telemetry.metrics import Metrics
from gangline.testing import make_node, make_pod
from gangline.wire.custom_resources import ALLOCATED, GpuDevice, GpuNodeStatus, GpuNodeStatusStatus

SPINE, LEAF = "topology.gangline.dev/spine", "topology.gangline.dev/leaf"
GANG = "scheduling.x-k8s.io/pod-group"
PAUSE = 0.1
"""Seconds between two looks, so that tests do not wait."""


class MovedClock(SystemClock):
    """The system's clock, moved ahead by as many seconds as a test wants."""

    ahead = 0.0

    def monotonic(self) -> float:
        """See `Clock`."""
        return super().monotonic() + self.ahead

    def now(self) -> float:
        """See `Clock`."""
        return super().now() + self.ahead


class MadeUpOutlook:
    """The expectations of a plugin, as a test sets them."""

    def __init__(self) -> None:
        self.expected: list[ExpectedStart] = []
        self.ends: dict[str, float] = {}
        """When each pod ends, by its name, in seconds since the epoch."""

    def starts(self) -> Sequence[ExpectedStart]:
        """See `Outlook`."""
        return self.expected

    def end_of(self, pod: PodInfo) -> float:
        """See `Outlook`."""
        return self.ends.get(pod.name, math.inf)


class Stranger:
    """A viewer who may see no namespace; after `is_lost` is set nobody says what the viewer may see."""

    name = "stranger"
    is_lost = False

    async def may_list_pods(self, namespace: str) -> bool:
        """See `PageViewer`."""
        if self.is_lost:
            raise GanglineError("nobody answers")
        return False


class MadeUp:
    """Nodes of 8 GPUs, 8 nodes under a leaf and 4 leaves under a spine; gangs and single pods on them."""

    def __init__(self, nodes: int, pause: float = PAUSE) -> None:
        self._pause = pause
        self.cache, self.queue = Cache(), SchedulingQueue()
        self.groups = Groups(self.cache)
        self.topology = Topology(self.cache.nodes)
        self.clock = MovedClock()
        self.metrics = Metrics()
        self.history = ClusterHistory(self.cache, self.queue, self.metrics, self.clock)
        self.outlook = MadeUpOutlook()
        self._occupied = 0
        self.decisions: dict[str, Any] = {}
        """By the UID of a pod: why it is on its node."""
        self.remedies: dict[str, Remedies] = {}
        """By the identity of a unit: what would let it start."""
        self.queue.serve("default-scheduler", lambda pod, now: (now,), lambda pods: SUCCESS, {})
        for number in range(nodes):
            self.change_node(number)

    def bind(
        self,
        name: str,
        node: int,
        gpus: Iterable[int],
        namespace: str = "team",
        runs: float = 0.0,
        ends: float = 0.0,
        **more: Any,
    ) -> None:
        """Add a pod with these GPUs. It has run for `runs` seconds, or has not started for 0; it ends in `ends`
        seconds, or never for 0.
        """
        ids, now = [*gpus], self.clock.now()
        annotations = {ALLOCATED: ",".join(map(str, ids))}
        pod = make_pod(name, gpus=len(ids), node=f"node-{node}", namespace=namespace, annotations=annotations, **more)
        if runs:
            pod.status.start_time = rfc3339(now - runs)
        if ends:
            self.outlook.ends[name] = now + ends
        self.cache.upsert_pod(self.cache.record(pod))

    def wait(
        self, name: str, why: str, gpus: int = 8, namespace: str = "team", seconds: float = 60.0, **more: Any
    ) -> str:
        """Add a pod that was tried and has waited for so many seconds; returns the UID of its unit."""
        now = self.clock.monotonic()
        self.queue.add(self.cache.record(make_pod(name, gpus=gpus, namespace=namespace, **more)), now - seconds)
        unit = self.queue.pop(now)
        assert unit is not None
        self.queue.requeue(unit, ["NodeResourcesFit"], why, now)
        return unit.uid

    def expect(self, key: str, seconds: float, nodes: Iterable[int]) -> None:
        """Let room be kept on these nodes for a unit that is to start in so many seconds."""
        now, names = self.clock.now(), tuple(f"node-{number}" for number in nodes)
        start = ExpectedStart(key, now + seconds, now - 120.0, now + 7200.0, 8 * len(names), names)
        self.outlook.expected.append(start)

    def decide(
        self,
        name: str,
        feasible: int,
        scores: Mapping[str, float],
        namespace: str = "team",
        gang: tuple[str, str, float, int] | None = None,
    ) -> None:
        """The scheduler remembers why a pod is on its node: scores, and the placement of its gang."""
        pod = self.cache.pods[f"pod-{namespace}-{name}"]
        decision: dict[str, Any] = {
            "pod": pod.key,
            "node": pod.node_name,
            "profile": "gpu-scheduler",
            "time": rfc3339(self.clock.now() - 600.0),
            "feasibleNodes": feasible,
            "scores": [{"plugin": plugin, "weight": 1, "score": score} for plugin, score in scores.items()],
        }
        if gang is not None:
            decision["gang"] = dict(zip(("name", "placement", "score", "members"), gang, strict=True))
        self.decisions[pod.uid] = decision

    def remember(
        self, samples: int, seconds: float, busy: Callable[[float], float] = lambda hour: 1.0, nodes: int = 0
    ) -> None:
        """A past of so many samples at this interval, on so many nodes; everything follows how busy they were."""
        decided, bound = self.metrics.algorithm.series("gpu-scheduler"), self.metrics.sli.series("1")
        for sample in range(samples):
            self.clock.ahead = seconds * (sample + 1 - samples)
            load = busy(sample * seconds / 3600.0)
            for step in range(20):
                decided.observe(0.002 * load * 1.2**step)
                bound.observe(0.5 * load * 1.4**step)
            self._occupy(round(load * nodes))
            self.history.sample()
        self._occupy(0)
        self.clock.ahead = 0.0

    def _occupy(self, nodes: int) -> None:
        """Pods of the past are on so many nodes, each third one with a few free GPUs."""
        for number in range(nodes, self._occupied):
            self.cache.remove_pod(f"pod-team-past-{number}")
        for number in range(self._occupied, nodes):
            self.bind(f"past-{number}", number, range(5 if number % 3 == 1 else 8))
        self._occupied = nodes

    def report(self, node: int, sick: Iterable[int] = (), missing: Iterable[int] = ()) -> None:
        """The GPUs of a node in two islands, some of them sick; missing ones are not reported."""
        lost, gone = {*sick}, {*missing}
        devices = [
            GpuDevice(
                id,
                health="Unhealthy" if id in lost else "Healthy",
                reason="XID 79" if id in lost else "",
                island=f"island-{id // 4}",
            )
            for id in range(8)
            if id not in gone
        ]
        status = GpuNodeStatusStatus(total=len(devices), devices=devices)
        self.cache.store(GPU_NODE_STATUSES).upsert(GpuNodeStatus(model.ObjectMeta(name=f"node-{node}"), status=status))

    def claim(self, name: str, node: int, gpus: Iterable[int], namespace: str = "team") -> None:
        """Add a ResourceClaim that has these GPUs, and that no pod uses."""
        results = [{"driver": "gpu.nvidia.com", "pool": f"node-{node}", "device": f"gpu-{gpu}"} for gpu in gpus]
        metadata = {"name": name, "namespace": namespace}
        claim = {"metadata": metadata, "status": {"allocation": {"devices": {"results": results}}}}
        self.cache.store(RESOURCE_CLAIMS).upsert(msgspec.convert(claim, model.ResourceClaim))

    def change_node(self, number: int, **more: Any) -> None:
        """Add a node with these properties, or change it."""
        labels = {SPINE: f"spine-{number // 32}", LEAF: f"leaf-{number // 8}"}
        node = make_node(f"node-{number}", labels=labels, **more)
        node.status.conditions = [model.PodCondition("Ready", "True")]
        self.cache.upsert_node(node)

    def fill(self, gangs: int, size: int) -> None:
        """So many gangs with one pod on each of so many nodes."""
        for gang in range(gangs):
            for rank in range(size):
                labels = {GANG: f"gang-{gang}"}
                name = f"gang-{gang}-{rank}"
                self.bind(name, gang * size + rank, range(8), f"team-{gang % 5}", labels=labels)

    @asynccontextmanager
    async def served(self, viewer: PageViewer | None = None) -> AsyncIterator[str]:
        """The address of the page, for the time of the block; by default everybody may see everything."""
        looks = viewer or Everybody()
        feed = Feed(self._looking, pause=self._pause)
        app = web.Application()
        handlers = page(feed, lambda request: looks, self.decisions.get, remedies_of=self._remedies_of)
        app.add_routes([web.get(path, handler) for path, handler in handlers.items()])
        listener = Listener(app, "127.0.0.1:0", "--listen")
        await listener.start()
        try:
            yield f"http://127.0.0.1:{listener.port}/ui"
        finally:
            feed.close()
            await listener.stop()

    async def _remedies_of(self, unit: str, viewer: str) -> ShownRemedies | None:
        found = self.remedies.get(unit)
        return ShownRemedies(found) if found is not None else None

    def _looking(self) -> Look:
        expecting = Expecting(lambda: [("Reservation", self.outlook)])
        taker = Taker(
            self.cache,
            self.queue,
            self.groups,
            lambda: self.topology,
            lambda: True,
            self.clock,
            expecting,
            self.history,
        )

        async def look() -> TakenPart:
            return taker.take()

        return look
