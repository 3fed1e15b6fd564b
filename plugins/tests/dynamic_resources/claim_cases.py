"""Nodes with devices, and pods with claims, on a simulated cluster."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from gangline import model, resources
from gangline.simulate import ClaimController, Faults, Kubelet, SimulatedClient, SimulatedCluster, no_faults, running
from gangline.testing import make_node, make_pod
from gangline_plugins.dynamic_resources import DynamicResources

FINALIZER = "resource.kubernetes.io/delete-protection"
DRIVER = "gpu.example.com"
FINALIZER = "resource.kubernetes.io/delete-protection"
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: GangPermit}]}}
"""


def exactly(count: int = 1, **more: Any) -> model.DeviceRequest:
    more.setdefault("allocation_mode", "ExactCount")
    return model.DeviceRequest("gpu", model.ExactDeviceRequest("gpu", count=count, **more))


def spec(*requests: model.DeviceRequest) -> model.ResourceClaimSpec:
    return model.ResourceClaimSpec(model.DeviceClaim(list(requests or (exactly(),))))


class Cluster:
    """A cluster with a class of devices, claim controller and kubelets."""

    profile = PROFILE

    def __init__(self, **devices: int) -> None:
        self.simulated = SimulatedCluster()
        selector = model.DeviceSelector(model.CelDeviceSelector(f'device.driver == "{DRIVER}"'))
        self.simulated.create(
            resources.DEVICE_CLASSES, model.DeviceClass(model.ObjectMeta("gpu"), model.DeviceClassSpec([selector]))
        )
        for name, count in devices.items():
            self.simulated.create(resources.NODES, make_node(name))
            self.offer(name, *(model.Device(f"gpu-{number}") for number in range(count)))

    def offer(self, node: str, *devices: model.Device) -> None:
        """The driver offers the devices of a node."""
        pool = model.ResourcePool(node, 1, 1)
        made = model.ResourceSliceSpec(driver=DRIVER, pool=pool, node_name=node, devices=list(devices))
        self.simulated.create(resources.RESOURCE_SLICES, model.ResourceSlice(model.ObjectMeta(f"{node}-slice"), made))

    def template(self, name: str, *requests: model.DeviceRequest) -> None:
        made = model.ResourceClaimTemplateSpec(spec=spec(*requests))
        self.simulated.create(
            resources.RESOURCE_CLAIM_TEMPLATES, model.ResourceClaimTemplate(model.ObjectMeta(name, "default"), made)
        )

    def claim(self, name: str, *requests: model.DeviceRequest, allocated_on: str = "") -> None:
        """A claim; with a node, somebody has given it the first device there, and nobody uses it."""
        metadata, status = model.ObjectMeta(name, "default"), model.ResourceClaimStatus()
        if allocated_on:
            metadata.finalizers = [FINALIZER]
            only = model.Requirement("metadata.name", "In", [allocated_on])
            status.allocation = model.ResourceClaimAllocation(
                model.AllocatedDevices([model.AllocatedDevice(DRIVER, allocated_on, "gpu-0", request="gpu")]),
                model.NodeSelector([model.NodeSelectorTerm(match_fields=[only])]),
            )
        self.simulated.create(resources.RESOURCE_CLAIMS, model.ResourceClaim(metadata, spec(*requests), status))

    def pod(self, name: str, template: str = "", claim: str = "", **more: Any) -> None:
        entry = model.PodResourceClaim("gpu", claim or None, template or None)
        self.simulated.create(resources.PODS, make_pod(name, resource_claims=[entry], **more))

    def claims(self) -> dict[str, model.ResourceClaim]:
        return {each.metadata.name: each for each in self.simulated.list(resources.RESOURCE_CLAIMS)}

    def given(self) -> list[tuple[str, str]]:
        """Pool and name of each device that a claim has."""
        return [(each.pool, each.device) for claim in self.claims().values() for each in claim.status.results]

    def check(self) -> None:
        """No device is in two claims, and each claim with devices is reserved for pods that are there."""
        assert all(number == 1 for number in Counter(self.given()).values())
        uids = {pod.metadata.uid for pod in self.simulated.list(resources.PODS)}
        for claim in self.claims().values():
            consumers = {each.uid for each in claim.status.reserved_for}
            assert bool(consumers) == (claim.status.allocation is not None)
            assert consumers <= uids

    def play(
        self,
        story: Callable[[], Coroutine[Any, Any, None]],
        client: SimulatedClient | None = None,
        schedules: bool = True,
    ) -> None:
        """A story while schedulers run."""

        async def whole() -> None:
            server = self.simulated.server
            async with running(ClaimController(server).run(), Kubelet(server, self.simulated.clock).run()):
                if not schedules:
                    await story()
                    return
                async with self.simulated.scheduling(self.profile, client, plugins=[DynamicResources]):
                    await story()

        self.simulated.play(whole)

    def scheduling(
        self,
        faults: Faults = no_faults,
        name: str = "default-scheduler",
        client: SimulatedClient | None = None,
        seed: int = 0,
    ) -> AbstractAsyncContextManager[Any]:
        """One more scheduler."""
        client = client or SimulatedClient(self.simulated.server, faults=faults)
        profile = self.profile.replace("default-scheduler", name)
        return self.simulated.scheduling(profile, client, plugins=[DynamicResources], seed=seed)

    async def bound(self, *names: str) -> None:
        await self.simulated.until(lambda: set(names) <= self.simulated.bound().keys())

    async def told(self, pod: str, text: str) -> None:
        await self.simulated.until(lambda: text in self.simulated.message(pod))

    async def settle(self) -> None:
        await asyncio.sleep(5.0)  # in virtual time
