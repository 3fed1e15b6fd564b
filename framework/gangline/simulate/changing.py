"""Supposed changes of a cluster in memory: nodes that are drained, and new nodes like an existing node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gangline.errors import ConfigError, NotFound
from gangline.kube.resources import CSI_NODES, GPU_NODE_STATUSES, NODES, PODS, RESOURCE_SLICES, Resource
from gangline.plurals import known_nodes
from gangline.simulate.history import Data
from gangline.simulate.replacing import TIED, anew, comes_again
from gangline.simulate.server import InMemoryServer
from gangline.simulate.workloads import controller

MOST_NEW = 10_000
"""New nodes, at most."""
_HOST = "kubernetes.io/hostname"
_STATE = "node.kubernetes.io/"
"""Prefix of the keys of taints for the state of a node, which a new node does not have."""


@dataclass(frozen=True, slots=True)
class NewNodes:
    """A number of new nodes like an existing node."""

    count: int
    like: str


def drain(server: InMemoryServer, names: Sequence[str]) -> dict[str, str]:
    """Cordon nodes and delete their pods; controllers create their pods again. Pods of DaemonSets stay.

    Disruption budgets and grace periods are ignored, because they only make a drain slower. Returns by key the pods
    that are gone for good, with the reason. Raises ConfigError for a node that does not exist.
    """
    for name in dict.fromkeys(names):
        node = _node(server, "--drain", name)
        server.replace(NODES, {**node, "spec": {**node.get("spec", {}), "unschedulable": True}})
    gone: dict[str, str] = {}
    drained = set(names)
    for each in server.list(PODS):
        pod = each.data
        if pod["spec"].get("nodeName") not in drained or (controller(pod) or {}).get("kind") in TIED:
            continue
        metadata = pod["metadata"]
        server.delete(PODS, metadata["name"], namespace=metadata.get("namespace"), grace_period_seconds=0)
        if comes_again(pod):
            server.create(PODS, anew(pod))
        elif controller(pod) is None:
            gone[f"{metadata.get('namespace', 'default')}/{metadata['name']}"] = "is gone: no controller makes it anew"
    return gone


def add_nodes(server: InMemoryServer, added: Sequence[NewNodes]) -> None:
    """Store new nodes, each with the devices and volume limits of the existing node, and in the same network domains.

    The new nodes are ready, and have no taints for the state of a node. Raises ConfigError if there is no node to copy.
    """
    for new in added:
        node = _node(server, "--add-nodes", new.like)
        taken = {each.data["metadata"]["name"] for each in server.list(NODES)}
        beside = list(_beside(server, new.like))
        for name in _names(new, taken):
            server.create(NODES, _like(node, name))
            for resource, data in beside:
                server.create(resource, _renamed(data, new.like, name))


def _node(server: InMemoryServer, option: str, name: str) -> Data:
    found = _get(server, NODES, name)
    if found is None:
        names = [each.data["metadata"]["name"] for each in server.list(NODES)]
        raise ConfigError(option, name, f"there is no such node; {known_nodes(names)}")
    return found


def _get(server: InMemoryServer, resource: Resource[Any], name: str) -> Data | None:
    try:
        return server.get(resource, name).data
    except NotFound:
        return None


def _names(new: NewNodes, taken: set[str]) -> Iterator[str]:
    """Free names for the new nodes: `LIKE-new-1`, `LIKE-new-2` and so on."""
    number = 0
    for _ in range(new.count):
        number += 1
        while f"{new.like}-new-{number}" in taken:
            number += 1
        yield f"{new.like}-new-{number}"


def _like(node: Mapping[str, Any], name: str) -> Data:
    spec, status, metadata = node.get("spec", {}), node.get("status", {}), node["metadata"]
    taints = [each for each in spec.get("taints", ()) if not each.get("key", "").startswith(_STATE)]
    return {
        "metadata": {
            "name": name,
            "labels": {**metadata.get("labels", {}), _HOST: name},
            "annotations": dict(metadata.get("annotations", {})),
        },
        "spec": {"taints": taints} if taints else {},
        "status": {key: value for key, value in status.items() if key != "conditions"},
    }


def _beside(server: InMemoryServer, like: str) -> Iterator[tuple[Resource[Any], Data]]:
    """The objects that describe the devices and the volume limits of a node."""
    for resource in (GPU_NODE_STATUSES, CSI_NODES):
        if (found := _get(server, resource, like)) is not None:
            yield resource, found
    for each in server.list(RESOURCE_SLICES):
        if each.data.get("spec", {}).get("nodeName") == like:
            yield RESOURCE_SLICES, each.data


def _renamed(data: Mapping[str, Any], like: str, name: str) -> Data:
    """The object of a node, changed to belong to a node of another name."""
    spec = dict(data.get("spec", {}))
    if spec.get("nodeName") == like:
        spec["nodeName"] = name
    if spec.get("pool", {}).get("name") == like:
        spec["pool"] = {**spec["pool"], "name": name}
    status = data.get("status", {})
    if devices := status.get("devices"):
        unique = [{**each, "uuid": f"{each['uuid']}-{name}"} if each.get("uuid") else each for each in devices]
        data = {**data, "status": {**status, "devices": unique}}
    own = data["metadata"]["name"]
    metadata = {"name": name if own == like else f"{own}-{name}", "labels": data["metadata"].get("labels", {})}
    return {**data, "metadata": metadata, "spec": spec}
