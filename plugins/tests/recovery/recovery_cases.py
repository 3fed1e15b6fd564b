"""Gangs on leaves of four nodes whose nodes are lost, with a scheduler, controllers and kubelets, in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import msgspec

from gangline import PatchKind, custom_resources, model, resources, rfc3339
from gangline.simulate import ClaimController, Faults, Kubelet, SimulatedClient, Workloads, no_faults, running
from gangline.testing.configured import configuration
from gangline.testing.gang_stories import ONE_LEAF, GangCluster, profile_with

from ..gpu.gpu_cases import report

DRIVER = "gpu.example.com"
Result = TypeVar("Result")


def gpu_container(gpus: int) -> dict[str, Any]:
    """A container that wants so many GPUs."""
    return {"name": "main", "image": "main:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}


class LossStory(GangCluster):
    """Leaves of four nodes with eight GPUs each, and Jobs whose pods want a node each."""

    def __init__(
        self,
        leaves: int = 2,
        faults: Faults = no_faults,
        more: str = "",
        plugins: Sequence[type[Any]] = (),
        others: Mapping[str, Mapping[str, Any]] | None = None,
        **args: Any,
    ) -> None:
        """`more` names one more plugin, which may be one of `plugins`; `args` are those of Recovery, and `others` those
        of other plugins.
        """
        super().__init__(leaves)
        self._more = more
        self._others = others or {}
        self.configure(**args)
        self._plugins = plugins
        self._life = AsyncExitStack()
        self.client = SimulatedClient(self.server, latency={"bind": 0.01}, faults=faults)

    def configure(self, **args: Any) -> None:
        """Give Recovery these arguments, for the next scheduler."""
        self.profile = profile_with("Recovery", **args)
        if self._more:
            self.profile = self.profile.replace("{name: Recovery}", f"{{name: Recovery}}, {{name: {self._more}}}")
        for name, given in self._others.items():
            entry = msgspec.json.encode({"name": name, "args": given}).decode()
            self.profile = self.profile.replace("pluginConfig: [", f"pluginConfig: [{entry}, ")

    def add_job(self, name: str, size: int, annotations: Mapping[str, str] = ONE_LEAF, **spec: Any) -> None:
        """A gang of pods, each made anew whenever it goes."""
        sizes = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
        template = {
            "metadata": {"labels": {"app": name}, "annotations": dict(annotations)},
            "spec": {"schedulerName": "gangs", "restartPolicy": "Never", "containers": [gpu_container(8)], **spec},
        }
        meta = {"name": name, "annotations": dict(annotations)}
        self.server.apply_manifest(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {**sizes, "template": template}}
        )

    def offer_devices(self, tolerations: Sequence[model.DeviceToleration] = ()) -> None:
        """A driver offers one device on each node; a class and a template for claims of one."""
        selector = model.DeviceSelector(model.CelDeviceSelector(f'device.driver == "{DRIVER}"'))
        self.create(
            resources.DEVICE_CLASSES, model.DeviceClass(model.ObjectMeta("gpu"), model.DeviceClassSpec([selector]))
        )
        for node in self.list(resources.NODES):
            name = node.metadata.name
            pool = model.ResourcePool(name, 1, 1)
            made = model.ResourceSliceSpec(driver=DRIVER, pool=pool, node_name=name, devices=[model.Device("gpu-0")])
            self.create(resources.RESOURCE_SLICES, model.ResourceSlice(model.ObjectMeta(name), made))
        exactly = model.ExactDeviceRequest("gpu", allocation_mode="ExactCount", count=1, tolerations=list(tolerations))
        request = model.DeviceRequest("gpu", exactly)
        template = model.ResourceClaimTemplateSpec(spec=model.ResourceClaimSpec(model.DeviceClaim([request])))
        metadata = model.ObjectMeta("gpu", "default")
        self.create(resources.RESOURCE_CLAIM_TEMPLATES, model.ResourceClaimTemplate(metadata, template))

    def taint_device(
        self, node: str, effect: str = "NoExecute", ago: float = 0.0, key: str = "example.com/broken"
    ) -> None:
        """The driver says that the device of a node is broken, since so many seconds; without an effect it is not."""
        added = rfc3339(self.clock.now() - ago)
        taints = [{"key": key, "effect": effect, "timeAdded": added}] if effect else []
        patch = {"spec": {"devices": [{"name": "gpu-0", "taints": taints}]}}
        self.server.patch(resources.RESOURCE_SLICES, node, patch, kind=PatchKind.MERGE)

    def add_pods_of_one_node(self, name: str, number: int, **spec: Any) -> None:
        """Pods that want a node each, and each on its own."""
        for each in range(number):
            self.add_replica_set(f"{name}-{each}", {"app": f"{name}-{each}"}, **spec)

    def add_replica_set(self, name: str, labels: Mapping[str, str], **of_pod: Any) -> None:
        """One pod that wants a node."""
        template = {
            "metadata": {"labels": dict(labels)},
            "spec": {"schedulerName": "gangs", "containers": [gpu_container(8)], **of_pod},
        }
        spec = {"replicas": 1, "selector": {"matchLabels": dict(labels)}, "template": template}
        self.server.apply_manifest(
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}
        )

    def add_budget(self, app: str, allowed: int = 0, name: str = "") -> None:
        """A disruption budget that lets so many of these pods go; its name is that of the pods by default."""
        self.create(
            resources.PDBS,
            model.PodDisruptionBudget(
                metadata=model.ObjectMeta(name=name or app, namespace="default"),
                spec=model.PodDisruptionBudgetSpec(selector=model.LabelSelector(match_labels={"app": app})),
                status=model.PodDisruptionBudgetStatus(disruptions_allowed=allowed),
            ),
        )

    def fail(self, *nodes: str, status: str = "Unknown") -> None:
        """These nodes are not heard of any more, or are heard of again if the status is True.

        They are tainted as kube-controller-manager does it.
        """
        for name in nodes:
            taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
            taints = [] if status == "True" else [taint]
            self.server.patch(resources.NODES, name, {"spec": {"taints": taints}}, kind=PatchKind.MERGE)
            conditions = [{"type": "Ready", "status": status, "reason": "NodeStatusUnknown"}]
            patch = {"status": {"conditions": conditions}}
            self.server.patch(resources.NODES, name, patch, subresource="status", kind=PatchKind.MERGE)

    def report_gpus(self, *nodes: str, ill: Sequence[int] = (), reason: str = "XID 79") -> None:
        """Agents report the GPUs of these nodes, some of which are ill."""
        for name in nodes:
            found = report(name, health=dict.fromkeys(ill, "Unhealthy"))
            devices = [msgspec.structs.replace(d, reason=reason if d.id in ill else "") for d in found.status.devices]
            status = msgspec.structs.replace(found.status, devices=devices)
            data = msgspec.to_builtins(msgspec.structs.replace(found, status=status))
            self.server.apply(resources.GPU_NODE_STATUSES, name, data, field_manager="agent")
            self.server.apply(resources.GPU_NODE_STATUSES, name, data, field_manager="agent", subresource="status")

    def hold(self, pod: str, *finalizers: str) -> None:
        """Somebody holds a pod by finalizers, or lets it go."""
        patch = {"metadata": {"finalizers": list(finalizers) or None}}
        self.server.patch(resources.PODS, pod, patch, namespace="default", kind=PatchKind.MERGE)

    def told_as(self, reason: str) -> list[str]:
        """What the events with this reason say, those of all pods."""
        return [each.note for each in self.list(resources.EVENTS) if each.reason == reason]

    def cordon(self, node: str, is_cordoned: bool = True) -> None:
        """No more pods come to the node, or they do again."""
        self.server.patch(resources.NODES, node, {"spec": {"unschedulable": is_cordoned}}, kind=PatchKind.MERGE)

    def cordon_leaf(self, leaf: str, is_cordoned: bool = True) -> None:
        """No more pods come to the nodes of a leaf, or they do again."""
        for number in range(4):
            self.cordon(f"{leaf}-n{number}", is_cordoned)

    def delete_pod(self, name: str) -> None:
        """Somebody deletes a pod."""
        self.server.delete(resources.PODS, name, namespace="default")

    def lose(self, *nodes: str) -> None:
        """Delete these nodes."""
        for name in nodes:
            self.server.delete(resources.NODES, name)

    def list_nodes(self) -> Sequence[model.Node]:
        """The nodes that there are."""
        return self.list(resources.NODES)

    def nodes(self, prefix: str) -> list[str]:
        """The nodes of the pods with this prefix, by the names of the pods."""
        return [node for _, node in sorted(self.bound(prefix).items())]

    def node_of(self, prefix: str, number: int) -> str:
        """The node of one of the pods with this prefix."""
        return self.nodes(prefix)[number]

    def leaves_of(self, prefix: str) -> set[str]:
        """The leaves on which pods with this prefix are."""
        return {node.split("-")[0] for node in self.bound(prefix).values()}

    def devices(self, prefix: str) -> list[str]:
        """The GPUs of the pods with this prefix, as their annotations say, by the names of the pods."""
        pods = [pod.metadata for pod in self.list(resources.PODS) if pod.metadata.name.startswith(prefix)]
        return [(each.annotations or {})[custom_resources.ALLOCATED] for each in pods]

    def uids(self, prefix: str) -> set[str]:
        """The UIDs of the pods with this prefix that are on a node and are not being deleted."""
        names = self.bound(prefix)
        return {pod.metadata.uid for pod in self.list(resources.PODS) if pod.metadata.name in names}

    async def moved(self, prefix: str, size: int, leaf: str, seconds: float) -> None:
        """Wait until so many pods with this prefix have a node, and none of them in that leaf."""
        await self.until(lambda: len(self.bound(prefix)) == size and leaf not in self.leaves_of(prefix), seconds)

    async def told(self, words: str, seconds: float = 30.0) -> None:
        """Wait until an event says this."""
        await self.until(lambda: any(words in note for note in self.notes()), seconds)

    async def runs(self, prefix: str, size: int, seconds: float = 60.0) -> float:
        """Wait until so many pods with this prefix have a node."""
        return await self.until(lambda: len(self.bound(prefix)) == size, seconds)

    def recoveries(self) -> dict[str, float]:
        """How many recoveries have ended, by outcome; only outcomes that there were."""
        samples = [sample for metric in self._scheduler.metrics.registry.collect() for sample in metric.samples]
        found = {each.labels["outcome"]: each.value for each in samples if each.name == "gangline_recoveries_total"}
        return {outcome: number for outcome, number in found.items() if number}

    async def stop(self) -> None:
        """The scheduler ends."""
        await self._life.aclose()

    def reload(self) -> None:
        """The scheduler reads its configuration again."""
        self._scheduler.use(configuration(self.profile))

    async def restart(self) -> None:
        """The scheduler ends, and another one begins."""
        await self.stop()
        await self._start()

    async def _start(self) -> None:
        scheduling = self.scheduling(self.profile, self.client, plugins=self._plugins)
        self._scheduler = await self._life.enter_async_context(scheduling)

    def play(self, story: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        async def whole() -> Result:
            controllers = Workloads(self.server).run(), ClaimController(self.server).run()
            parts = (Kubelet(self.server, self.clock).run(), *controllers)
            async with running(*parts), self._life:
                await self._start()
                return await story()

        return super().play(whole)
