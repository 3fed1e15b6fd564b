"""NodeVolumeLimits: a node gets no more volumes of a CSI driver than the driver can attach to it.

A volume that several pods use counts once. Volumes that a VolumeAttachment names count as well, because a volume stays
attached for a while after its pod is gone. In-tree volumes count for the CSI driver that serves them today.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from gangline import (
    SKIP_CLASS,
    Action,
    BoolColumn,
    CodeColumn,
    Cycle,
    EventHint,
    Handle,
    NodeView,
    PodClass,
    PodInfo,
    Reason,
    Rows,
    Status,
    codes,
    hookimpl,
    model,
    on,
    resources,
)
from gangline_plugins.volumes.objects import (
    StorageObjects,
    claims_of,
    class_of_claim,
    is_claim_of,
    not_found,
    uses_claims,
)


@dataclass(frozen=True, slots=True)
class ClaimKey:
    """A claim by name."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Attachable:
    """A volume of a CSI driver: its handle, or its claim while no volume exists."""

    driver: str
    handle: str | ClaimKey


Use = ClaimKey | Attachable
"""A claim of a pod, or an in-tree volume as a volume of the CSI driver that serves it."""

_EXCEEDED = 1
_GCE, _EBS, _AZURE = "pd.csi.storage.gke.io", "ebs.csi.aws.com", "disk.csi.azure.com"
_DRIVER_OF_PROVISIONER: Mapping[str, str | None] = {
    "kubernetes.io/gce-pd": _GCE,
    "kubernetes.io/aws-ebs": _EBS,
    "kubernetes.io/azure-disk": _AZURE,
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/azure-file": None,
    "kubernetes.io/vsphere-volume": None,
}
"""In-tree provisioners and who serves them; those with None are not counted."""


class NodeVolumeLimits:
    """Compares the volumes in use on a node with the limits in its CSINode."""

    name = "NodeVolumeLimits"

    def __init__(self, handle: Handle) -> None:
        self._objects = StorageObjects(handle.state)
        self._limits = Limits(handle.state.store(resources.CSI_NODES))
        self._attachments = Attachments(handle.state.store(resources.VOLUME_ATTACHMENTS), self._objects)
        self._in_use = handle.state.tracker(UsesOfRows)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Objects whose change makes room for volumes, and the claim that was missing."""
        return (
            on("csinodes", Action.ADD | Action.DELETE),
            on("csinodes", Action.UPDATE, lambda pod, old, new: _grew(old, new)),
            on("pods", Action.DELETE, lambda pod, old, new: old is None or _counts(old.cls)),
            on("persistentvolumeclaims", Action.ADD, lambda pod, old, new: is_claim_of(pod, new)),
            on("volumeattachments", Action.DELETE, lambda pod, old, new: _counts(pod.cls)),
        )

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter for pods without volumes that have to be attached."""
        return None if _counts(pod.cls) else SKIP_CLASS

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Nodes on which a driver would exceed its limit; all nodes while a claim does not exist."""
        if self._missing_claim(pod) is not None:
            return codes(nodes.full(False), nodes.full(True))
        wanted = self._attachables(uses_of(pod))
        exceeded = nodes.full(False)
        if wanted:
            names = nodes.names
            # Only the nodes that may exceed a limit.
            for i in np.flatnonzero(self._crowded(wanted, nodes)).tolist():
                exceeded[i] = self._exceeds(wanted, names[i], self._in_use.of(int(nodes.rows[i])))
        return codes(exceeded)

    def explain(self, cycle: Cycle, pod: PodInfo, code: int) -> Sequence[Reason]:
        """The reasons that a code stands for."""
        if code == _EXCEEDED:
            return (Reason("node(s) exceed max volume count"),)
        missing = self._missing_claim(pod) or ""
        why = not_found("persistentvolumeclaims", missing)
        return (Reason(f"looking up PVC {pod.namespace}/{missing}: {why}", resolvable=False),)

    def _missing_claim(self, pod: PodInfo) -> str | None:
        names = (use.name for use in claims_of(pod))
        return next((name for name in names if self._objects.claim(pod.namespace, name) is None), None)

    def _crowded(self, wanted: set[Attachable], nodes: NodeView) -> BoolColumn:
        """Nodes that may exceed a limit, by an upper bound of the volumes in use."""
        bound = self._in_use.counts(nodes.rows) + self._attachments.most
        crowded = nodes.full(False)
        for driver, count in Counter(volume.driver for volume in wanted).items():
            lowest = self._limits.lowest.get(driver)
            if lowest is not None:
                crowded |= bound + count > lowest
        return crowded & nodes.alive

    def _exceeds(self, wanted: set[Attachable], node: str, uses: Iterable[Use]) -> bool:
        limits = self._limits.of(node)
        if not limits:
            return False
        in_use = self._attachables(uses)
        new = Counter(volume.driver for volume in wanted - in_use)
        used = Counter(volume.driver for volume in in_use | self._attachments.on(node))
        return any(used[driver] + count > limits[driver] for driver, count in new.items() if driver in limits)

    def _attachables(self, uses: Iterable[Use]) -> set[Attachable]:
        """The volumes of the uses; claims that have and can get no volume are left out."""
        found = (use if isinstance(use, Attachable) else self._of_claim(use) for use in uses)
        return {volume for volume in found if volume is not None}

    def _of_claim(self, key: ClaimKey) -> Attachable | None:
        claim = self._objects.claim(key.namespace, key.name)
        if claim is None:
            return None
        volume = self._objects.volume(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None:
            csi = volume.spec.csi
            return Attachable(csi.driver, csi.volume_handle) if csi and csi.driver and csi.volume_handle else None
        storage_class = self._objects.storage_class(class_of_claim(claim))
        if storage_class is None:
            return None
        driver = _DRIVER_OF_PROVISIONER.get(storage_class.provisioner, storage_class.provisioner)
        return Attachable(driver, key) if driver else None


class UsesOfRows:
    """The claims and volumes that the pods on each row use."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start over with no pods."""
        self._uses: defaultdict[int, Counter[Use]] = defaultdict(Counter)
        self._counts: NDArray[np.int64] = np.zeros(64, dtype=np.int64)

    def concerns(self, cls: PodClass) -> bool:
        """Whether its pods have volumes that count."""
        return _counts(cls)

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod uses its volumes on row."""
        uses = self._uses[row]
        for use in uses_of(pod):
            uses[use] += 1
        self._note(row, len(uses))

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on row."""
        uses = self._uses[row]
        for use in uses_of(pod):
            uses[use] -= 1
            if not uses[use]:
                del uses[use]
        self._note(row, len(uses))
        if not uses:
            del self._uses[row]

    def of(self, row: int) -> Iterable[Use]:
        """The claims and volumes in use on row."""
        return self._uses.get(row, ())

    def counts(self, rows: Rows) -> NDArray[np.int64]:
        """The number of different claims and volumes in use on each of these rows."""
        highest = int(rows.max(initial=0))
        if highest >= len(self._counts):
            self._grow(highest)
        return self._counts[rows]

    def _note(self, row: int, count: int) -> None:
        if row >= len(self._counts):
            self._grow(row)
        self._counts[row] = count

    def _grow(self, row: int) -> None:
        grown = np.zeros(2 * row, dtype=np.int64)
        grown[: len(self._counts)] = self._counts
        self._counts = grown


class Limits:
    """The limits in the CSINodes, read again when one of them changes."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._version = -1
        self._lowest: dict[str, int] = {}

    @property
    def lowest(self) -> Mapping[str, int]:
        """The lowest limit of each driver on any node."""
        if self._version != self._store.version:
            self._version = self._store.version
            self._lowest = {}
            for csi_node in self._store:
                for driver, count in limits_of(csi_node).items():
                    self._lowest[driver] = min(count, self._lowest.get(driver, count))
        return self._lowest

    def of(self, node: str) -> Mapping[str, int]:
        """The limits on a node by driver; drivers without a limit are left out."""
        csi_node = self._store.get(node)
        return {} if csi_node is None else limits_of(csi_node)


class Attachments:
    """Which volumes are attached to which node, read again when an attachment changes."""

    def __init__(self, store: Any, objects: StorageObjects) -> None:
        self._store = store
        self._objects = objects
        self._version = -1
        self._of_node: dict[str, list[tuple[str, str]]] = {}
        self._most = 0

    @property
    def most(self) -> int:
        """The most attachments that any node has."""
        self._refresh()
        return self._most

    def on(self, node: str) -> set[Attachable]:
        """The CSI volumes attached to a node."""
        self._refresh()
        attached = set()
        for driver, name in self._of_node.get(node, ()):
            volume = self._objects.volume(name)
            if volume is not None and volume.spec.csi is not None:
                attached.add(Attachable(driver, volume.spec.csi.volume_handle))
        return attached

    def _refresh(self) -> None:
        if self._version == self._store.version:
            return
        self._version = self._store.version
        self._of_node = {}
        for attachment in self._store:
            spec: model.VolumeAttachmentSpec = attachment.spec
            if spec.attacher and spec.source.persistent_volume_name:
                self._of_node.setdefault(spec.node_name, []).append((spec.attacher, spec.source.persistent_volume_name))
        self._most = max(map(len, self._of_node.values()), default=0)


def uses_of(pod: PodInfo) -> Iterator[Use]:
    """The claims of a pod, and its in-tree volumes."""
    for claim in claims_of(pod):
        yield ClaimKey(pod.namespace, claim.name)
    yield from _in_tree(pod.cls)


def limits_of(csi_node: model.CSINode) -> dict[str, int]:
    """For each driver with a limit, the number of volumes that it can attach to the node."""
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers or ()
        if driver.allocatable is not None and driver.allocatable.count is not None
    }


def _grew(old: model.CSINode | None, new: model.CSINode) -> bool:
    """Whether a limit was raised or lifted."""
    if old is None:
        return True
    before, after = limits_of(old), limits_of(new)
    return any(driver not in after or after[driver] > limit for driver, limit in before.items()) or any(
        driver not in before for driver in after
    )


def _counts(cls: PodClass) -> bool:
    return uses_claims(cls) or bool(_in_tree(cls))


def _in_tree(cls: PodClass) -> tuple[Attachable, ...]:
    found: tuple[Attachable, ...] | None = cls.memo.get(Attachable)
    if found is None:
        found = cls.memo[Attachable] = tuple(_find_in_tree(cls.spec))
    return found


def _ebs_volume(id: str) -> str:
    """The volume's id: vol-1 for both aws://ZONE/vol-1 and vol-1. Text that is no URL is returned as it is."""
    try:
        return urlsplit(id).path.strip("/")
    except ValueError:
        return id


def _find_in_tree(spec: model.PodSpec) -> Iterator[Attachable]:
    for volume in spec.volumes:
        if volume.gce_persistent_disk is not None:
            yield Attachable(_GCE, f"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{volume.gce_persistent_disk.pd_name}")
        elif volume.aws_elastic_block_store is not None:
            yield Attachable(_EBS, _ebs_volume(volume.aws_elastic_block_store.volume_id))
        elif volume.azure_disk is not None:
            yield Attachable(_AZURE, volume.azure_disk.disk_uri)
