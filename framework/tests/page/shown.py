"""A small cluster to show, and its picture in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gangline import model
from gangline.groups import Groups
from gangline.kube.resources import GPU_NODE_STATUSES
from gangline.page.drawing import Drawer
from gangline.page.expecting import Expecting
from gangline.page.history import ClusterHistory
from gangline.page.tables import EVERYBODY
from gangline.page.taking import TakenPart, Taker
from gangline.queueing.queue import SchedulingQueue
from gangline.state.cache import Cache
from gangline.state.topology import Topology
from gangline.status import SUCCESS
from gangline.telemetry.metrics import Metrics
from gangline.testing import FakeClock, make_node
from gangline.wire.custom_resources import GpuDevice, GpuNodeStatus, GpuNodeStatusStatus

SPINE, LEAF = "topology.gangline.dev/spine", "topology.gangline.dev/leaf"


def node(name: str, leaf: str = "leaf-0", spine: str = "spine-0", ready: str = "True", **more: Any) -> model.Node:
    """A node with the status `ready` of its condition Ready; "" for a node without the condition."""
    made = make_node(name, labels={SPINE: spine, LEAF: leaf}, **more)
    made.status.conditions = [model.PodCondition("Ready", ready)] if ready else []
    return made


def report(name: str, sick: Iterable[int] = (), gpus: int = 8) -> GpuNodeStatus:
    """The report of a node whose GPUs are in two islands, half of them in each."""
    devices = [
        GpuDevice(
            id,
            health="Unhealthy" if id in sick else "Healthy",
            reason="XID 79" if id in sick else "",
            island=f"island-{2 * id // gpus}",
        )
        for id in range(gpus)
    ]
    return GpuNodeStatus(model.ObjectMeta(name=name), status=GpuNodeStatusStatus(total=gpus, devices=devices))


class ShownCluster:
    """A cache and a queue, with the taker and the drawer of their picture."""

    def __init__(self, *nodes: model.Node) -> None:
        self.cache, self.queue = Cache(), SchedulingQueue()
        self.groups = Groups(self.cache)
        self.queue.serve("default-scheduler", lambda pod, now: (now,), lambda pods: SUCCESS, {}, self._key)
        self.topology = Topology(self.cache.nodes)
        self.leads = True
        self.clock = FakeClock()
        self.metrics = Metrics()
        self.history = ClusterHistory(self.cache, self.queue, self.metrics, self.clock)
        self.expecting = Expecting()
        self.drawer, self.taker = Drawer(), self.new_taker()
        for each in nodes:
            self.cache.upsert_node(each)

    def new_taker(self) -> Taker:
        return Taker(
            self.cache,
            self.queue,
            self.groups,
            lambda: self.topology,
            lambda: self.leads,
            self.clock,
            self.expecting,
            self.history,
        )

    def _key(self, pod: Any) -> str:
        found = self.groups.of(pod)
        return "" if found is None else getattr(found, "key", "") or found.group.key  # type: ignore[union-attr]

    def bind(self, *pods: model.Pod) -> None:
        for pod in pods:
            self.cache.upsert_pod(self.cache.record(pod))

    def wait(self, *pods: model.Pod) -> None:
        for pod in pods:
            self.queue.add(self.cache.record(pod), 5.0)

    def report(self, *reports: GpuNodeStatus) -> None:
        for each in reports:
            self.cache.store(GPU_NODE_STATUSES).upsert(each)

    def take(self) -> TakenPart:
        return self.taker.take()

    def draw(self) -> Drawer:
        """The picture, brought up to date."""
        while not self._drawn(self.drawer, self.taker):
            pass
        return self.drawer

    def drawn_anew(self) -> Drawer:
        drawer, taker = Drawer(), self.new_taker()
        while not self._drawn(drawer, taker):
            pass
        return drawer

    @staticmethod
    def _drawn(drawer: Drawer, taker: Taker) -> bool:
        taken = taker.take()
        drawer.draw(taken)
        return taken.is_all


def owners(drawer: Drawer, name: str) -> list[str]:
    """The workload of each GPU of a node; "" for a free one."""
    numbers = {
        int(number): f"{namespace}/{row[0]}"
        for namespace in drawer.tables.namespaces
        for number, row in drawer.tables.rows(namespace).get("workloads", {}).items()
    }
    row = drawer.tables.rows(EVERYBODY)["nodes"][name]
    return [numbers.get(owner, "") if owner else "" for owner in row[1]]


def in_words(drawer: Drawer) -> Any:
    """The picture with the names of workloads instead of their numbers."""
    tables = drawer.tables
    names = {
        int(number): (namespace, *row)
        for namespace in tables.namespaces
        for number, row in tables.rows(namespace).get("workloads", {}).items()
    }
    found: dict[str, Any] = {"everybody": dict(tables.rows(EVERYBODY))}
    nodes = tables.rows(EVERYBODY).get("nodes", {})
    found["everybody"]["nodes"] = {
        key: (row[0], tuple(names.get(owner, owner) for owner in row[1]), *row[2:]) for key, row in nodes.items()
    }
    for namespace in tables.namespaces:
        rows = tables.rows(namespace)
        found[namespace] = {
            "workloads": sorted(rows.get("workloads", {}).values()),
            "pods": {key: (row[0], names[row[1]], row[2]) for key, row in rows.get("pods", {}).items()},
            "units": {key: (names[row[0]], *row[1:]) for key, row in rows.get("units", {}).items()},
        }
    return found
