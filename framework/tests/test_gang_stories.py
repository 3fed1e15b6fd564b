"""Gangs from queue to binding on the in-memory API server: whole, or not at all, whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import msgspec

from gangline import config, model
from gangline.errors import Conflict, Unavailable
from gangline.kube.resources import EVENTS, NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS, Resource
from gangline.registry import Catalog
from gangline.scheduler import Options, Scheduler
from gangline.simulate import Faults, InMemoryServer, SimulatedClient, VirtualClock, run
from gangline.simulate.client import no_faults
from gangline.testing import make_node, make_pod

from .gangs import GROUP, LEAF, REQUIRED, SPINE

Result = TypeVar("Result")
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gangs
  plugins:
    multiPoint:
      enabled: [{name: GangPermit}, {name: TopologyPlacement}]
"""


class GangCluster:
    """Leaves of four nodes with eight GPUs each, and groups on them, in virtual time."""

    def __init__(self, leaves: int = 2) -> None:
        self.clock = VirtualClock()
        self.server = InMemoryServer(self.clock)
        for leaf in range(leaves):
            for n in range(4):
                labels = {SPINE: "spine-0", LEAF: f"leaf-{leaf}"}
                self.create(NODES, make_node(f"l{leaf}-n{n}", gpus=8, cpu=64, memory="512Gi", labels=labels))

    def create(self, resource: Resource[Any], obj: Any) -> None:
        self.server.create(resource, msgspec.to_builtins(obj))

    def add_group(self, name: str, min_member: int) -> None:
        self.create(
            SCHEDULER_PLUGINS_POD_GROUPS,
            model.PodGroup(model.ObjectMeta(name=name, namespace="default"), model.PodGroupSpec(min_member=min_member)),
        )

    def add_pods(self, group: str, *numbers: int, **annotations: str) -> None:
        for number in numbers:
            labels, notes = {GROUP: group}, {REQUIRED: "leaf", **annotations}
            pod = make_pod(f"{group}-{number}", gpus=8, labels=labels, annotations=notes, scheduler_name="gangs")
            self.create(PODS, pod)

    def bound(self, group: str) -> dict[str, str]:
        """Pod name to node, of those of a group that have one."""
        pods = [msgspec.convert(each.data, model.Pod) for each in self.server.list(PODS)]
        mine = [pod for pod in pods if (pod.metadata.labels or {}).get(GROUP) == group]
        return {pod.metadata.name: pod.spec.node_name for pod in mine if pod.spec.node_name}

    def status(self, group: str) -> dict[str, Any]:
        found: dict[str, Any] = self.server.get(SCHEDULER_PLUGINS_POD_GROUPS, group).data.get("status", {})
        return found

    def condition(self, pod: str) -> str:
        """What the status of a pod says about why it waits."""
        conditions = self.server.get(PODS, pod).data.get("status", {}).get("conditions", [])
        return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")

    def notes(self, kind: str) -> list[str]:
        """What events say about objects of a kind."""
        events = [each.data for each in self.server.list(EVENTS)]
        return [event["note"] for event in events if event["regarding"]["kind"] == kind]

    def play(self, story: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        return run(story(), self.clock)

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def scheduler(self, faults: Faults = no_faults) -> AsyncIterator[Scheduler]:
        client = SimulatedClient(self.server, latency={"bind": 0.2}, faults=faults)
        made = Scheduler(config.load(PROFILE, "test"), client, self.clock, Catalog.discover(), Options(seed=0))
        task = asyncio.create_task(made.run())
        try:
            yield made
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def test_a_gang_is_bound_once_all_its_pods_are_there() -> None:
    cluster = GangCluster()
    cluster.add_group("a", 4)
    cluster.add_pods("a", 0, 1, 2)

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.queue.counts()["gated"] == 3)
            assert not cluster.bound("a")
            cluster.add_pods("a", 3)
            await cluster.until(lambda: len(cluster.bound("a")) == 4)
            await cluster.until(lambda: cluster.status("a").get("phase") == "Scheduled")

    cluster.play(story)

    assert len({node.split("-")[0] for node in cluster.bound("a").values()}) == 1
    assert "Assigned 4 pods of the group to nodes" in cluster.notes("PodGroup")


def test_pods_that_come_before_their_group_wait_for_it() -> None:
    cluster = GangCluster()
    cluster.add_pods("a", 0, 1)

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.queue.counts()["gated"] == 2)
            cluster.add_group("a", 2)
            await cluster.until(lambda: len(cluster.bound("a")) == 2)

    cluster.play(story)


def test_a_gang_that_does_not_fit_says_so_on_the_group_and_its_pods_and_goes_when_there_is_room() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_group("a", 3)
    cluster.add_group("b", 3)
    cluster.add_pods("a", 0, 1, 2)

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound("a")) == 3)
            cluster.add_pods("b", 0, 1, 2)
            await cluster.until(lambda: cluster.status("b").get("phase") == "Pending")
            await cluster.until(lambda: sum("no leaf of 1 holds 3" in note for note in cluster.notes("Pod")) == 3)
            await cluster.until(lambda: all("no leaf of 1 holds 3" in cluster.condition(f"b-{n}") for n in range(3)))
            for number in range(3):
                cluster.server.delete(PODS, f"a-{number}", grace_period_seconds=0)
            await cluster.until(lambda: len(cluster.bound("b")) == 3)

    cluster.play(story)


def test_a_member_that_the_api_server_refuses_to_bind_is_placed_with_the_others_later() -> None:
    cluster = GangCluster()
    cluster.add_group("a", 3)
    cluster.add_pods("a", 0, 1, 2)
    refusals: list[str] = []

    def refuse(verb: str, resource: Resource[Any], name: str) -> Exception | None:
        if verb == "bind" and name == "a-1" and not refusals:
            refusals.append(name)
            return Conflict(409, "Conflict", "the pod is being looked at")
        return None

    async def story() -> Scheduler:
        async with cluster.scheduler(refuse) as scheduler:
            await cluster.until(lambda: len(cluster.bound("a")) == 3)
            await cluster.until(lambda: not scheduler.cache.assumed)
            return scheduler

    scheduler = cluster.play(story)

    assert refusals and len({node.split("-")[0] for node in cluster.bound("a").values()}) == 1
    assert scheduler.cache.nodes.view().requested("nvidia.com/gpu").sum() == 24


def test_a_gang_that_is_deleted_while_it_waits_leaves_nothing() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_group("a", 5)
    cluster.add_pods("a", *range(5))

    async def story() -> Scheduler:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.queue.counts()["unschedulable"] == 5)
            for number in range(5):
                cluster.server.delete(PODS, f"a-{number}", grace_period_seconds=0)
            await cluster.until(lambda: not list(scheduler.queue))
            return scheduler

    scheduler = cluster.play(story)

    assert not scheduler.cache.pods and not scheduler.cache.nodes.requested.any()


def test_an_api_server_that_does_not_answer_delays_the_gang_and_loses_nobody() -> None:
    cluster = GangCluster()
    cluster.add_group("a", 4)
    cluster.add_pods("a", 0, 1, 2, 3)

    def down(verb: str, resource: Resource[Any], name: str) -> Exception | None:
        late = cluster.clock.monotonic() - start > 3.0
        return Unavailable(503, "Unavailable", "down") if verb == "bind" and not late else None

    start = cluster.clock.monotonic()

    async def story() -> None:
        async with cluster.scheduler(down):
            await cluster.until(lambda: len(cluster.bound("a")) == 4)

    cluster.play(story)

    assert len({node.split("-")[0] for node in cluster.bound("a").values()}) == 1


def test_members_that_come_while_the_others_are_being_bound_join_them() -> None:
    cluster = GangCluster()
    cluster.add_group("a", 2)
    cluster.add_pods("a", 0, 1)

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until(lambda: scheduler.cache.assumed == 2)
            cluster.add_pods("a", 2)
            await cluster.until(lambda: len(cluster.bound("a")) == 3)

    cluster.play(story)

    assert len({node.split("-")[0] for node in cluster.bound("a").values()}) == 1


def test_a_gang_that_a_scheduler_left_bound_in_part_comes_before_all_others() -> None:
    cluster = GangCluster(leaves=1)
    cluster.add_group("a", 2)
    cluster.add_group("b", 4)
    cluster.add_pods("a", 0, 1)
    cluster.add_pods("b", 2, 3)
    for number in (0, 1):
        pod = make_pod(f"b-{number}", gpus=8, labels={GROUP: "b"}, annotations={REQUIRED: "leaf"}, node=f"l0-n{number}")
        cluster.create(PODS, pod)

    async def story() -> None:
        async with cluster.scheduler():
            await cluster.until(lambda: len(cluster.bound("b")) == 4)

    cluster.play(story)

    assert not cluster.bound("a")
