"""The fields that the judge reads of pods, leases and claims, decoded from the lines of a watch into types."""

from __future__ import annotations

import msgspec

from gangline_e2e.devices import ALLOCATED, CLAIM
from gangline_e2e.gangs import GANG, PART

HOLDERS, LEASE_NODE = "gpu.scheduling/holders", "gpu.scheduling/node"
ENDED = ("Succeeded", "Failed")


class Metadata(msgspec.Struct, rename="camel", frozen=True):
    """The metadata of any object."""

    name: str
    uid: str
    resource_version: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None

    @property
    def revision(self) -> int:
        """The revision of etcd at which the object was written."""
        return int(self.resource_version)


class _PodSpec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""


class _PodStatus(msgspec.Struct, rename="camel", frozen=True):
    phase: str = ""
    nominated_node_name: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: _PodSpec
    status: _PodStatus

    @property
    def workload(self) -> str:
        """The name of the workload that the pod belongs to."""
        return self.metadata.labels.get(GANG, "")

    @property
    def part(self) -> str:
        """The part of the gang that the pod belongs to, "" for none."""
        return self.metadata.labels.get(PART, "")

    @property
    def devices(self) -> tuple[int, ...]:
        """The ids of the devices in the pod's annotation."""
        return _ids(self.metadata.annotations.get(ALLOCATED, ""))

    @property
    def claim(self) -> str:
        """The claim that the pod names, "" for none."""
        return self.metadata.annotations.get(CLAIM, "")

    @property
    def has_ended(self) -> bool:
        """Whether its containers have ended for good."""
        return self.status.phase in ENDED


class Hold(msgspec.Struct, frozen=True):
    """What a lease says of one of its holders."""

    ids: tuple[int, ...]


class Lease(msgspec.Struct, frozen=True):
    """A lease of one device or of all devices of a node."""

    metadata: Metadata

    def holders(self) -> dict[tuple[str, int], frozenset[str]]:
        """For each locked device, by node and id, the UIDs of the pods that hold it."""
        notes = self.metadata.annotations
        found: dict[tuple[str, int], set[str]] = {}
        for holder, hold in _holds.decode(notes.get(HOLDERS, "{}")).items():
            for id in hold.ids:
                found.setdefault((notes[LEASE_NODE], id), set()).add(holder.partition("/")[0])
        return {device: frozenset(uids) for device, uids in found.items()}


class _ClaimStatus(msgspec.Struct, rename="camel", frozen=True):
    phase: str = ""
    node_name: str = ""
    gpu_ids: tuple[int, ...] = ()


class Claim(msgspec.Struct, frozen=True):
    """A GpuClaim, with the node and devices in its status."""

    metadata: Metadata
    status: _ClaimStatus = _ClaimStatus()


class Node(msgspec.Struct, frozen=True):
    """A node: there or not."""

    metadata: Metadata


_holds = msgspec.json.Decoder(dict[str, Hold])


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(id.rpartition(":")[2]) for id in text.split(",") if id)
