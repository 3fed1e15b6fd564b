"""Pods, their owners and the objects that they name, as manifests; and the groups that are read from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline import model
from gangline.api.pod_group import Membership, Problem, SubGroup
from gangline.groups import Groups
from gangline.kube.resources import DEPLOYMENTS, JOBS, REPLICA_SETS, Resource
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.testing import make_pod

INDEX = "batch.kubernetes.io/job-completion-index"


class World:
    """Objects in one namespace, and the groups that are read from them."""

    def __init__(self) -> None:
        self.cache = Cache()
        self.groups = Groups(self.cache)

    def put(
        self,
        resource: Resource[Any],
        name: str,
        spec: Mapping[str, Any] | None = None,
        annotations: Mapping[str, str] | None = None,
        owner: model.OwnerReference | None = None,
        **fields: Any,
    ) -> model.OwnerReference:
        """An object as the API server would send it; returns the reference with which a pod names it as its owner."""
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": f"{resource.plural}-{name}",
            "annotations": dict(annotations or {}),
            "ownerReferences": [] if owner is None else [owner],
        }
        data = {"metadata": metadata, "spec": spec or {}, **fields}
        self.cache.store(resource).upsert(msgspec.convert(msgspec.to_builtins(data), resource.type))
        return owner_reference(resource, name)

    def pod(
        self,
        name: str = "p-0",
        owner: model.OwnerReference | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        gpus: int = 0,
        **spec: Any,
    ) -> PodInfo:
        """A pod; `owner` is its controller."""
        made = make_pod(name, gpus=gpus, labels=labels, annotations=annotations, **spec)
        made.metadata.owner_references = [] if owner is None else [owner]
        return self.cache.record(made)

    def member(self, pod: PodInfo) -> Membership:
        """The membership of a pod in its group; the pod must be in a group."""
        found = self.groups.of(pod)
        assert isinstance(found, Membership), found
        return found

    def problem(self, pod: PodInfo) -> str:
        """The fault of a pod's group; the group must have one."""
        found = self.groups.of(pod)
        assert isinstance(found, Problem), found
        return found.message

    # What pods are made by

    def job(
        self, name: str = "train", annotations: Mapping[str, str] | None = None, succeeded: int = 0, **spec: Any
    ) -> model.OwnerReference:
        """A Job, by default an indexed one of four pods at once."""
        whole = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", **spec}
        return self.put(JOBS, name, whole, annotations, status={"succeeded": succeeded})

    def deployment(
        self, name: str = "serve", annotations: Mapping[str, str] | None = None, replicas: int = 4, desired: int = 4
    ) -> model.OwnerReference:
        """A Deployment and its ReplicaSet; returns the latter."""
        above = self.put(DEPLOYMENTS, name, annotations=annotations)
        wanted = {"deployment.kubernetes.io/desired-replicas": str(desired)}
        return self.put(REPLICA_SETS, f"{name}-1", {"replicas": replicas}, wanted, above)


def owner_reference(resource: Resource[Any], name: str) -> model.OwnerReference:
    """The reference to an object that `World.put` has made, or would."""
    return model.OwnerReference(resource.kind, name, f"{resource.plural}-{name}", resource.api_version, controller=True)


def parts(member: Membership) -> dict[str, int]:
    """The sub-groups of a group and how many members each needs."""
    return {part.name: part.min_member for part in member.group.subgroups}


def part_of(member: Membership) -> SubGroup:
    """The sub-group that a pod is in."""
    found = member.group.subgroup(member.subgroup)
    assert found is not None, member
    return found
