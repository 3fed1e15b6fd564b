"""The devices of a pod, and how they are written on the pod."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from gangline import custom_resources
from gangline_plugins.gpu.links import mask_of


@dataclass(frozen=True, slots=True)
class Allocation:
    """The devices of one pod on one node."""

    row: int
    ids: tuple[int, ...]
    """The device ids, ascending, each once."""
    uuids: tuple[str, ...]
    """The UUIDs of the devices in the order of the ids, or of the MIG instances; "" for an unknown one."""
    exclusivity: Literal["Exclusive", "Shared", "MIG", "Replicas", "Explicit"] = "Exclusive"
    """As in the want; Explicit for devices that a scheduling map names, which pods with maps may share."""
    milli: tuple[int, ...] = ()
    """Shared and Replicas: thousandths of each device, in the order of the ids."""
    memory_mib: tuple[int, ...] = ()
    """Shared: MiB of each device, in the order of the ids."""
    is_firm: bool = field(default=False, compare=False)
    """Whether the allocation is or will be written on the pod. If not, the device table chose it only to count devices,
    and may choose again.
    """

    @property
    def mask(self) -> int:
        """The ids as a mask; ids beyond 15 are left out."""
        return mask_of(self.ids)

    @property
    def takes_whole(self) -> bool:
        """Whether no other pod may use the devices."""
        return self.exclusivity in ("Exclusive", "Explicit")

    def firm(self) -> Allocation:
        """The same devices, firm. Takes a third of the time of `dataclasses.replace`."""
        return Allocation(self.row, self.ids, self.uuids, self.exclusivity, self.milli, self.memory_mib, is_firm=True)

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations that the binding writes on the pod."""
        return {custom_resources.ALLOCATED: join(self.ids), custom_resources.ALLOCATED_UUIDS: join(self.uuids)}


def names_instances(uuids: Iterable[str]) -> bool:
    """Whether the UUIDs on a pod are those of MIG instances, as the driver writes them, and not of whole devices."""
    return any(uuid.startswith("MIG-") for uuid in uuids)


def join(items: Iterable[object]) -> str:
    """A list as annotations hold it, for example "0,1"."""
    return ",".join(map(str, items))
