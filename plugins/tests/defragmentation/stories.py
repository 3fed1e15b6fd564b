"""A fragmented cluster on the in-memory API server, with a scheduler, controllers and kubelets, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from framework.tests.gangs import GROUP, LEAF, REQUIRED, SPINE

from gangline import config, model
from gangline.commands.judging import judge
from gangline.kube.resources import CONFIG_MAPS, EVENTS, NODES, PDBS, PODS, SCHEDULER_PLUGINS_POD_GROUPS, Resource
from gangline.registry import Catalog
from gangline.scheduler import Options, Scheduler
from gangline.simulate import Faults, InMemoryServer, Kubelet, SimulatedClient, VirtualClock, run
from gangline.simulate.client import no_faults
from gangline.simulate.controller import Workloads
from gangline.testing import make_node, make_pod
from gangline_plugins.defragmentation.applying import Applying
from gangline_plugins.defragmentation.command import Found, Wish, find
from gangline_plugins.defragmentation.record import record_of

Result = TypeVar("Result")
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gangs
  plugins:
    multiPoint:
      enabled: [{name: GangPermit}, {name: TopologyPlacement}%s]
  pluginConfig: [%s]
"""
WISH = Wish((), None, None, None, None, "leaf", None)


class Story:
    """Two leaves of four nodes with eight GPUs each, every node with a pod of one GPU from a ReplicaSet of its own."""

    def __init__(self, keeps: bool = True, faults: Faults = no_faults, **args: Any) -> None:
        self.clock = VirtualClock()
        self.server = InMemoryServer(self.clock)
        plugin = ", {name: Defragmentation}" if keeps else ""
        given = msgspec.json.encode({"name": "Defragmentation", "args": args}).decode() if args else ""
        self.config = config.load(PROFILE % (plugin, given), "test")
        self.client = SimulatedClient(self.server, latency={"bind": 0.01}, faults=faults)
        self.said: list[str] = []
        for leaf in range(2):
            for n in range(4):
                labels = {SPINE: "spine-0", LEAF: f"leaf-{leaf}"}
                self.create(NODES, make_node(f"l{leaf}-n{n}", gpus=8, cpu=64, memory="512Gi", labels=labels))

    def create(self, resource: Resource[Any], obj: Any) -> None:
        self.server.create(resource, msgspec.to_builtins(obj))

    def add_replica_set(self, name: str, annotations: Mapping[str, str] | None = None, **spec: Any) -> None:
        """One pod of one GPU, made anew whenever it goes."""
        made = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": _pod(name, annotations, **spec)}
        self.server.apply_manifest(
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": made}
        )

    def add_job(self, name: str, size: int, annotations: Mapping[str, str]) -> None:
        """A gang of pods of one GPU, each made anew whenever it goes."""
        sizes = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
        template = _pod(name, annotations, restartPolicy="Never")
        meta = {"name": name, "annotations": dict(annotations)}
        self.server.apply_manifest(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**sizes, "template": template}}
        )

    def add_gang(self, name: str, size: int) -> None:
        """Pods of whole nodes that have to be in one leaf."""
        meta = model.ObjectMeta(name=name, namespace="default")
        self.create(SCHEDULER_PLUGINS_POD_GROUPS, model.PodGroup(meta, model.PodGroupSpec(min_member=size)))
        for n in range(size):
            labels, notes = {GROUP: name}, {REQUIRED: "leaf"}
            pod = make_pod(f"{name}-{n}", gpus=8, labels=labels, annotations=notes, scheduler_name="gangs")
            self.create(PODS, pod)

    def add_budget(self, name: str, allowed: int) -> None:
        """A disruption budget for the pod of a ReplicaSet."""
        self.create(
            PDBS,
            model.PodDisruptionBudget(
                metadata=model.ObjectMeta(name=name, namespace="default"),
                spec=model.PodDisruptionBudgetSpec(selector=model.LabelSelector(match_labels={"app": name})),
                status=model.PodDisruptionBudgetStatus(disruptions_allowed=allowed),
            ),
        )

    def nodes(self, prefix: str) -> dict[str, str]:
        """Pod name to node, of those that have one and are there to stay."""
        pods = [msgspec.convert(each.data, model.Pod) for each in self.server.list(PODS)]
        return {
            pod.metadata.name: pod.spec.node_name
            for pod in pods
            if pod.metadata.name.startswith(prefix) and pod.spec.node_name and not pod.metadata.deletion_timestamp
        }

    def notes(self) -> list[str]:
        """What events say."""
        return [each.data["note"] for each in self.server.list(EVENTS)]

    def records(self) -> int:
        """How many records of moves there are."""
        return len(self.server.list(CONFIG_MAPS))

    async def fragment(self, pods: int = 8) -> None:
        """Pods that run one on each node, and a gang that wants a leaf."""
        for n in range(pods):
            self.add_replica_set(f"small-{n}")
        await self.until(lambda: len(self.nodes("small")) == pods)
        self.add_gang("big", 4)

    async def plan(self, wish: Wish = WISH) -> Found:
        """What `gangline defrag plan` finds."""
        return find(await judge(self.client, self.config, self.clock), wish)

    async def apply(self, found: Found) -> None:
        """What `gangline defrag apply` does with it."""
        record = record_of(found.plan, found.handle.nodes, "record-1", 0.0)
        await Applying(self.client, self.clock, found.args, self.said.append).carry_out(found.plan, record)

    async def until(self, condition: Callable[[], bool], seconds: float = 300.0) -> None:
        async with asyncio.timeout(seconds):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.05)

    def play(self, story: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        return run(self._play(story), self.clock)

    async def _play(self, story: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        scheduler = Scheduler(self.config, self.client, self.clock, Catalog.discover(), Options(seed=0))
        parts = (scheduler.run(), Kubelet(self.server, self.clock).run(), Workloads(self.server).run())
        tasks = [asyncio.create_task(part) for part in parts]
        try:
            return await story()
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task


def _pod(name: str, annotations: Mapping[str, str] | None, **spec: Any) -> dict[str, Any]:
    """The template of pods of one GPU."""
    requests = {"requests": {"nvidia.com/gpu": 1, "cpu": 1}}
    container = {"name": "main", "image": "main:1", "resources": requests}
    metadata = {"labels": {"app": name}, "annotations": dict(annotations or {})}
    return {"metadata": metadata, "spec": {"schedulerName": "gangs", "containers": [container], **spec}}
