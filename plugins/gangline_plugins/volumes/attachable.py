"""The volumes of pods as volumes of the CSI drivers that attach them to nodes.

In-tree volumes are those of the CSI driver that serves them today.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urlsplit

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import PodClass, PodInfo, Rows, model
from gangline_plugins.volumes.objects import claims_of, uses_claims


class ClaimKey(msgspec.Struct, frozen=True):
    """A claim by name."""

    namespace: str
    name: str


class Attachable(msgspec.Struct, frozen=True):
    """A volume of a CSI driver: its handle, or its claim while no volume exists."""

    driver: str
    handle: str | ClaimKey


Use = ClaimKey | Attachable
"""A claim of a pod, or an in-tree volume as a volume of the CSI driver that serves it."""

_GCE, _EBS, _AZURE = "pd.csi.storage.gke.io", "ebs.csi.aws.com", "disk.csi.azure.com"
DRIVER_OF_PROVISIONER: Mapping[str, str | None] = {
    "kubernetes.io/gce-pd": _GCE,
    "kubernetes.io/aws-ebs": _EBS,
    "kubernetes.io/azure-disk": _AZURE,
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/azure-file": None,
    "kubernetes.io/vsphere-volume": None,
}
"""In-tree provisioners and who serves them; those with None are not counted."""


class UsesOfRows:
    """The claims and volumes that the pods on each row use."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start over with no pods."""
        self._uses: defaultdict[int, Counter[Use]] = defaultdict(Counter)
        self._counts: NDArray[np.int64] = np.zeros(64, dtype=np.int64)

    def concerns(self, cls: PodClass) -> bool:
        """Whether pods of this class have volumes that count."""
        return has_attachable(cls)

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


def uses_of(pod: PodInfo) -> Iterator[Use]:
    """The claims of a pod, and its in-tree volumes."""
    for claim in claims_of(pod):
        yield ClaimKey(pod.namespace, claim.name)
    yield from _in_tree(pod.cls)


def has_attachable(cls: PodClass) -> bool:
    """Whether the pods of a class have volumes that may have to be attached."""
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
