"""Where each kind of object lives on the API server, and the struct that it is decoded into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from gangline import model, wire
from gangline.model import HasMetadata

T = TypeVar("T", bound=HasMetadata)


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind: its group (empty for core), version, plural and the struct for its objects."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """What stands in apiVersion, such as ``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, of one object, or of a part of one object.

        Without a namespace it is the collection over all namespaces.
        """
        parts = [group_path(self.group, self.version)]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{quote(namespace, safe='')}")
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


@dataclass(frozen=True, slots=True)
class Selection(Generic[T]):
    """Some objects of one kind: those in a namespace, those with certain labels, or both; empty means all."""

    resource: Resource[T]
    namespace: str = ""
    label_selector: str = ""


def group_path(group: str, version: str) -> str:
    """The URL path of a group and version: ``/api/v1`` or ``/apis/GROUP/VERSION``."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


PODS = Resource("", "v1", "pods", "Pod", model.Pod)
NODES = Resource("", "v1", "nodes", "Node", model.Node, namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", model.Namespace, namespaced=False)
SERVICES = Resource("", "v1", "services", "Service", model.Service)
REPLICATION_CONTROLLERS = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController", model.ReplicationController
)
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet", model.ReplicaSet)
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet", model.StatefulSet)
JOBS = Resource("batch", "v1", "jobs", "Job", model.Job)
PVCS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", model.PersistentVolumeClaim)
PVS = Resource("", "v1", "persistentvolumes", "PersistentVolume", model.PersistentVolume, namespaced=False)
STORAGE_CLASSES = Resource(
    "storage.k8s.io", "v1", "storageclasses", "StorageClass", model.StorageClass, namespaced=False
)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", model.CSINode, namespaced=False)
CSI_DRIVERS = Resource("storage.k8s.io", "v1", "csidrivers", "CSIDriver", model.CSIDriver, namespaced=False)
CSI_STORAGE_CAPACITIES = Resource(
    "storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", model.CSIStorageCapacity
)
VOLUME_ATTACHMENTS = Resource(
    "storage.k8s.io",
    "v1",
    "volumeattachments",
    "VolumeAttachment",
    model.VolumeAttachment,
    namespaced=False,
)
PDBS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", model.PodDisruptionBudget)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
    model.PriorityClass,
    namespaced=False,
)
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease", model.Lease)
EVENTS = Resource("events.k8s.io", "v1", "events", "Event", model.Event)
GPU_CLAIMS = Resource(wire.GPU_GROUP, wire.GPU_VERSION, "gpuclaims", "GpuClaim", wire.GpuClaim)
GPU_NODE_STATUSES = Resource(
    wire.GPU_GROUP, wire.GPU_VERSION, "gpunodestatuses", "GpuNodeStatus", wire.GpuNodeStatus, namespaced=False
)

STORED: tuple[Resource[Any], ...] = (
    NAMESPACES,
    SERVICES,
    REPLICATION_CONTROLLERS,
    REPLICA_SETS,
    STATEFUL_SETS,
    PVCS,
    PVS,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CSI_STORAGE_CAPACITIES,
    VOLUME_ATTACHMENTS,
    PDBS,
)
"""What the scheduler watches besides pods and nodes and keeps as it is."""
