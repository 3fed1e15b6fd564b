"""What Gangline's components say to each other: annotations, labels, resource names and the types of our own CRDs.

The scheduler, the agent and the webhook share this module and the API client, and nothing else.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gangline.model import Object, ObjectMeta, PodCondition

# Annotations and labels

CLAIM = "gpu.scheduling/claim"
"""On a pod: the GpuClaim in its namespace that it uses."""
ALLOCATED = "gpu.scheduling/allocated"
"""On a bound pod: the ids of its devices, "0,1". The scheduler writes them in the same request as the node; the
downward API reads them."""
ALLOCATED_UUIDS = "gpu.scheduling/allocated-uuids"
"""On a bound pod: the UUIDs of its devices, in the order of the ids."""
SCHEDULING_MAP = "gpu-scheduling-map"
"""On a pod: lines INDEX=NODE:DEVICES with the node and the devices of each pod of a workload."""
MANAGED = "gpu.scheduling/managed"
"""On a Lease: "true" if the Lease locks a device."""
CLAIM_TEMPLATE = "gpu.scheduling/claim-template"
"""On a ResourceClaimTemplate: "true" if the scheduler made it for a GpuClaim with a deviceClassName."""
LEASE_POD = "gpu.scheduling/pod"
"""On a Lease: the name of the pod, or a hash of a name with more than 63 characters."""
LEASE_POD_NAMESPACE = "gpu.scheduling/pod-namespace"
"""On a Lease: the namespace of the pod, or a hash of a namespace with more than 63 characters."""
LEASE_NODE = "gpu.scheduling/node"
"""On a Lease: the node of the devices, or a hash of a name with more than 63 characters."""
PROVISIONING = "gangline.dev/provisioning"
"""On a ProvisioningRequest: "true" if the scheduler made it for a gang."""
PROVISIONING_GANG = "gangline.dev/provisioning-gang"
"""On a ProvisioningRequest: the key of the gang for which the scheduler made it."""
PROVISIONING_PROFILE = "gangline.dev/provisioning-profile"
"""On a ProvisioningRequest: the schedulerName of the profile that made it and looks after it."""
PROVISIONING_ATTEMPT = "gangline.dev/provisioning-attempt"
"""On a ProvisioningRequest: its number among the requests for the same gang; the first has 1."""
CONSUMED_REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request"
"""On a pod: the ProvisioningRequest that asks for its room. cluster-autoscaler adds no other nodes for such a pod."""
CONSUMED_CLASS = "autoscaling.x-k8s.io/provisioning-class-name"
"""On a pod: the class of that ProvisioningRequest."""
UNHEALTHY = "gangline.dev/unhealthy"
"""On a device in a ResourceSlice of the agent: the key of the taint of an unhealthy device."""
NODE_ALIAS = "gpu-node-name"
"""On a node: another name for the node in scheduling maps."""
ALLOW = "gangline.dev/allow"
"""On a namespace: the permissions of its pods, for example "min-runtime, scheduling-map"; "*" for all."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
"""On a pod: its index in an indexed Job, written by Kubernetes."""
RANKS = "gangline.dev/ranks"
"""On a pod of an indexed Job: "pods" gives it the variables of PyTorch for one process, "gpus" those for torchrun."""
POD_INDEX = "apps.kubernetes.io/pod-index"
"""On a pod: its index in a StatefulSet, written by Kubernetes."""

# Resources

GPU = "nvidia.com/gpu"
"""As a resource: whole GPUs; on a node that shares its GPUs by time-slicing, replicas of GPUs."""
AMD_GPU = "amd.com/gpu"
"""As a resource: whole GPUs of AMD. Gangline counts them, and AMD's device plugin chooses them."""
SHARED_GPU = "nvidia.com/gpu.shared"
"""As a resource: replicas of shared GPUs, if the device plugin gives them a resource name of their own."""
MIG_PREFIX = "nvidia.com/mig-"
"""As a resource: MIG instances; the profile follows, as in nvidia.com/mig-1g.10gb."""

# Topology (topology.scheduler/v1alpha1)

TOPOLOGY_GROUP, TOPOLOGY_VERSION = "topology.scheduler", "v1alpha1"
TOPOLOGY_API_VERSIONS = (
    f"{TOPOLOGY_GROUP}/{TOPOLOGY_VERSION}",
    f"{TOPOLOGY_GROUP}.k8s.io/{TOPOLOGY_VERSION}",
)
"""Values of apiVersion that a document may have; objects on the API server have the first one."""

# GpuClaim (gpu.scheduling/v1, namespaced, gclaim)

GPU_GROUP, GPU_VERSION = "gpu.scheduling", "v1"


class ClaimSelector(Object):
    """Which nodes may serve a claim."""

    match_labels: dict[str, str] | None = None


class ClaimDevices(Object):
    """Number of devices, the choice among them, and whether pods may share them."""

    count: int = 1
    policy: Literal["contiguous", "spread", "preferIds"] = "contiguous"
    prefer_ids: list[int] = []
    exclusivity: Literal["Exclusive", "Shared", "MIG"] = "Exclusive"
    memory_gi_b: int | None = msgspec.field(default=None, name="memoryGiB")
    """Shared: memory of each device, in GiB."""
    fraction: float | None = None
    """Shared: part of each device, 0.01-1.0."""
    mig_profile: str = ""
    """MIG: the profile of an instance, like 1g.10gb."""


class ClaimTopology(Object):
    """The links that the devices need between each other."""

    mode: Literal["Required", "Preferred", "Ignore"] = "Preferred"
    min_bandwidth_gbps: int = msgspec.field(default=0, name="minBandwidthGBps")
    """GB/s between any two devices of the claim."""
    link_attribute: str = ""
    """With a DeviceClass: the attribute, DOMAIN/NAME, whose value linked devices have in common."""


class ClaimNetwork(Object):
    """What the pod needs of the node's fabric."""

    rdma_required: bool = False
    min_ports: int = 0
    preferred_hcas: list[str] = []


class ClaimStorage(Object):
    """What the pod needs of GPUDirect Storage."""

    cu_file: Literal["", "Required", "Preferred"] = ""


class GpuClaimSpec(Object):
    """spec of a GpuClaim."""

    devices: ClaimDevices = msgspec.field(default_factory=ClaimDevices)
    selector: ClaimSelector | None = None
    topology: ClaimTopology = msgspec.field(default_factory=ClaimTopology)
    gang_ref: str = ""
    network: ClaimNetwork | None = None
    storage: ClaimStorage | None = None
    device_class_name: str = ""
    """The DeviceClass whose devices carry the claim out, as a ResourceClaim; "" for devices that agents report."""


class GpuClaimStatus(Object):
    """status of a GpuClaim. If several pods use the claim, it shows the newest allocation."""

    phase: str = ""
    """Pending, Reserved, Bound or Failed."""
    node_name: str = ""
    gpu_ids: list[int] = []
    allocated: str = ""
    """NODE:ID,ID, or NODE:DEVICE,DEVICE with the names of devices of a DeviceClass."""
    message: str = ""


class GpuClaim(Object):
    """A claim says which GPUs a pod needs."""

    metadata: ObjectMeta
    spec: GpuClaimSpec = msgspec.field(default_factory=GpuClaimSpec)
    status: GpuClaimStatus = msgspec.field(default_factory=GpuClaimStatus)
    api_version: str = f"{GPU_GROUP}/{GPU_VERSION}"
    kind: str = "GpuClaim"


# GpuNodeStatus (gpu.scheduling/v1, cluster scope, gns)


class DeviceLink(Object):
    """A link from one device to a peer."""

    peer: int
    kind: Literal["NVLINK", "PIX", "PXB", "PHB", "NODE", "SYS"] = "SYS"
    gbps: float = msgspec.field(default=0.0, name="bandwidthGBps")


class MigDevice(Object):
    """A MIG instance of a device."""

    uuid: str = ""
    profile: str = ""
    memory_mi_b: int = msgspec.field(default=0, name="memoryMiB")


class GpuDevice(Object):
    """One GPU of a node."""

    id: int
    uuid: str = ""
    model: str = ""
    memory_mi_b: int = msgspec.field(default=0, name="memoryMiB")
    health: Literal["Healthy", "Unhealthy", "Unknown"] = "Unknown"
    reason: str = ""
    """Why the device is not healthy."""
    bandwidth_gbps: int = msgspec.field(default=0, name="bandwidthGBps")
    """Bandwidth of its NVLinks in GB/s."""
    island: str = ""
    """Devices with the same island are linked by NVLink."""
    numa_node: int = -1
    links: list[DeviceLink] = []
    mig_devices: list[MigDevice] = []
    in_use_by: list[str] = []
    """UIDs of the pods that use the device."""


class Hca(Object):
    """An RDMA adapter."""

    name: str
    model: str = ""
    ports: int = 1
    gbps: int = msgspec.field(default=0, name="linkGbps")
    state: str = ""
    numa_node: int = -1
    gpu_direct: bool = False


class Fabric(Object):
    """Connections of the node to other nodes and to storage."""

    clique: str = ""
    """NVLink clique: CLUSTER-UUID.CLIQUE-ID."""
    hcas: list[Hca] = []
    cu_file_enabled: bool = False
    gds_version: str = ""
    nvme_peers: list[str] = []


class GpuNodeStatusSpec(Object):
    """spec of a GpuNodeStatus."""

    node_name: str = ""


class GpuNodeStatusStatus(Object):
    """status of a GpuNodeStatus."""

    total: int = 0
    healthy: int = 0
    """Devices that are healthy."""
    used: int = 0
    """Devices that pods use, as far as the agent knows."""
    free: int = 0
    """Healthy devices that no pod uses, as far as the agent knows."""
    devices: list[GpuDevice] = []
    fabric: Fabric | None = None
    driver_version: str = ""
    heartbeat_time: str = ""
    conditions: list[PodCondition] = []


class GpuNodeStatus(Object):
    """The GPUs of a node as its agent reports them. The object has the name of the node."""

    metadata: ObjectMeta
    spec: GpuNodeStatusSpec = msgspec.field(default_factory=GpuNodeStatusSpec)
    status: GpuNodeStatusStatus = msgspec.field(default_factory=GpuNodeStatusStatus)
    api_version: str = f"{GPU_GROUP}/{GPU_VERSION}"
    kind: str = "GpuNodeStatus"
