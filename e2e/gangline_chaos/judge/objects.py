"""What the judge reads of objects: pods, nodes, leases of devices and claims, parsed once from the JSON in etcd.

What a pod asks for beyond its requests stands in labels and annotations of the workload, so that the judge needs to
know no dialect of gangs: the gang, how many members it needs, the level that it requires, and the share of a device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from gangline_chaos.judge.history import Object

GANG = "chaos.example.com/gang"
"""Label: the gang of a pod."""
LEAST = "chaos.example.com/least"
"""Annotation: the number of members that the gang needs to run."""
WITHIN = "chaos.example.com/within"
"""Annotation: the label of nodes that is the same for all nodes of the gang; several, separated by commas."""
SHARE = "chaos.example.com/share-milli"
"""Annotation: how many thousandths of one device the pod takes."""
ALLOCATED = "gpu.scheduling/allocated"
HOLDERS, LEASE_NODE = "gpu.scheduling/holders", "gpu.scheduling/node"
GPU = "nvidia.com/gpu"
WHOLE = 1000
COUNTED = ("cpu", "memory", "pods", GPU)
_SUFFIXES = {
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("k", "M", "G", "T", "P"), 1)},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)},
}
Device = tuple[str, int]
"""The name of the node and the id of the device."""
Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod."""

    key: str
    uid: str
    node: str
    is_leaving: bool
    has_ended: bool
    devices: tuple[int, ...] | None
    """The ids of its devices; None without the annotation."""
    gang: str
    least: int
    within: tuple[str, ...]
    share: int
    """Thousandths of a device; 0 for whole devices."""
    asks: Amounts
    at: float
    """When this pod was first seen."""

    @property
    def name(self) -> str:
        """NAMESPACE/NAME."""
        return self.key.removeprefix("/registry/pods/")

    @property
    def is_live(self) -> bool:
        """Whether the pod takes room: it has a node, and its containers have not ended for good."""
        return bool(self.node) and not self.has_ended

    @property
    def gpus(self) -> int:
        """How many whole devices it asks for."""
        return int(self.asks.get(GPU, 0))

    @property
    def wants(self) -> int:
        """On how many devices the pod is when it has all that it asks for; a share counts as one."""
        return 1 if self.share else self.gpus


@dataclass(frozen=True, slots=True)
class Node:
    """A node."""

    name: str
    labels: Mapping[str, str]
    has: Amounts
    is_open: bool
    """Whether pods may come to the node: it is not cordoned and has no taint (no pod here tolerates any)."""
    is_heard_of: bool = True
    """Whether the node is Ready, or has no such condition; pods on other nodes do no work."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim: its devices, each by driver, pool and name, and the pods that may use them."""

    key: str
    devices: frozenset[tuple[str, str, str]]
    users: frozenset[str]
    """UIDs."""


def pod_of(key: str, found: Object, at: float) -> Pod:
    """A pod."""
    metadata, spec = found["metadata"], found["spec"]
    notes, labels = metadata.get("annotations", {}), metadata.get("labels", {})
    allocated = notes.get(ALLOCATED)
    return Pod(
        key,
        metadata["uid"],
        spec.get("nodeName", ""),
        "deletionTimestamp" in metadata,
        found.get("status", {}).get("phase") in ("Succeeded", "Failed"),
        None if allocated is None else tuple(int(id.rpartition(":")[2]) for id in allocated.split(",") if id),
        labels.get(GANG, ""),
        int(notes.get(LEAST, "1")),
        tuple(level for level in notes.get(WITHIN, "").split(",") if level),
        int(notes.get(SHARE, "0")),
        _requests(spec),
        at,
    )


def node_of(found: Object) -> Node:
    """A node."""
    metadata, status = found["metadata"], found.get("status", {})
    has = {name: quantity(amount) for name, amount in status.get("allocatable", {}).items() if name in COUNTED}
    spec = found.get("spec", {})
    is_tainted = any(taint["effect"] in ("NoSchedule", "NoExecute") for taint in spec.get("taints") or ())
    ready = next((each["status"] for each in status.get("conditions") or () if each["type"] == "Ready"), "True")
    is_open = not is_tainted and not spec.get("unschedulable")
    return Node(metadata["name"], metadata.get("labels", {}), has, is_open, ready == "True")


def names_no_writer(found: Object) -> bool:
    """Whether the list of holders of a device's lease is missing or cannot be read: nobody knows who wrote it."""
    notes = found["metadata"].get("annotations", {})
    return LEASE_NODE in notes and _holders(notes) is None


def locks_of(found: Object) -> frozenset[tuple[Device, str]]:
    """The devices that a lease locks, each with the UID of the pod for which it is; none for other leases.

    If the list of holders is missing or cannot be read, the lease of a device locks it for the holder that it names.
    """
    notes = found["metadata"].get("annotations", {})
    if LEASE_NODE not in notes:
        return frozenset()
    node = notes[LEASE_NODE]
    holders = _holders(notes)
    if holders is None:
        id, holder = found["metadata"]["name"].rpartition("-")[2], found.get("spec", {}).get("holderIdentity")
        return frozenset([((node, int(id)), holder)]) if holder and id.isdecimal() else frozenset()
    return frozenset(((node, id), holder.partition("/")[0]) for holder, hold in holders.items() for id in hold["ids"])


def _holders(notes: Mapping[str, str]) -> dict[str, Any] | None:
    """The list of holders in the annotations of a lease; None if it is missing or cannot be read."""
    try:
        found: dict[str, Any] = json.loads(notes.get(HOLDERS, ""))
    except ValueError:
        return None
    return found


def claim_of(key: str, found: Object) -> Claim:
    """A ResourceClaim."""
    status = found.get("status", {})
    results = (status.get("allocation") or {}).get("devices", {}).get("results", ())
    devices = frozenset(
        (each["driver"], each["pool"], each["device"]) for each in results if not each.get("adminAccess")
    )
    return Claim(key, devices, frozenset(user["uid"] for user in status.get("reservedFor") or ()))


def quantity(text: str) -> Decimal:
    """A quantity of Kubernetes as a number."""
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        if text.endswith(suffix):
            return Decimal(text.removesuffix(suffix)) * _SUFFIXES[suffix]
    return Decimal(text)


def _requests(spec: Object) -> Amounts:
    """What a pod asks for, with itself as one of the pods of its node."""
    total = {name: Decimal(0) for name in COUNTED} | {"pods": Decimal(1)}
    for container in spec.get("containers", ()):
        for name, amount in container.get("resources", {}).get("requests", {}).items():
            if name in total:
                total[name] += quantity(amount)
    return total
