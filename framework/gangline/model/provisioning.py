"""Requests to cluster-autoscaler: ProvisioningRequests (autoscaling.x-k8s.io), and the PodTemplates that they name."""

from __future__ import annotations

import msgspec

from gangline.model.base import LocalName, Object, ObjectMeta, PodCondition
from gangline.model.pods import PodSpec


class PodTemplateContent(Object):
    """Labels, annotations and spec of the pods of a template."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class PodTemplateObject(Object):
    """A PodTemplate, as an object of the API."""

    metadata: ObjectMeta
    template: PodTemplateContent = msgspec.field(default_factory=PodTemplateContent)
    api_version: str = "v1"
    kind: str = "PodTemplate"


class ProvisioningPodSet(Object):
    """A number of pods of one template."""

    pod_template_ref: LocalName = msgspec.field(default_factory=LocalName)
    count: int = 0


class ProvisioningRequestSpec(Object):
    """spec of a ProvisioningRequest; the spec cannot be changed."""

    provisioning_class_name: str = ""
    pod_sets: list[ProvisioningPodSet] = []
    parameters: dict[str, str] | None = None


class ProvisioningRequestStatus(Object):
    """status of a ProvisioningRequest: what has become of the request."""

    conditions: list[PodCondition] = []
    provisioning_class_details: dict[str, str] | None = None


class ProvisioningRequest(Object):
    """Asks an autoscaler for room for several pods together."""

    metadata: ObjectMeta
    spec: ProvisioningRequestSpec = msgspec.field(default_factory=ProvisioningRequestSpec)
    status: ProvisioningRequestStatus = msgspec.field(default_factory=ProvisioningRequestStatus)
    api_version: str = "autoscaling.x-k8s.io/v1"
    kind: str = "ProvisioningRequest"
