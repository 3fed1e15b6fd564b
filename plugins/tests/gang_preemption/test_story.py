"""From a full cluster to a gang that is bound, on the in-memory API server: victims go as whole gangs, and no more."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from gangline import ApiError, config, model
from gangline.kube.resources import EVENTS, NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS, Resource
from gangline.registry import Catalog
from gangline.scheduler import Options, Scheduler
from gangline.simulate import InMemoryServer, Kubelet, SimulatedClient, VirtualClock, run
from gangline.testing import make_node, make_pod

from .preemption_cases import GROUP, LEAF, REQUIRED

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gangs
  plugins:
    multiPoint:
      enabled: [{name: GangPermit}, {name: TopologyPlacement}, {name: GangPreemption}]
"""


class Cluster:
    """Leaves of four nodes, a scheduler, and kubelets that take ten seconds to end a pod."""

    def __init__(self, leaves: int = 2) -> None:
        self.clock = VirtualClock()
        self.server = InMemoryServer(self.clock)
        self.failing: set[str] = set()
        """Pods of which the next deletion fails."""
        for leaf in range(leaves):
            for n in range(4):
                self.create(NODES, make_node(f"l{leaf}-n{n}", labels={LEAF: f"leaf-{leaf}"}))

    def create(self, resource: Resource[Any], obj: Any) -> None:
        self.server.create(resource, msgspec.to_builtins(obj))

    def add(self, name: str, size: int, priority: int, **annotations: str) -> None:
        """A gang of whole nodes."""
        meta = model.ObjectMeta(name=name, namespace="default")
        self.create(SCHEDULER_PLUGINS_POD_GROUPS, model.PodGroup(meta, model.PodGroupSpec(min_member=size)))
        for n in range(size):
            pod = make_pod(f"{name}-{n}", 8, labels={GROUP: name}, priority=priority, scheduler_name="gangs")
            pod.metadata.annotations = annotations
            self.create(PODS, pod)

    def bound(self) -> dict[str, str]:
        """Pod to node, of those that are not being deleted."""
        pods = [msgspec.convert(each.data, model.Pod) for each in self.server.list(PODS)]
        return {
            pod.metadata.name: pod.spec.node_name
            for pod in pods
            if pod.spec.node_name and pod.metadata.deletion_timestamp is None
        }

    def sizes(self) -> Counter[str]:
        """How many bound pods each gang has."""
        return Counter(name.rsplit("-", 1)[0] for name in self.bound())

    def notes(self, reason: str) -> list[str]:
        events = [each.data for each in self.server.list(EVENTS)]
        return [event["note"] for event in events if event["reason"] == reason]

    def fault(self, verb: str, resource: Resource[Any], name: str) -> Exception | None:
        if verb == "delete" and name in self.failing:
            self.failing.discard(name)
            return ApiError(500, "InternalError", "try later")
        return None

    async def until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        async with asyncio.timeout(seconds):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        client = SimulatedClient(self.server, latency={"bind": 0.2, "delete": 0.05}, faults=self.fault)
        made = Scheduler(config.load(PROFILE, "test"), client, self.clock, Catalog.discover(), Options(seed=0))
        work = [made.run(), Kubelet(self.server, self.clock, stop_seconds=10).run()]
        tasks = [asyncio.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def play(self, story: Callable[[], Coroutine[Any, Any, None]]) -> None:
        run(story(), self.clock)


def test_a_gang_gets_the_room_of_whole_gangs_and_is_bound_as_a_whole() -> None:
    cluster = Cluster()
    for number in range(4):
        cluster.add(f"low{number}", 2, priority=0, **{REQUIRED: "leaf"})

    async def story() -> None:
        async with cluster.running():
            await cluster.until(lambda: len(cluster.bound()) == 8)
            cluster.add("high", 4, priority=100, **{REQUIRED: "leaf"})
            await cluster.until(lambda: cluster.sizes()["high"] == 4)
            await asyncio.sleep(60)

    cluster.play(story)

    nodes = {node for pod, node in cluster.bound().items() if pod.startswith("high")}
    assert len(nodes) == 4 and len({node.split("-")[0] for node in nodes}) == 1
    assert sorted(cluster.sizes().values()) == [2, 2, 4]
    assert len(cluster.notes("Preempted")) == 4
    assert all(note.startswith("Preempted by gang default/high on node l") for note in cluster.notes("Preempted"))


def test_a_gang_of_middle_priority_does_not_get_the_room_that_was_made_for_a_higher_one() -> None:
    cluster = Cluster()
    cluster.add("low", 8, priority=0)

    async def story() -> None:
        async with cluster.running():
            await cluster.until(lambda: len(cluster.bound()) == 8)
            cluster.add("high", 4, priority=100, **{REQUIRED: "leaf"})
            await cluster.until(lambda: not cluster.bound())
            cluster.add("middle", 8, priority=50)
            await cluster.until(lambda: cluster.sizes()["high"] == 4)
            await asyncio.sleep(60)

    cluster.play(story)

    assert cluster.sizes() == {"high": 4}


def test_after_a_deletion_that_failed_the_rest_of_the_gang_goes_too() -> None:
    cluster = Cluster(leaves=1)
    cluster.add("low", 4, priority=0)
    cluster.failing = {"low-3"}

    async def story() -> None:
        async with cluster.running():
            await cluster.until(lambda: len(cluster.bound()) == 4)
            cluster.add("high", 4, priority=100, **{REQUIRED: "leaf"})
            await cluster.until(lambda: cluster.sizes()["high"] == 4, seconds=600)

    cluster.play(story)

    assert cluster.sizes() == {"high": 4} and not cluster.failing
    assert {each.data["metadata"]["name"] for each in cluster.server.list(PODS)} == {f"high-{n}" for n in range(4)}
