"""Reads case files: the objects of a cluster in lists, as `gangline explain --file` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import msgspec

from gangline import model
from gangline.errors import InvalidObject
from gangline.kube.resources import (
    DEVICES,
    GPU_CLAIMS,
    GPU_NODE_STATUSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    STORED,
    Resource,
)
from gangline.state.cache import Cache

T = TypeVar("T")

_KINDS = (*STORED, *DEVICES, GPU_NODE_STATUSES, GPU_CLAIMS)
_NEAR = 0.85
"""From this likeness on, 1 for equal names, a name that is not known is taken for a misspelt one."""


def load_cluster(case: Mapping[str, Any]) -> Cache:
    """A cache with the objects of a case. Raises GanglineError for the first object that cannot be used."""
    cluster = Cache()
    for resource in _KINDS:
        store = cluster.store(resource)
        for obj in _objects(case, resource):
            store.upsert(obj)
    nodes = converted(case.get("nodes") or [], list[model.Node], "nodes")
    for node in sorted(nodes, key=lambda node: node.metadata.name):  # as an API server lists them
        cluster.upsert_node(node)
    for pod in converted(case.get("pods") or [], list[model.Pod], "pods"):
        if pod.spec.node_name:
            cluster.upsert_pod(cluster.record(pod))
    return cluster


def make_claims(cluster: Cache, pod: model.Pod) -> None:
    """Create the ResourceClaims that the pod of a case has from templates, as kube-controller-manager would."""
    templates, claims = cluster.store(RESOURCE_CLAIM_TEMPLATES), cluster.store(RESOURCE_CLAIMS)
    metadata, status = pod.metadata, pod.status
    known = {each.name for each in status.resource_claim_statuses}
    owner = model.OwnerReference("Pod", metadata.name, metadata.uid, "v1", controller=True)
    for entry in pod.spec.resource_claims:
        template = templates.get(entry.resource_claim_template_name or "", metadata.namespace)
        if template is None or entry.name in known:
            continue
        name = f"{metadata.name}-{entry.name}"
        made = model.ObjectMeta(name, metadata.namespace, uid=f"{metadata.namespace}/{name}", owner_references=[owner])
        claims.upsert(model.ResourceClaim(made, template.spec.spec))
        status.resource_claim_statuses = [
            *status.resource_claim_statuses,
            model.PodResourceClaimStatus(entry.name, name),
        ]


_SHORT = {"persistentvolumeclaims": "pvcs", "persistentvolumes": "pvs", "poddisruptionbudgets": "pdbs"}


def check_names(case: Mapping[str, Any]) -> None:
    """Raises InvalidObject for a list with a misspelt name, which nobody would read; a case may have other fields."""
    known = {"pod", "nodes", "pods", *(each.plural for each in _KINDS), *_SHORT.values()}
    for name in case:
        close = get_close_matches(str(name).lower(), known, n=1, cutoff=_NEAR)
        if close and name not in known:
            raise InvalidObject(str(name), None, f"is not known; did you mean {close[0]}?")


def _objects(case: Mapping[str, Any], resource: Resource[Any]) -> list[Any]:
    given = case.get(resource.plural) or case.get(_SHORT.get(resource.plural, "")) or []
    older = {each.api_version: each for each in resource.older}
    if isinstance(given, list):
        given = [_upgraded(each, older) for each in given]
    objects: list[Any] = converted(given, list[resource.type], resource.plural)  # type: ignore[name-defined]  # a runtime type
    return objects


def _upgraded(given: Any, older: Mapping[str, Resource[Any]]) -> Any:
    """An object of an older version in the shape of the newest."""
    resource = older.get(given.get("apiVersion", "")) if isinstance(given, dict) else None
    if resource is None or resource.upgrade is None:
        return given
    return resource.upgrade(given)


def converted(value: Any, type_: type[T], path: str) -> T:
    """Plain objects as the project's structs. Raises InvalidObject with the path of a value that does not fit."""
    try:
        return msgspec.convert(value, type_, strict=False)
    except msgspec.ValidationError as error:
        why, _, where = str(error).partition(" - at `$")
        raise InvalidObject(path + where.rstrip("`"), None, why) from None
