"""The Kubernetes objects, cut down to the fields that Gangline reads or writes.

Every class is a msgspec Struct: bytes from the API server are decoded straight into it and fields that
are not listed are never materialised. Python names are snake case, JSON names camel case.
A value here is what the API server sent; what it *means* (defaults, sums, matching) is decided elsewhere.
"""

from __future__ import annotations

from typing import Any

import msgspec

Quantity = str | int | float
Resources = dict[str, Quantity]


class Object(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """What all structs of this module share."""


class OwnerReference(Object):
    """A pointer from an object to its owner."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Object):
    """metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    generate_name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = []
    finalizers: list[str] = []


class ListMeta(Object):
    """metadata of a list."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


# Selectors


class Requirement(Object):
    """One expression of a selector: key, operator, values."""

    key: str
    operator: str
    values: list[str] = []


class LabelSelector(Object):
    """A selector over labels; matchLabels and matchExpressions are ANDed."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[Requirement] = []


class NodeSelectorTerm(Object):
    """Requirements over labels and fields, ANDed."""

    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Object):
    """Terms, ORed."""

    node_selector_terms: list[NodeSelectorTerm] = []


class PreferredSchedulingTerm(Object):
    """A node selector term with a weight of 1-100."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Object):
    """Which nodes a pod must or would rather run on."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredSchedulingTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodAffinityTerm(Object):
    """Pods (by selector and namespace) and the topology key that says how close."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] = []
    mismatch_label_keys: list[str] = []


class WeightedPodAffinityTerm(Object):
    """A pod affinity term with a weight of 1-100."""

    weight: int
    pod_affinity_term: PodAffinityTerm


class PodAffinity(Object):
    """podAffinity and podAntiAffinity have the same shape."""

    required: list[PodAffinityTerm] = msgspec.field(
        default_factory=list, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodAffinityTerm] = msgspec.field(
        default_factory=list, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Object):
    """All the affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(Object):
    """How evenly the pods that a selector names have to be spread over the values of a node label."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] = []


# Pods


class ResourceRequirements(Object):
    """requests and limits of a container or a pod."""

    requests: Resources | None = None
    limits: Resources | None = None


class ContainerPort(Object):
    """A port of a container; only host ports matter for scheduling."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"
    name: str = ""


class RestartRule(Object):
    """What a container does when it exits."""

    action: str = ""


class Container(Object):
    """A container or an init container."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements | None = None
    ports: list[ContainerPort] = []
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] = []


class Toleration(Object):
    """A taint that a pod accepts."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class LocalName(Object):
    """An object that is nothing but a name."""

    name: str = ""


class ClaimVolume(Object):
    """volumes[].persistentVolumeClaim."""

    claim_name: str = ""
    read_only: bool = False


class GCEPersistentDisk(Object):
    """volumes[].gcePersistentDisk."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Object):
    """volumes[].awsElasticBlockStore."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class AzureDisk(Object):
    """volumes[].azureDisk."""

    disk_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")


class ISCSI(Object):
    """volumes[].iscsi."""

    target_portal: str = ""
    iqn: str = ""
    lun: int = 0
    read_only: bool = False


class RBD(Object):
    """volumes[].rbd."""

    monitors: list[str] = []
    image: str = ""
    pool: str = "rbd"
    read_only: bool = False


class CSIVolume(Object):
    """volumes[].csi, inline."""

    driver: str = ""
    read_only: bool | None = None


class ImageVolume(Object):
    """volumes[].image."""

    reference: str = ""
    pull_policy: str = ""


class ClaimTemplate(Object):
    """The template of a generic ephemeral volume's claim."""

    metadata: ObjectMeta | None = None
    spec: PersistentVolumeClaimSpec | None = None


class EphemeralVolume(Object):
    """volumes[].ephemeral."""

    volume_claim_template: ClaimTemplate | None = None


class Volume(Object):
    """A volume of a pod: only the sources that a scheduler has to know."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    iscsi: ISCSI | None = None
    rbd: RBD | None = None
    csi: CSIVolume | None = None
    image: ImageVolume | None = None


class SchedulingGroup(Object):
    """spec.schedulingGroup: the pod group that the pod belongs to."""

    pod_group_name: str = ""


class PodSpec(Object):
    """spec of a pod."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    scheduler_name: str = "default-scheduler"
    node_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    topology_spread_constraints: list[TopologySpreadConstraint] = []
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    overhead: Resources | None = None
    resources: ResourceRequirements | None = None
    volumes: list[Volume] = []
    scheduling_gates: list[LocalName] = []
    scheduling_group: SchedulingGroup | None = None
    host_network: bool = False
    host_users: bool | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None


class PodCondition(Object):
    """A condition of a pod, or of any other object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    last_probe_time: str | None = None
    observed_generation: int | None = None


class ContainerStatus(Object):
    """What the kubelet says of a container; matters for in-place resize."""

    name: str = ""
    allocated_resources: Resources | None = None
    resources: ResourceRequirements | None = None


class PodStatus(Object):
    """status of a pod."""

    phase: str = ""
    nominated_node_name: str = ""
    start_time: str | None = None
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    allocated_resources: Resources | None = None
    resources: ResourceRequirements | None = None


class Pod(Object):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)


# Nodes


class Taint(Object):
    """A taint of a node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Object):
    """spec of a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class ContainerImage(Object):
    """An image that lies on a node."""

    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(Object):
    """status of a node."""

    allocatable: Resources | None = None
    capacity: Resources | None = None
    images: list[ContainerImage] = []
    conditions: list[PodCondition] = []
    declared_features: list[str] = []


class Node(Object):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


# Storage


class TypedReference(Object):
    """A reference to an object by kind, namespace, name and UID."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    resource_version: str = ""


class PersistentVolumeClaimSpec(Object):
    """spec of a claim."""

    access_modes: list[str] = []
    resources: ResourceRequirements | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    selector: LabelSelector | None = None


class PersistentVolumeClaimStatus(Object):
    """status of a claim."""

    phase: str = ""
    capacity: Resources | None = None


class PersistentVolumeClaim(Object):
    """A claim for a volume."""

    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=PersistentVolumeClaimStatus)


class CSIPersistentVolume(Object):
    """spec.csi of a persistent volume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Object):
    """Which nodes can reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Object):
    """spec of a volume."""

    capacity: Resources | None = None
    access_modes: list[str] = []
    claim_ref: TypedReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolume | None = None
    persistent_volume_reclaim_policy: str = ""


class PersistentVolumeStatus(Object):
    """status of a volume."""

    phase: str = ""


class PersistentVolume(Object):
    """A volume."""

    metadata: ObjectMeta
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = msgspec.field(default_factory=PersistentVolumeStatus)


class TopologySelectorLabelRequirement(Object):
    """A label key and the values allowed."""

    key: str
    values: list[str] = []


class TopologySelectorTerm(Object):
    """Requirements, ANDed."""

    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(Object):
    """How volumes of a class are made."""

    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = []


class CSINodeDriverAllocatable(Object):
    """How many volumes of a driver a node takes."""

    count: int | None = None


class CSINodeDriver(Object):
    """A driver on a node."""

    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    allocatable: CSINodeDriverAllocatable | None = None
    topology_keys: list[str] = []


class CSINodeSpec(Object):
    """spec of a CSINode."""

    drivers: list[CSINodeDriver] | None = None


class CSINode(Object):
    """The drivers of a node."""

    metadata: ObjectMeta
    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class CSIDriverSpec(Object):
    """spec of a CSIDriver."""

    storage_capacity: bool = False


class CSIDriver(Object):
    """A driver."""

    metadata: ObjectMeta
    spec: CSIDriverSpec = msgspec.field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(Object):
    """Free space of a storage class in one part of the cluster."""

    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Object):
    """What is attached."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Object):
    """spec of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = msgspec.field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(Object):
    """A volume attached to a node."""

    metadata: ObjectMeta
    spec: VolumeAttachmentSpec = msgspec.field(default_factory=VolumeAttachmentSpec)


# Workloads and policy


class Namespace(Object):
    """A namespace; its labels matter for namespaceSelector."""

    metadata: ObjectMeta


class ServiceSpec(Object):
    """spec of a service."""

    selector: dict[str, str] | None = None


class Service(Object):
    """A service; its selector matters for default spreading."""

    metadata: ObjectMeta
    spec: ServiceSpec = msgspec.field(default_factory=ServiceSpec)


class ReplicationControllerSpec(Object):
    """spec of a replication controller."""

    selector: dict[str, str] | None = None


class ReplicationController(Object):
    """A replication controller."""

    metadata: ObjectMeta
    spec: ReplicationControllerSpec = msgspec.field(default_factory=ReplicationControllerSpec)


class WorkloadSpec(Object):
    """spec of a replica set or a stateful set."""

    selector: LabelSelector | None = None
    replicas: int | None = None


class ReplicaSet(Object):
    """A replica set."""

    metadata: ObjectMeta
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


class StatefulSet(Object):
    """A stateful set."""

    metadata: ObjectMeta
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)


class JobSpec(Object):
    """spec of a job."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str | None = None
    suspend: bool | None = None
    active_deadline_seconds: int | None = None


class Job(Object):
    """A job."""

    metadata: ObjectMeta
    spec: JobSpec = msgspec.field(default_factory=JobSpec)


class PodDisruptionBudgetSpec(Object):
    """spec of a budget."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(Object):
    """status of a budget."""

    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: dict[str, str] | None = None


class PodDisruptionBudget(Object):
    """How many pods may be disrupted."""

    metadata: ObjectMeta
    spec: PodDisruptionBudgetSpec = msgspec.field(default_factory=PodDisruptionBudgetSpec)
    status: PodDisruptionBudgetStatus = msgspec.field(default_factory=PodDisruptionBudgetStatus)


class PriorityClass(Object):
    """A named priority."""

    metadata: ObjectMeta
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None


class PodGroupGang(Object):
    """All or nothing from this many pods on."""

    min_count: int = 0


class PodGroupPolicy(Object):
    """How the pods of a group are scheduled."""

    gang: PodGroupGang | None = None
    basic: dict[str, Any] | None = None


class PodGroupTopologyConstraint(Object):
    """The node label in whose one value the whole group has to be."""

    key: str = ""


class PodGroupConstraints(Object):
    """Constraints on a group as a whole."""

    topology: list[PodGroupTopologyConstraint] = []


class PodGroupSpec(Object):
    """spec of a pod group: scheduling.k8s.io, and scheduler-plugins' own."""

    scheduling_policy: PodGroupPolicy | None = None
    scheduling_constraints: PodGroupConstraints | None = None
    min_member: int | None = None
    schedule_timeout_seconds: int | None = None
    priority: int | None = None
    priority_class_name: str = ""


class PodGroupStatus(Object):
    """status of a pod group."""

    phase: str = ""
    conditions: list[PodCondition] = []


class PodGroup(Object):
    """A group of pods that belong together."""

    metadata: ObjectMeta
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)


# What Gangline writes


class Binding(Object):
    """Puts a pod on a node; annotations are set on the pod in the same write."""

    metadata: ObjectMeta
    target: TypedReference
    api_version: str = "v1"
    kind: str = "Binding"


class LeaseSpec(Object):
    """spec of a lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object):
    """A lock."""

    metadata: ObjectMeta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class EventSeries(Object):
    """How often an event was seen again."""

    count: int
    last_observed_time: str


class Event(Object):
    """An events.k8s.io/v1 event."""

    metadata: ObjectMeta
    reason: str = ""
    note: str = ""
    type: str = ""
    action: str = ""
    regarding: TypedReference | None = None
    related: TypedReference | None = None
    event_time: str | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    series: EventSeries | None = None
