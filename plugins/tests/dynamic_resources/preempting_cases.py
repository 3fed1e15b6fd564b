"""Pods with devices on nodes of a cache, pods that preempt them, and what is taken of the devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from gangline import Diagnosis, NodeView, PodInfo, Status, model, resources
from gangline.testing import FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline.testing.deciding import Decision, Rejection, decide
from gangline_plugins.default_preemption import Args, DefaultPreemption
from gangline_plugins.default_preemption.importance import Candidate
from gangline_plugins.dynamic_resources import DynamicResources
from gangline_plugins.dynamic_resources.arguments import DynamicResourcesArgs
from gangline_plugins.dynamic_resources.ledger import ledger

from .claim_cases import DRIVER, exactly, spec

CLASS = model.DeviceClass(model.ObjectMeta("gpu"))
Snapshot = tuple[list[int], dict[Any, int], dict[Any, int], dict[Any, Any], list[int]]


class Bench:
    """Nodes with so many devices each, and the plugins DynamicResources and DefaultPreemption."""

    def __init__(self, *plugins: type[Any], counters: bool = False, **devices: int) -> None:
        self.cache = cluster(make_node(name, gpus=0) for name in devices)
        self.cache.store(resources.DEVICE_CLASSES).upsert(CLASS)
        for name, count in devices.items():
            self.offer(name, count, counters)
        self.handle = FakeHandle(self.cache)
        self.said: list[Candidate | Status] = []
        bench = self

        class Watched(DefaultPreemption):
            """Keeps what was decided."""

            def decide(self, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis) -> Candidate | Status:
                bench.said.append(super().decide(pod, nodes, diagnosis))
                return bench.said[-1]

        args = {"DefaultPreemption": Args(), "DynamicResources": DynamicResourcesArgs()}
        self.runtime = make_runtime(
            self.cache, DynamicResources, *(plugins or (Watched,)), args=args, handle=self.handle
        )
        self.ledger = ledger(self.handle)
        self.version = 0

    def offer(self, node: str, count: int, counters: bool = False, models: str = "") -> None:
        """The driver offers the devices of a node; with counters each consumes half of what the node has in all.

        `models` has a letter for each device.
        """
        pool = model.ResourcePool(node, resource_slice_count=2 if counters else 1)
        devices = [model.Device(f"d{number}") for number in range(count)]
        if counters:
            consumed = [model.DeviceCounterConsumption("all", {"units": model.Counter("1")})]
            devices = [msgspec.structs.replace(each, consumes_counters=consumed) for each in devices]
            shared = model.ResourceSliceSpec(
                DRIVER, pool, node, shared_counters=[model.CounterSet("all", {"units": model.Counter("2")})]
            )
            self.cache.store(resources.RESOURCE_SLICES).upsert(
                model.ResourceSlice(model.ObjectMeta(f"{node}-counters"), shared)
            )
        if models:
            said = [{"model": model.DeviceAttribute(string=each)} for each in models]
            devices = [msgspec.structs.replace(each, attributes=of) for each, of in zip(devices, said, strict=True)]
        made = model.ResourceSliceSpec(DRIVER, pool, node, devices=devices)
        self.cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(f"{node}-slice"), made))

    def contradict(self, node: str) -> None:
        """A driver offers the same device of a node in two slices of one more pool."""
        spec = model.ResourceSliceSpec(
            DRIVER, model.ResourcePool("broken", resource_slice_count=2), node, devices=[model.Device("d")]
        )
        for name in ("broken-1", "broken-2"):
            self.cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(name), spec))

    # Claims

    def claim(
        self,
        name: str,
        node: str = "",
        devices: Iterable[int] = (),
        users: Iterable[str] = (),
        owner: str = "",
        **of: Any,
    ) -> model.ResourceClaim:
        """A claim, with these devices of the node and reserved for these pods."""
        self.version += 1
        metadata = model.ObjectMeta(name, "default", f"claim-{name}", resource_version=str(self.version))
        if owner:
            reference = model.OwnerReference("Pod", owner, f"pod-default-{owner}", "v1", controller=True)
            metadata.owner_references = [reference]
        numbers = list(devices)
        status = model.ResourceClaimStatus()
        if numbers:
            only = model.Requirement("metadata.name", "In", [node])
            status.allocation = model.ResourceClaimAllocation(
                model.AllocatedDevices(
                    [model.AllocatedDevice(DRIVER, node, f"d{each}", request="gpu") for each in numbers]
                ),
                model.NodeSelector([model.NodeSelectorTerm(match_fields=[only])]),
            )
            status.reserved_for = [
                model.ResourceClaimConsumerReference(resource="pods", name=each, uid=f"pod-default-{each}")
                for each in users
            ]
        made = model.ResourceClaim(metadata, spec(exactly(**{"count": len(numbers) or 1, **of})), status)
        self.cache.store(resources.RESOURCE_CLAIMS).upsert(made)
        return made

    def freed(self, name: str) -> None:
        """The controller has taken the devices from a claim."""
        claim = self.cache.store(resources.RESOURCE_CLAIMS).get(name, "default")
        assert claim is not None
        self.version += 1
        metadata = msgspec.structs.replace(claim.metadata, resource_version=str(self.version))
        bare = msgspec.structs.replace(claim, metadata=metadata, status=model.ResourceClaimStatus())
        self.cache.store(resources.RESOURCE_CLAIMS).upsert(bare)

    # Pods

    def run(self, name: str, node: str, claims: Sequence[str], priority: int = 0, gone: bool = False) -> PodInfo:
        """A pod on a node that uses these claims; `gone` when it is being deleted."""
        made = self.pod_with(name, claims, node=node, priority=priority)
        made.metadata.deletion_timestamp = "1970-01-01T00:00:00Z" if gone else None
        record = self.cache.record(made)
        self.cache.upsert_pod(record)
        return record

    def pod_with(self, name: str, claims: Sequence[str], **of: Any) -> model.Pod:
        """A pod that names these claims."""
        entries = [model.PodResourceClaim(f"c{number}", each) for number, each in enumerate(claims)]
        return make_pod(name, resource_claims=entries, **of)

    def holder(self, name: str, node: str, devices: Iterable[int], priority: int = 0, gone: bool = False) -> PodInfo:
        """A pod with a claim of its own that has these devices."""
        self.claim(name, node, devices, [name], owner=name)
        return self.run(name, node, [name], priority, gone)

    def waiting(self, name: str = "new", count: int = 1, priority: int = 10, **of: Any) -> PodInfo:
        """A pod that waits for so many devices, with a claim of its own from a template."""
        self.claim(name, owner=name, count=count, **of)
        entry = model.PodResourceClaim("gpu", resource_claim_template_name="any")
        made = make_pod(name, priority=priority, resource_claims=[entry])
        made.status.resource_claim_statuses = [model.PodResourceClaimStatus("gpu", name)]
        return self.cache.record(made)

    def nominate(self, pod: PodInfo, node: str) -> None:
        """Room is made for the pod on a node."""
        self.handle.fake_pending.nominations = {node: {pod.uid: pod}}

    # Decisions

    def decide(self, pod: PodInfo) -> Decision | Rejection:
        """One cycle."""
        return decide(self.runtime, pod)

    def preempt(self, pod: PodInfo) -> tuple[str, list[str]] | str:
        """The node and the victims that are chosen for a pod, or why there are none."""
        rejected = self.decide(pod)
        assert isinstance(rejected, Rejection) and not rejected.is_error, rejected
        said = self.said[-1]
        if isinstance(said, Status):
            assert not self.handle.background.spawned
            return said.message
        return said.node, sorted(each.name for each in said.victims)

    def devices(self) -> Snapshot:
        """What is taken of the devices: states by row, what claims have, and what is left of counters."""
        standing = self.ledger.devices._current()[0]
        usage = standing.usage
        left = [amount for placed in standing.table.placed for amount in standing.left(placed).values()]
        return standing.states.tolist(), dict(usage.taken), dict(usage.shared), dict(usage.consumed), left
