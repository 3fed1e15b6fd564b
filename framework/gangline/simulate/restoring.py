"""Puts the objects of a snapshot into an API server in memory, as they were on the cluster.

Rules
- Identity, status and spec stay. The finalizers of pods are removed, because the controllers that remove them later are
  not simulated.
- Reports of agents that were recent in the snapshot do not age, because no agent is simulated.
- A snapshot has neither PriorityClasses nor ResourceClaimTemplates. Those that its pods name are made from these pods
  and their claims, so that a pod that replaces another one gets the same priority and the same claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from gangline.errors import ConfigError
from gangline.explain.snapshots import Snapshot, converted
from gangline.groups import SUCCEEDED
from gangline.kube.resources import (
    GPU_NODE_STATUSES,
    JOBS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Resource,
)
from gangline.simulate.defaulting import DEFAULT_GRACE
from gangline.simulate.history import Data
from gangline.simulate.server import KNOWN, InMemoryServer

HEARD_OF = 300.0
"""An agent's report counts as recent if it is not older than so many seconds."""
_WITH_STATUS = (PODS, NODES, JOBS, GPU_NODE_STATUSES)


def restore(snapshot: Snapshot, server: InMemoryServer, where: str) -> list[str]:
    """Store all objects; returns one line for each kind that is left out. Raises ConfigError for invalid objects.

    `where` names the snapshot in errors.
    """
    left_out: dict[str, None] = {}
    kinds = _kinds()
    for listed in snapshot.lists:
        resource = kinds.get(listed.resource)
        if resource is None:
            left_out[f"{listed.resource}: left out, the simulation does not know this kind"] = None
            continue
        phase = "Succeeded" if listed.field_selector == SUCCEEDED.field_selector else "Pending"
        for each in converted(resource, listed.items, where):
            if not each.metadata.name or not each.metadata.uid:
                raise ConfigError(where, listed.resource, "is damaged: an object has no name or no UID")
            server.restore(resource, _as_it_was(resource, msgspec.to_builtins(each), phase, snapshot.taken_at))
    pods = [each.data for each in server.list(PODS)]
    _store_missing(server, PRIORITY_CLASSES, _priority_classes(pods))
    _store_missing(server, RESOURCE_CLAIM_TEMPLATES, _templates(server, pods))
    return list(left_out)


def _kinds() -> Mapping[str, Resource[Any]]:
    """The newest version of each kind by the names of its versions in a snapshot."""
    return {f"{each.api_version}/{each.plural}": resource for resource in KNOWN for each in (*resource.older, resource)}


def _as_it_was(resource: Resource[Any], data: Data, phase: str, taken_at: float) -> Data:
    """The object with fields that the structs leave out and the simulation needs; a pod gets this `phase`."""
    if resource in _WITH_STATUS:
        data = {"spec": {}, "status": {}, **data}
    if resource == GPU_NODE_STATUSES:
        return {**data, "status": _not_ageing(data["status"], taken_at)}
    if resource != PODS:
        return data
    metadata = {key: value for key, value in data["metadata"].items() if key != "finalizers"}
    if "deletionTimestamp" in metadata:
        metadata["deletionGracePeriodSeconds"] = data["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE)
    return {**data, "metadata": metadata, "status": {"phase": phase, **data["status"]}}


def _not_ageing(status: Data, taken_at: float) -> Data:
    try:
        age = taken_at - datetime.fromisoformat(status.get("heartbeatTime", "")).timestamp()
    except ValueError:
        return status
    return {key: value for key, value in status.items() if key != "heartbeatTime"} if age <= HEARD_OF else status


def _store_missing(server: InMemoryServer, resource: Resource[Any], objects: Iterable[Data]) -> None:
    there = {_key(each.data) for each in server.list(resource)}
    for each in objects:
        if _key(each) not in there:
            there.add(_key(each))
            server.create(resource, each)


def _priority_classes(pods: Iterable[Data]) -> Iterator[Data]:
    for pod in pods:
        name = pod["spec"].get("priorityClassName")
        if name:
            policy = {"preemptionPolicy": pod["spec"].get("preemptionPolicy") or "PreemptLowerPriority"}
            yield {"metadata": {"name": name}, "value": pod["spec"].get("priority", 0), **policy}


def _templates(server: InMemoryServer, pods: Iterable[Data]) -> Iterator[Data]:
    claims = {_key(each.data): each.data for each in server.list(RESOURCE_CLAIMS)}
    for pod in pods:
        namespace = pod["metadata"].get("namespace", "")
        made = {each["name"]: each.get("resourceClaimName") for each in pod["status"].get("resourceClaimStatuses", ())}
        for entry in pod["spec"].get("resourceClaims", ()):
            name = entry.get("resourceClaimTemplateName")
            claim = claims.get((namespace, made.get(entry["name"]) or ""))
            if name and claim is not None:
                yield {"metadata": {"name": name, "namespace": namespace}, "spec": {"spec": claim.get("spec", {})}}


def _key(data: Mapping[str, Any]) -> tuple[str, str]:
    return data["metadata"].get("namespace", ""), data["metadata"]["name"]
