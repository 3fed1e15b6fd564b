"""Objects that pods belong to: namespaces, services, controllers, budgets, priorities and pod groups."""

from __future__ import annotations

from typing import Any

import msgspec

from gangline.model.base import Object, ObjectMeta, PodCondition
from gangline.model.pods import PodResourceClaim
from gangline.model.selecting import LabelSelector


class Namespace(Object):
    """A namespace; its labels matter for namespaceSelector."""

    metadata: ObjectMeta


class ServiceSpec(Object):
    """spec of a service."""

    selector: dict[str, str] | None = None
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    """"None" for a headless service."""


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
    pod_management_policy: str = ""
    """OrderedReady or Parallel; only a StatefulSet has this field."""


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


class JobStatus(Object):
    """status of a job."""

    succeeded: int = 0


class Job(Object):
    """A job."""

    metadata: ObjectMeta
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = msgspec.field(default_factory=JobStatus)


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
    """The least number of pods that have to start together."""

    min_count: int = 0


class PodGroupPolicy(Object):
    """How the pods of a group are scheduled."""

    gang: PodGroupGang | None = None
    basic: dict[str, Any] | None = None


class PodGroupTopologyConstraint(Object):
    """The key of a node label. All nodes of the group must have the same value of this label."""

    key: str = ""


class PodGroupConstraints(Object):
    """Constraints on a group as a whole."""

    topology: list[PodGroupTopologyConstraint] = []


class PodGroupSpec(Object):
    """spec of a pod group of scheduling.k8s.io or of scheduler-plugins."""

    scheduling_policy: PodGroupPolicy | None = None
    scheduling_constraints: PodGroupConstraints | None = None
    min_member: int | None = None
    schedule_timeout_seconds: int | None = None
    disruption_mode: str | dict[str, Any] | None = None
    """A text in v1alpha2; an object with one key from v1beta1 on."""
    priority: int | None = None
    priority_class_name: str = ""
    resource_claims: list[PodResourceClaim] = []
    """Claims that the pods of the group share."""


class PodGroupStatus(Object):
    """status of a pod group."""

    phase: str = ""
    conditions: list[PodCondition] = []


class PodGroup(Object):
    """A group of pods that belong together."""

    metadata: ObjectMeta
    spec: PodGroupSpec = msgspec.field(default_factory=PodGroupSpec)
    status: PodGroupStatus = msgspec.field(default_factory=PodGroupStatus)
