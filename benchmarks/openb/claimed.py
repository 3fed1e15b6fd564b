"""The trace as ResourceClaims: nodes offer their GPUs in ResourceSlices, and each pod has a claim of its own.

Each GPU may be shared, and has 1,000 thousandths. A pod asks for the thousandths of each of its GPUs: 1,000 for whole
ones, so that pods with a part and pods with whole GPUs share the devices of a node as they do in the trace.
"""

from __future__ import annotations

from gangline import model
from gangline.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.replay.trace import TraceNode
from gangline.state.cache import Cache
from gangline_plugins.gpu.node_devices import WHOLE
from openb.trace import TracePod

DRIVER = "gpu.example.com"
_CLASS = "gpu"
_SHARE = "share"
"""The name of the capacity of a device of which pods take a part."""


def offer(cache: Cache, node: TraceNode) -> None:
    """The driver of a node offers its GPUs."""
    capacity = {_SHARE: model.DeviceCapacity(f"{WHOLE}")}
    devices = [
        model.Device(f"gpu-{number}", capacity=capacity, allow_multiple_allocations=True) for number in range(node.gpus)
    ]
    spec = model.ResourceSliceSpec(DRIVER, model.ResourcePool(node.name, 1, 1), node.name, devices=devices)
    cache.store(RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(node.name), spec))


def offer_class(cache: Cache) -> None:
    """The class that all claims name."""
    cache.store(DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta(_CLASS)))


def claim(cache: Cache, pod: model.Pod, asks: TracePod) -> None:
    """Make the claim of a pod."""
    metadata = model.ObjectMeta(
        pod.metadata.name,
        pod.metadata.namespace,
        f"claim-{pod.metadata.uid}",
        owner_references=[model.OwnerReference("Pod", pod.metadata.name, pod.metadata.uid, "v1", controller=True)],
    )
    capacity = model.CapacityRequirements({_SHARE: f"{asks.milli}"})
    exactly = model.ExactDeviceRequest(_CLASS, allocation_mode="ExactCount", count=asks.gpus, capacity=capacity)
    spec = model.ResourceClaimSpec(model.DeviceClaim([model.DeviceRequest("gpu", exactly)]))
    cache.store(RESOURCE_CLAIMS).upsert(model.ResourceClaim(metadata, spec))
    pod.spec.resource_claims = [model.PodResourceClaim("gpu", pod.metadata.name)]
