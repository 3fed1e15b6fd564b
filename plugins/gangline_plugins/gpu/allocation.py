"""Which devices a pod has, and how that is written on the pod."""

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
    """Rising, each once."""
    uuids: tuple[str, ...]
    """Of the devices in the order of the ids, or of the MIG instances; "" for one that is not known."""
    exclusivity: Literal["Exclusive", "Shared", "MIG", "Replicas", "Explicit"] = "Exclusive"
    """As wanted; Explicit is what a scheduling map says, whoever else is there."""
    milli: tuple[int, ...] = ()
    """Shared and Replicas: thousandths of each device, in the order of the ids."""
    memory_mib: tuple[int, ...] = ()
    """Shared: MiB of each device, in the order of the ids."""
    is_firm: bool = field(default=False, compare=False)
    """It stands on the pod or will; else the table chose it only to know what is taken, and may choose again."""

    @property
    def mask(self) -> int:
        """The ids as a mask; those beyond 15 are left out."""
        return mask_of(self.ids)

    @property
    def takes_whole(self) -> bool:
        """Whether nothing else may go to its devices."""
        return self.exclusivity in ("Exclusive", "Explicit")

    @property
    def annotations(self) -> dict[str, str]:
        """What the binding writes on the pod."""
        return {custom_resources.ALLOCATED: join(self.ids), custom_resources.ALLOCATED_UUIDS: join(self.uuids)}


def names_instances(uuids: Iterable[str]) -> bool:
    """Whether UUIDs on a pod are those of MIG instances, as the driver writes them, and not of whole devices."""
    return any(uuid.startswith("MIG-") for uuid in uuids)


def join(items: Iterable[object]) -> str:
    """A list as annotations hold it: "0,1"."""
    return ",".join(map(str, items))
