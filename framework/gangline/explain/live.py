"""The cluster as it is now, listed once from the API server."""

from __future__ import annotations

from typing import Any

from gangline.errors import Forbidden, InvalidObject
from gangline.groups import SUCCEEDED, SUCCEEDED_PODS, WATCHES
from gangline.kube.interface import Client
from gangline.kube.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    GPU_CLAIMS,
    GPU_NODE_STATUSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STORED,
    Resource,
)
from gangline.kube.versions import newest
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo

_DEVICES: tuple[Resource[Any], ...] = (
    GPU_NODE_STATUSES,
    GPU_CLAIMS,
    RESOURCE_SLICES,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIMS,
)


async def load_live(client: Client, with_groups: bool = False) -> tuple[Cache, list[PodInfo]]:
    """A cache of all objects that decisions depend on, and the pods that wait for a node.

    Objects that cannot be used are left out. The objects that groups are read from are listed only if they are wanted
    and the API server has their kinds. Raises ApiError.
    """
    cluster = Cache()
    pending: list[PodInfo] = []
    for resource in [*STORED, *(await _served(client, with_groups))]:
        store = cluster.store(resource)
        for obj in await _listed(client, resource):
            store.upsert(obj)
    if with_groups:
        for ended in (await client.list(SUCCEEDED_PODS, field_selector=SUCCEEDED.field_selector)).items:
            cluster.store(SUCCEEDED_PODS).upsert(ended)
    for node in (await client.list(NODES)).items:
        try:
            cluster.upsert_node(node)
        except InvalidObject:  # the scheduler leaves it out, too
            continue
    live = "status.phase!=Succeeded,status.phase!=Failed"
    for pod in (await client.list(PODS, field_selector=live)).items:
        try:
            record = cluster.record(pod)
        except InvalidObject:
            continue
        if record.node_name:
            cluster.upsert_pod(record)
        else:
            pending.append(record)
    return cluster, pending


async def _listed(client: Client, resource: Resource[Any]) -> list[Any]:
    """All objects; a kind that only counts devices is left out if the caller may not list it."""
    try:
        return (await client.list(resource)).items
    except Forbidden:
        if resource.key not in {each.key for each in _DEVICES}:  # in whichever version
            raise
        return []


async def _served(client: Client, with_groups: bool) -> list[Resource[Any]]:
    """The kinds by which devices are counted and groups are read, as far as the API server has them."""
    kinds: list[Resource[Any]] = []
    wanted: list[Resource[Any]] = [*_DEVICES, *(WATCHES if with_groups else ())]
    for resource in wanted:
        if resource not in STORED and (served := await newest(client, resource)) is not None:
            kinds.append(served)
    return kinds
