"""The cluster as it is now, listed once from an API server."""

from __future__ import annotations

from gangline.cache import Cache
from gangline.errors import InvalidObject
from gangline.kube.interface import Client
from gangline.kube.resources import NODES, PODS, STORED


async def load_live(client: Client) -> Cache:
    """A cache of everything that decisions depend on; objects that cannot be used are left out. Raises ApiError."""
    cluster = Cache()
    for resource in STORED:
        store = cluster.store(resource.key)
        for obj in (await client.list(resource)).items:
            store.upsert(obj)
    for node in (await client.list(NODES)).items:
        try:
            cluster.upsert_node(node)
        except InvalidObject:  # the scheduler leaves it out, too
            continue
    live = "status.phase!=Succeeded,status.phase!=Failed"
    for pod in (await client.list(PODS, field_selector=live)).items:
        if not pod.spec.node_name:
            continue
        try:
            cluster.upsert_pod(cluster.record(pod))
        except InvalidObject:
            continue
    return cluster
