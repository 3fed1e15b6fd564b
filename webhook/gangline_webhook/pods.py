"""A pod as the webhook reads it: names, annotations, and the environment of its containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from gangline.model import Object, ObjectMeta, PodResourceClaim, ResourceRequirements

CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
CUDA_DEVICE_ORDER = "CUDA_DEVICE_ORDER"
NVIDIA_VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
MOST_CONTAINERS = 1000
"""Containers of a pod that gets variables. Each container makes the answer longer, and no node runs more."""


MOST_ANNOTATIONS = 262_144
"""Characters of all annotations of a pod; the API server stores no pod with more, but asks the webhook first."""


class EnvVar(Object):
    """A variable: a value, or where it comes from."""

    name: str = ""
    value: str = ""
    value_from: dict[str, Any] | None = None


class NamedClaim(Object):
    """An entry of the pod's spec.resourceClaims whose devices a container sees."""

    name: str = ""


class Resources(ResourceRequirements):
    """resources of a container."""

    claims: list[NamedClaim] | None = None


class Container(Object):
    """A container or an init container."""

    name: str = ""
    env: list[EnvVar] | None = None
    resources: Resources | None = None
    restart_policy: str = ""


class PodSpec(Object):
    """spec of a pod."""

    scheduler_name: str = ""
    subdomain: str = ""
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resource_claims: list[PodResourceClaim] | None = None


class Pod(Object):
    """A pod that is being created or changed."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)

    def annotation(self, key: str) -> str:
        """The value of an annotation, empty if the pod does not have it."""
        return (self.metadata.annotations or {}).get(key, "")

    def too_large(self) -> str:
        """Why the webhook does not look at the pod; empty if the webhook does."""
        if len(self.spec.containers or ()) + len(self.spec.init_containers or ()) > MOST_CONTAINERS:
            return f"a pod that uses GPUs may have {MOST_CONTAINERS} containers"
        if sum(len(key) + len(value) for key, value in (self.metadata.annotations or {}).items()) > MOST_ANNOTATIONS:
            return f"the annotations of a pod may have {MOST_ANNOTATIONS} characters together"
        return ""

    def containers(self) -> Iterator[tuple[str, Container]]:
        """All containers, the init containers last, each with its path for a JSON patch."""
        for index, container in enumerate(self.spec.containers or ()):
            yield f"/spec/containers/{index}", container
        for index, container in enumerate(self.spec.init_containers or ()):
            yield f"/spec/initContainers/{index}", container


def literal(name: str, value: str) -> EnvVar:
    """A variable with a value."""
    return EnvVar(name=name, value=value)


def from_annotation(name: str, annotation: str) -> EnvVar:
    """A variable that takes the value of an annotation when the container starts; empty if that is not there.

    The apiVersion is the default one; it is written out so that what comes back from the API server is equal.
    """
    path = f"metadata.annotations['{annotation}']"
    return EnvVar(name=name, value_from={"fieldRef": {"apiVersion": "v1", "fieldPath": path}})
