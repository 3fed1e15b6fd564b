"""The path of each kind of object on the API server, and the struct for its objects."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec

from gangline import model
from gangline.kube import upgrading
from gangline.kube.upgrading import Upgrade
from gangline.model import HasMetadata
from gangline.wire import custom_resources as wire

T = TypeVar("T", bound=HasMetadata)
_NEEDS_NO_QUOTING = re.compile(r"[A-Za-z0-9_.~-]*").fullmatch


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind: its group (empty for core), version, plural and the struct for its objects."""

    group: str
    version: str
    plural: str
    kind: str
    type: type[T]
    namespaced: bool = True
    key: str = ""
    """The name of the kind's store and of its events: the plural, unless kinds of several groups share the plural."""
    metadata_only: bool = False
    """Whether the API server sends only the metadata of the objects."""
    older: tuple[Resource[T], ...] = field(default=(), compare=False)
    """The kind in older versions, newest first, for servers that do not have this version."""
    gate: str = field(default="", compare=False)
    """The feature gate of Kubernetes without which the API server does not serve the kind, though it knows it."""
    is_stored: bool = field(default=True, compare=False)
    """Whether objects that are created are kept; those of a review are questions, which are answered without a name."""
    upgrade: Upgrade | None = field(default=None, compare=False)
    """For an older version: turns the data of one object into data of the newest version."""

    head: bytes = field(init=False, compare=False, repr=False)
    """How the JSON of each object begins: with its apiVersion and kind."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.plural)
        head = f'{{"apiVersion":"{self.api_version}","kind":"{self.kind}"'
        object.__setattr__(self, "head", head.encode())

    @property
    def api_version(self) -> str:
        """The apiVersion of the objects, such as ``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of the collection, of one object, or of a part of one object.

        Without a namespace it is the collection over all namespaces.
        """
        path = _collection(self.group, self.version, self.plural, (self.namespaced and namespace) or "")
        if name:
            path = f"{path}/{_quoted(name)}"
        return f"{path}/{subresource}" if subresource else path


class Selection(msgspec.Struct, Generic[T], frozen=True):
    """Some objects of one kind: those in a namespace, with certain labels or fields; empty means all."""

    resource: Resource[T]
    namespace: str = ""
    label_selector: str = ""
    field_selector: str = ""
    is_needed: bool = True
    """Whether the scheduler waits until the objects are listed. If not, a user without the right to list has none."""


def _quoted(text: str) -> str:
    """The text as a part of a path. Names of Kubernetes need no quoting, and to see that takes a tenth of the time."""
    return text if _NEEDS_NO_QUOTING(text) else quote(text, safe="")


@lru_cache(maxsize=1024)
def _collection(group: str, version: str, plural: str, namespace: str) -> str:
    """The URL path of the objects in a namespace, or of all objects without one."""
    inside = f"/namespaces/{_quoted(namespace)}" if namespace else ""
    return f"{group_path(group, version)}{inside}/{plural}"


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
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", model.PartialObjectMetadata, metadata_only=True)
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob", model.PartialObjectMetadata, metadata_only=True)
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", model.JobSet)
LEADER_WORKER_SETS = Resource(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", model.LeaderWorkerSet
)
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
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", model.ConfigMap)
SECRETS = Resource("", "v1", "secrets", "Secret", model.Secret)
MUTATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    model.WebhookConfiguration,
    namespaced=False,
)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    model.WebhookConfiguration,
    namespaced=False,
)
TOKEN_REVIEWS = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", model.TokenReview, namespaced=False, is_stored=False
)
SUBJECT_ACCESS_REVIEWS = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    model.SubjectAccessReview,
    namespaced=False,
    is_stored=False,
)
GPU_CLAIMS = Resource(wire.GPU_GROUP, wire.GPU_VERSION, "gpuclaims", "GpuClaim", wire.GpuClaim)
GPU_NODE_STATUSES = Resource(
    wire.GPU_GROUP, wire.GPU_VERSION, "gpunodestatuses", "GpuNodeStatus", wire.GpuNodeStatus, namespaced=False
)


def _of_devices(plural: str, type_: type[T], upgrade: Upgrade, namespaced: bool = True) -> Resource[T]:
    """A kind of dynamic resource allocation, in all versions that are read."""

    def version(name: str, **more: Any) -> Resource[T]:
        return Resource("resource.k8s.io", name, plural, type_.__name__, type_, namespaced, **more)

    return version("v1", older=(version("v1beta2"), version("v1beta1", upgrade=upgrade)))


RESOURCE_CLAIMS = _of_devices("resourceclaims", model.ResourceClaim, upgrading.claim_upgraded)
RESOURCE_CLAIM_TEMPLATES = _of_devices(
    "resourceclaimtemplates", model.ResourceClaimTemplate, upgrading.template_upgraded
)
RESOURCE_SLICES = _of_devices("resourceslices", model.ResourceSlice, upgrading.slice_upgraded, namespaced=False)
DEVICE_CLASSES = _of_devices("deviceclasses", model.DeviceClass, upgrading.class_upgraded, namespaced=False)
DEVICE_TAINT_RULES = Resource(
    "resource.k8s.io",
    "v1beta2",
    "devicetaintrules",
    "DeviceTaintRule",
    model.DeviceTaintRule,
    namespaced=False,
    gate="DRADeviceTaintRules",
)


def _pod_groups(group: str, version: str, type_: type[T]) -> Resource[T]:
    """One of several kinds with the plural podgroups; its key is the full name that kubectl accepts."""
    return Resource(group, version, "podgroups", "PodGroup", type_, key=f"podgroups.{version}.{group}")


POD_GROUPS_V1BETA1 = _pod_groups("scheduling.k8s.io", "v1beta1", model.PodGroup)
POD_GROUPS_V1ALPHA2 = _pod_groups("scheduling.k8s.io", "v1alpha2", model.PodGroup)
SCHEDULER_PLUGINS_POD_GROUPS = _pod_groups("scheduling.x-k8s.io", "v1alpha1", model.PodGroup)
KAI_POD_GROUPS = _pod_groups("scheduling.run.ai", "v2alpha2", model.KaiPodGroup)
POD_TEMPLATES = Resource("", "v1", "podtemplates", "PodTemplate", model.PodTemplateObject)
PROVISIONING_REQUESTS = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", model.ProvisioningRequest
)
KUEUE_WORKLOADS = Resource(
    "kueue.x-k8s.io",
    "v1beta2",
    "workloads",
    "Workload",
    model.KueueWorkload,
    key="workloads.kueue.x-k8s.io",
    older=(Resource("kueue.x-k8s.io", "v1beta1", "workloads", "Workload", model.KueueWorkload),),
)
VOLCANO_POD_GROUPS = _pod_groups("scheduling.volcano.sh", "v1beta1", model.VolcanoPodGroup)
SCHEDULER_CONFIGS = Resource(
    wire.TOPOLOGY_GROUP, wire.TOPOLOGY_VERSION, "schedulerconfigs", "SchedulerConfig", model.Document
)
TOPOLOGY_SCHEDULER_CONFIGS = Resource(
    wire.TOPOLOGY_GROUP, wire.TOPOLOGY_VERSION, "topologyschedulerconfigs", "TopologySchedulerConfig", model.Document
)
DOMAIN_CONFIGS = Resource(wire.TOPOLOGY_GROUP, wire.TOPOLOGY_VERSION, "domainconfigs", "DomainConfig", model.Document)

DEVICES: tuple[Resource[Any], ...] = (
    RESOURCE_SLICES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
"""The kinds of dynamic resource allocation."""
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
"""The kinds besides pods and nodes that the scheduler watches and keeps unchanged."""
