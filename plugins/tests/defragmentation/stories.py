"""A fragmented cluster on the in-memory API server, with a scheduler, controllers and kubelets, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from gangline import model, resources
from gangline.command_line import Connection, judge
from gangline.simulate import Faults, Kubelet, SimulatedClient, Workloads, no_faults, running
from gangline.testing.configured import configuration
from gangline.testing.gang_stories import PROFILE, GangCluster, profile_with
from gangline_plugins.defragmentation.applying import Applying
from gangline_plugins.defragmentation.command import Found, Wish, find
from gangline_plugins.defragmentation.record import record_of

Result = TypeVar("Result")
WISH = Wish((), None, Connection(), None, None, None, "leaf", None)


class Story(GangCluster):
    """Two leaves of four nodes with eight GPUs each, every node with a pod of one GPU from a ReplicaSet of its own."""

    def __init__(self, keeps: bool = True, faults: Faults = no_faults, **args: Any) -> None:
        super().__init__()
        self.profile = profile_with("Defragmentation", **args) if keeps else PROFILE
        self.client = SimulatedClient(self.server, latency={"bind": 0.01}, faults=faults)
        self.said: list[str] = []

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

    def add_budget(self, name: str, allowed: int) -> None:
        """A disruption budget for the pod of a ReplicaSet."""
        self.create(
            resources.PDBS,
            model.PodDisruptionBudget(
                metadata=model.ObjectMeta(name=name, namespace="default"),
                spec=model.PodDisruptionBudgetSpec(selector=model.LabelSelector(match_labels={"app": name})),
                status=model.PodDisruptionBudgetStatus(disruptions_allowed=allowed),
            ),
        )

    def records(self) -> int:
        """How many records of moves there are."""
        return len(self.list(resources.CONFIG_MAPS))

    async def fragment(self, pods: int = 8) -> None:
        """Pods that run one on each node, and a gang that wants a leaf."""
        for n in range(pods):
            self.add_replica_set(f"small-{n}")
        await self.until(lambda: len(self.bound("small")) == pods)
        self.add_gang("big", 4)

    async def plan(self, wish: Wish = WISH) -> Found:
        """What `gangline defrag plan` finds."""
        return find(await judge(self.client, configuration(self.profile), self.clock), wish, "the cluster of the story")

    async def apply(self, found: Found) -> None:
        """What `gangline defrag apply` does with it."""
        record = record_of(found.plan, found.handle.nodes, "record-1", 0.0)
        await Applying(self.client, self.clock, found.args, self.said.append).carry_out(found.plan, record)

    def play(self, story: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        async def whole() -> Result:
            parts = (Kubelet(self.server, self.clock).run(), Workloads(self.server).run())
            async with self.scheduling(self.profile, self.client), running(*parts):
                return await story()

        return super().play(whole)


def _pod(name: str, annotations: Mapping[str, str] | None, **spec: Any) -> dict[str, Any]:
    """The template of pods of one GPU."""
    requests = {"requests": {"cpu": 1}, "limits": {"nvidia.com/gpu": 1}}
    container = {"name": "main", "image": "main:1", "resources": requests}
    metadata = {"labels": {"app": name}, "annotations": dict(annotations or {})}
    return {"metadata": metadata, "spec": {"schedulerName": "gangs", "containers": [container], **spec}}
