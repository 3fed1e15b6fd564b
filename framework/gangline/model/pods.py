"""Pods."""

from __future__ import annotations

import msgspec

from gangline.model.base import LocalName, Object, ObjectMeta, PodCondition, ResourceRequirements, Resources
from gangline.model.selecting import Affinity, TopologySpreadConstraint
from gangline.model.volumes import Volume


class ContainerPort(Object):
    """A port of a container; only host ports matter for scheduling."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"
    name: str = ""


class RestartRule(Object):
    """What the kubelet does when a container exits."""

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


class SchedulingGroup(Object):
    """spec.schedulingGroup: the pod group that the pod belongs to."""

    pod_group_name: str = ""


class PodResourceClaim(Object):
    """An entry of spec.resourceClaims: the devices of one ResourceClaim, named or made from a template for the pod."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


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
    resource_claims: list[PodResourceClaim] = []
    host_network: bool = False
    host_users: bool | None = None
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None


class ContainerStatus(Object):
    """The kubelet's status of a container; needed for in-place resize."""

    name: str = ""
    allocated_resources: Resources | None = None
    resources: ResourceRequirements | None = None


class PodResourceClaimStatus(Object):
    """The ResourceClaim that was created from a template for an entry of spec.resourceClaims; None if not needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(Object):
    """The request in the claim for extended resources that stands for one resource of a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(Object):
    """The ResourceClaim that a scheduler made for the extended resources that the pod requests."""

    request_mappings: list[ContainerExtendedResourceRequest] = []
    resource_claim_name: str = ""


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
    resource_claim_statuses: list[PodResourceClaimStatus] = []
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(Object):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = msgspec.field(default_factory=PodStatus)
