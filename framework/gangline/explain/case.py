"""Reads case files: the objects of a cluster in lists, as `gangline explain --file` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from gangline import model
from gangline.errors import InvalidObject
from gangline.kube.resources import STORED, Resource
from gangline.state.cache import Cache

T = TypeVar("T")


def load_cluster(case: Mapping[str, Any]) -> Cache:
    """A cache with the objects of a case. Raises GanglineError for the first object that cannot be used."""
    cluster = Cache()
    for resource in STORED:
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


_SHORT = {"persistentvolumeclaims": "pvcs", "persistentvolumes": "pvs", "poddisruptionbudgets": "pdbs"}


def _objects(case: Mapping[str, Any], resource: Resource[Any]) -> list[Any]:
    given = case.get(resource.plural) or case.get(_SHORT.get(resource.plural, "")) or []
    objects: list[Any] = converted(given, list[resource.type], resource.plural)  # type: ignore[name-defined]  # a runtime type
    return objects


def converted(value: Any, type_: type[T], path: str) -> T:
    """Plain objects as the project's structs. Raises InvalidObject with the path of a value that does not fit."""
    try:
        return msgspec.convert(value, type_, strict=False)
    except msgspec.ValidationError as error:
        why, _, where = str(error).partition(" - at `$")
        raise InvalidObject(path + where.rstrip("`"), None, why) from None
