"""The devices of a pod, and how they are written on the pod."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

import msgspec

from gangline import custom_resources
from gangline_plugins.gpu.links import MOST_DEVICES, mask_of

_KNOWN = 4096
"""The sets of at most 16 devices whose mask and text are kept."""


class Allocation(msgspec.Struct, frozen=True, eq=False):
    """The devices of one pod on one node. A struct is made in a sixth of the time of a dataclass."""

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
    is_firm: bool = False
    """Whether the allocation is or will be written on the pod. If not, the device table chose it only to count devices,
    and may choose again. Comparisons of allocations ignore this field.
    """

    def _key(self) -> tuple[object, ...]:
        return self.row, self.ids, self.uuids, self.exclusivity, self.milli, self.memory_mib

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Allocation) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.row, self.ids, self.uuids, self.exclusivity, self.milli, self.memory_mib))

    @property
    def mask(self) -> int:
        """The ids as a mask; ids beyond 15 are left out."""
        return _mask_of(self.ids) if len(self.ids) <= MOST_DEVICES else mask_of(self.ids)

    @property
    def takes_whole(self) -> bool:
        """Whether no other pod may use the devices."""
        return self.exclusivity in ("Exclusive", "Explicit")

    def firm(self) -> Allocation:
        """The same devices, firm."""
        return Allocation(self.row, self.ids, self.uuids, self.exclusivity, self.milli, self.memory_mib, is_firm=True)

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations that the binding writes on the pod."""
        annotations = dict[str, str]()
        self.write(annotations)
        return annotations

    def write(self, annotations: dict[str, str]) -> None:
        """Add the annotations that the binding writes on the pod."""
        ids = self.ids
        annotations[custom_resources.ALLOCATED] = _joined(ids) if len(ids) <= MOST_DEVICES else join(ids)
        annotations[custom_resources.ALLOCATED_UUIDS] = ",".join(self.uuids)


def names_instances(uuids: Iterable[str]) -> bool:
    """Whether the UUIDs on a pod are those of MIG instances, as the driver writes them, and not of whole devices."""
    return any(uuid.startswith("MIG-") for uuid in uuids)


def join(items: Iterable[object]) -> str:
    """A list as annotations hold it, for example "0,1"."""
    return ",".join(map(str, items))


# The members of a gang have mostly the same devices of their nodes.
_mask_of = lru_cache(maxsize=_KNOWN)(mask_of)
_joined = lru_cache(maxsize=_KNOWN)(join)
