"""The cluster as it is now, listed once from the API server."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from gangline.errors import Forbidden, InvalidObject
from gangline.explain.refusals import Refusals
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


async def load_live(
    client: Client, with_groups: bool = False, refusals: Refusals | None = None
) -> tuple[Cache, list[PodInfo]]:
    """A cache of all objects that decisions depend on, and the pods that wait for a node.

    Objects that cannot be used are left out. The objects that groups are read from are listed only with `with_groups`,
    and if the API server has their kinds. Raises ApiError; Forbidden names all kinds that the user may not list. With
    `refusals` these kinds are noted there, and nothing is raised for them.
    """
    cluster = Cache()
    refused = refusals or Refusals()
    for resource in [*STORED, *(await _served(client, with_groups))]:
        store = cluster.store(resource)
        with refused.noted():
            for obj in await _listed(client, resource):
                store.upsert(obj)
    if with_groups:
        with refused.noted():
            for ended in (await client.list(SUCCEEDED_PODS, field_selector=SUCCEEDED.field_selector)).items:
                cluster.store(SUCCEEDED_PODS).upsert(ended)
    with refused.noted():
        for node in (await client.list(NODES)).items:
            with suppress(InvalidObject):  # the scheduler leaves it out, too
                cluster.upsert_node(node)
    pending: list[PodInfo] = []
    with refused.noted():
        pending = await _load_pods(client, cluster)
    if refusals is None:
        refused.check()
    return cluster, pending


async def _load_pods(client: Client, cluster: Cache) -> list[PodInfo]:
    """Put the pods that have a node into the cluster; returns those that wait for one."""
    pending: list[PodInfo] = []
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
    return pending


async def _listed(client: Client, resource: Resource[Any]) -> list[Any]:
    """All objects of a kind; none if the user may not list the kind and it is needed only to count devices."""
    try:
        return (await client.list(resource)).items
    except Forbidden:
        if resource.key not in {each.key for each in _DEVICES}:  # keys are equal in all versions of a kind
            raise
        return []


async def _served(client: Client, with_groups: bool) -> list[Resource[Any]]:
    """The kinds that devices are counted from and, with groups, those that groups are read from, if they are served."""
    kinds: list[Resource[Any]] = []
    wanted: list[Resource[Any]] = [*_DEVICES, *(WATCHES if with_groups else ())]
    for resource in wanted:
        if resource not in STORED and (served := await newest(client, resource)) is not None:
            kinds.append(served)
    return kinds
