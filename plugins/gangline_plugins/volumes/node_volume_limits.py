"""NodeVolumeLimits: a node gets no more volumes of a CSI driver than the driver can attach to it.

A volume that several pods use counts once. Volumes that a VolumeAttachment names count as well, because a volume stays
attached for a while after its pod is gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gangline import (
    SKIP_CLASS,
    Action,
    BoolColumn,
    CodeColumn,
    Cycle,
    EventHint,
    Handle,
    NodeView,
    PodInfo,
    Reason,
    Status,
    codes,
    hookimpl,
    model,
    on,
    resources,
)
from gangline_plugins.volumes.attachable import (
    DRIVER_OF_PROVISIONER,
    Attachable,
    ClaimKey,
    Use,
    UsesOfRows,
    has_attachable,
    uses_of,
)
from gangline_plugins.volumes.objects import (
    StorageObjects,
    claims_of,
    class_of_claim,
    is_claim_of,
    not_found,
)

_EXCEEDED = 1


class NodeVolumeLimits:
    """Compares the volumes in use on a node with the limits in its CSINode."""

    name = "NodeVolumeLimits"
    ignores_requests = True

    def __init__(self, handle: Handle) -> None:
        self._objects = StorageObjects(handle.state)
        self._limits = VolumeLimits(handle.state.store(resources.CSI_NODES))
        self._attachments = Attachments(handle.state.store(resources.VOLUME_ATTACHMENTS), self._objects)
        self._in_use = handle.state.tracker(UsesOfRows)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Objects whose change makes room for volumes, and the claim that was missing."""
        return (
            on("csinodes", Action.ADD | Action.DELETE),
            on("csinodes", Action.UPDATE, lambda pod, old, new: _grew(old, new)),
            on("pods", Action.DELETE, lambda pod, old, new: old is None or has_attachable(old.cls)),
            on("persistentvolumeclaims", Action.ADD, lambda pod, old, new: is_claim_of(pod, new)),
            on("volumeattachments", Action.DELETE, lambda pod, old, new: has_attachable(pod.cls)),
        )

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter for pods without volumes that have to be attached."""
        return None if has_attachable(pod.cls) else SKIP_CLASS

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
        driver = DRIVER_OF_PROVISIONER.get(storage_class.provisioner, storage_class.provisioner)
        return Attachable(driver, key) if driver else None


class VolumeLimits:
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
