"""A simulated cluster on which ResourceClaims carry GpuClaims out, beside nodes whose GPUs agents report."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from gangline import custom_resources, model, resources
from gangline.simulate import ClaimController, Faults, Kubelet, SimulatedClient, SimulatedCluster, no_faults, running
from gangline.testing import make_node, make_pod
from gangline_plugins.dynamic_resources import DynamicResources
from gangline_plugins.gpu.claim import GpuClaim as GpuClaimPlugin
from gangline_plugins.gpu.leases.plugin import DeviceLease

from .gpu_cases import claim, report

DRIVER = "gpu.example.com"
CLASS = "gpu.example.com"
ISLAND = f"{DRIVER}/island"
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins: {multiPoint: {enabled: [{name: GangPermit}, {name: GpuClaim}, {name: DeviceLease}]%s}}
"""
_ONE = PROFILE.partition("- schedulerName")[2] % ""
TWO_PROFILES = PROFILE.partition("- schedulerName")[0] + "".join(
    f"- schedulerName{_ONE.replace('default-scheduler', f'scheduler-{number}')}" for number in range(2)
)
PLUGINS = [DynamicResources, GpuClaimPlugin, DeviceLease]
WITH_CLAIMS, WITHOUT = PROFILE % "", PROFILE % ", disabled: [{name: DynamicResources}]"


def carried(
    name: str = "claim", device_class: str = CLASS, links: str = "", **fields: Any
) -> custom_resources.GpuClaim:
    """A GpuClaim that names a DeviceClass."""
    made = claim(name, **fields)
    spec = msgspec.structs.replace(made.spec, device_class_name=device_class)
    spec.topology = msgspec.structs.replace(spec.topology, link_attribute=links)
    return msgspec.structs.replace(made, spec=spec)


class CarryingCluster:
    """Nodes with devices of a driver, nodes with reports, the claim controller and kubelets."""

    def __init__(self, reported: int = 0, **devices: int) -> None:
        self.simulated = SimulatedCluster()
        selector = model.DeviceSelector(model.CelDeviceSelector(f'device.driver == "{DRIVER}"'))
        self.simulated.create(
            resources.DEVICE_CLASSES, model.DeviceClass(model.ObjectMeta(CLASS), model.DeviceClassSpec([selector]))
        )
        for name, count in devices.items():
            self.simulated.create(resources.NODES, make_node(name, gpus=0, labels={"kind": name}))
            self.offer(name, *(self.device(number) for number in range(count)))
        for name in (f"reported-{number}" for number in range(reported)):
            self.simulated.create(resources.NODES, make_node(name))
            self.simulated.create(resources.GPU_NODE_STATUSES, report(name))

    def device(self, number: int, **attributes: str) -> model.Device:
        """A device; two neighbours are one island."""
        said = {"type": "gpu", "island": f"island-{number // 2}", **attributes}
        return model.Device(f"gpu-{number}", {key: model.DeviceAttribute(string=value) for key, value in said.items()})

    def offer(self, node: str, *devices: model.Device) -> None:
        pool = model.ResourcePool(node, 1, 1)
        made = model.ResourceSliceSpec(driver=DRIVER, pool=pool, node_name=node, devices=list(devices))
        self.simulated.create(resources.RESOURCE_SLICES, model.ResourceSlice(model.ObjectMeta(f"{node}-slice"), made))

    def add(self, *claims: custom_resources.GpuClaim) -> None:
        self.simulated.create(resources.GPU_CLAIMS, *claims)

    def pod(self, name: str, uses: str = "claim", annotations: dict[str, str] | None = None, **more: Any) -> None:
        self.simulated.create(
            resources.PODS, make_pod(name, annotations={custom_resources.CLAIM: uses, **(annotations or {})}, **more)
        )

    def claim(self, name: str = "claim") -> custom_resources.GpuClaim:
        return self.simulated.get(resources.GPU_CLAIMS, name, "default")

    def templates(self) -> dict[str, model.ResourceClaimTemplate]:
        return {each.metadata.name: each for each in self.simulated.list(resources.RESOURCE_CLAIM_TEMPLATES)}

    def given(self) -> list[tuple[str, str]]:
        """Pool and name of each device that a ResourceClaim has."""
        claims = self.simulated.list(resources.RESOURCE_CLAIMS)
        return sorted((each.pool, each.device) for claim in claims for each in claim.status.results)

    def check(self) -> None:
        """No device is in two claims, and no pod has devices of both kinds."""
        assert all(number == 1 for number in Counter(self.given()).values())
        for pod in self.simulated.list(resources.PODS):
            has_claim, annotations = bool(pod.spec.resource_claims), pod.metadata.annotations or {}
            assert not (has_claim and custom_resources.ALLOCATED in annotations)

    def leases(self) -> list[str]:
        return [
            each.metadata.name
            for each in self.simulated.list(resources.LEASES)
            if each.metadata.name.startswith("gpu-")
        ]

    def play(
        self,
        story: Callable[[], Coroutine[Any, Any, None]],
        faults: Faults = no_faults,
        profile: str = WITH_CLAIMS,
    ) -> None:
        """A story while a scheduler runs."""

        async def whole() -> None:
            server = self.simulated.server
            client = SimulatedClient(server, faults=faults)
            async with (
                running(ClaimController(server).run(), Kubelet(server, self.simulated.clock).run()),
                self.simulated.scheduling(profile, client, plugins=PLUGINS),
            ):
                await story()

        self.simulated.play(whole)

    async def bound(self, *names: str) -> None:
        await self.simulated.until(lambda: set(names) <= self.simulated.bound().keys())

    async def told(self, pod: str, text: str) -> None:
        await self.simulated.until(lambda: text in self.simulated.message(pod))

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)  # in virtual time
