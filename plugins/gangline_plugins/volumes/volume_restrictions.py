"""VolumeRestrictions: a disk or claim that only one pod may use is not given to a second one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from gangline import (
    SKIP,
    SKIP_CLASS,
    Action,
    CodeColumn,
    Cycle,
    EventHint,
    Handle,
    NodeView,
    PodClass,
    PodInfo,
    Reason,
    StateKey,
    Status,
    codes,
    hookimpl,
    model,
    on,
    unschedulable,
)
from gangline_plugins.volumes.objects import StorageObjects, named_claims, names_claim, not_found

READ_WRITE_ONCE_POD = "ReadWriteOncePod"
_Key = TypeVar("_Key")
_CLAIM_IN_USE: StateKey[bool] = StateKey("VolumeRestrictions")


class Disk(msgspec.Struct, frozen=True):
    """A disk as a value. An RBD image has one value per monitor: two images are the same if they share a monitor."""

    kind: str
    identity: tuple[str, ...]


DiskUse = tuple[Disk, bool]
"""A disk, and whether the pod only reads it."""


class VolumeRestrictions:
    """Tracks the claims that pods use, and the nodes on which disks are in use."""

    name = "VolumeRestrictions"
    ignores_requests = True
    reasons = (
        Reason("node(s) had no available disk"),
        Reason(
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
            "already in-use by another pod"
        ),
    )

    def __init__(self, handle: Handle) -> None:
        self._objects = StorageObjects(handle.state)
        self._in_use = handle.state.tracker(VolumesInUse)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A deleted pod that used a claim or a disk, a new node, or the claim that was missing."""
        return (
            on("pods", Action.DELETE, lambda pod, old, new: old is None or _in_the_way(old, pod)),
            on("nodes", Action.ADD),
            on("persistentvolumeclaims", Action.ADD, lambda pod, old, new: names_claim(pod, new)),
        )

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> Status | None:
        """Look up the claims; skip the filter for pods whose volumes can be shared."""
        if not pod.cls.spec.volumes:
            return SKIP_CLASS
        in_use = False
        for name in named_claims(pod.cls):
            claim = self._objects.claim(pod.namespace, name)
            if claim is None:
                return unschedulable(not_found("persistentvolumeclaims", name), resolvable=False)
            if READ_WRITE_ONCE_POD in claim.spec.access_modes:
                in_use = in_use or self._in_use.is_claimed(pod.namespace, name)
        if not in_use and not disks_of(pod.cls):
            return SKIP
        cycle.write(_CLAIM_IN_USE, in_use)
        return None

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Nodes on which a disk is in use; all nodes if a claim is in use."""
        taken = self._in_use.rows_in_conflict(disks_of(pod.cls))
        conflict = np.isin(nodes.rows, list(taken)) if taken else nodes.full(False)
        return codes(conflict, nodes.full(cycle.read(_CLAIM_IN_USE)))


class VolumesInUse:
    """Claims and disks of the pods that are placed."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start over with no pods."""
        self._claims: Counter[tuple[str, str]] = Counter()
        self._disks: defaultdict[Disk, dict[int, Counter[bool]]] = defaultdict(dict)

    def concerns(self, cls: PodClass) -> bool:
        """Whether pods of this class have volumes."""
        return bool(cls.spec.volumes)

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on row: its claims are in use, and its disks are in use on row."""
        for name in named_claims(pod.cls):
            self._claims[(pod.namespace, name)] += 1
        for disk, read_only in disks_of(pod.cls):
            self._disks[disk].setdefault(row, Counter())[read_only] += 1

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on row."""
        for name in named_claims(pod.cls):
            _take_one(self._claims, (pod.namespace, name))
        for disk, read_only in disks_of(pod.cls):
            rows = self._disks[disk]
            _take_one(rows[row], read_only)
            if not rows[row]:
                del rows[row]
            if not rows:
                del self._disks[disk]

    def is_claimed(self, namespace: str, name: str) -> bool:
        """Whether a placed pod uses the claim."""
        return (namespace, name) in self._claims

    def rows_in_conflict(self, wanted: Sequence[DiskUse]) -> set[int]:
        """Rows on which one of the wanted disks is in use, unless all pods only read it."""
        return {
            row
            for disk, read_only in wanted
            for row, uses in self._disks.get(disk, {}).items()
            if not read_only or False in uses
        }


def disks_of(cls: PodClass) -> tuple[DiskUse, ...]:
    """The disks in the spec that cannot be shared without limits."""
    found: tuple[DiskUse, ...] | None = cls.memo.get(Disk)
    if found is None:
        found = cls.memo[Disk] = tuple(use for volume in cls.spec.volumes for use in _disks(volume))
    return found


def _disks(volume: model.Volume) -> Iterator[DiskUse]:
    if volume.gce_persistent_disk is not None:
        yield Disk("gce", (volume.gce_persistent_disk.pd_name,)), volume.gce_persistent_disk.read_only
    if volume.aws_elastic_block_store is not None:  # attached to one instance, even to be read
        yield Disk("ebs", (volume.aws_elastic_block_store.volume_id,)), False
    if volume.iscsi is not None:
        yield Disk("iscsi", (volume.iscsi.iqn,)), volume.iscsi.read_only
    if volume.rbd is not None:
        rbd = volume.rbd
        for monitor in rbd.monitors:
            yield Disk("rbd", (monitor, rbd.pool, rbd.image)), rbd.read_only


def _in_the_way(gone: PodInfo, pod: PodInfo) -> bool:
    """Whether a deleted pod used a claim or disk that the pod needs."""
    if gone.namespace == pod.namespace and not set(named_claims(gone.cls)).isdisjoint(named_claims(pod.cls)):
        return True
    return not {disk for disk, _ in disks_of(gone.cls)}.isdisjoint(disk for disk, _ in disks_of(pod.cls))


def _take_one(counts: Counter[_Key], key: _Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
