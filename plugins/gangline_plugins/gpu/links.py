"""How the GPUs of a node are linked: the matrix of GB/s between them, one object for all nodes with the same hardware.

Rules:
- A device's index is its id, 0 to 15. A set of devices is a bit mask.
- If a report has no links, devices of one island are linked at the lower of their bandwidths, and others not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from gangline import Changes, custom_resources

MOST_DEVICES: Final = 16
"""The most devices of one node; their ids are 0 to 15."""
MOST_CLASSES: Final = 64
"""The most link classes at the same time, because the tables of all of them are kept side by side. A large cluster has
a dozen.
"""
NO_ISLAND: Final = -1
_NEARNESS = {"NVLINK": 10, "PIX": 8, "PXB": 6, "PHB": 4, "NODE": 2, "SYS": 0}
_SAME_NUMA = 1

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LinkClass:
    """The links of one kind of node."""

    number: int
    """The number of the class, as in the column `link_class` of the device table."""
    present: int
    """Mask of the devices that exist."""
    gbps: Matrix
    """GB/s between any two devices, 16 x 16, symmetric; 0 without a link or a device."""
    nearness: Matrix
    """How near two devices are by NVLink, PCIe and NUMA, 16 x 16; higher is nearer. It decides between equal sets."""
    islands: tuple[int, ...]
    """For each id the number of its NVLink island; NO_ISLAND if it is in none."""


class LinkClasses:
    """All link classes, each once.

    Reports may change again and again. So when there are MOST_CLASSES classes, new ones get the numbers of those that
    no node has any more; `in_use` returns the numbers that nodes have.
    """

    def __init__(self, in_use: Callable[[], Collection[int]] | None = None) -> None:
        self._in_use = in_use
        self.version = 0
        """Grows with each new class; tables indexed by class number are valid for one version."""
        self.all: list[LinkClass] = []
        self.fastest = 0.0
        """GB/s of the fastest link of all classes."""
        self.faster = Changes()
        """Notes a change of every node when `fastest` grows."""
        self._known: dict[tuple[bytes, ...], LinkClass] = {}
        self._free: list[int] = []

    def intern(self, devices: Sequence[custom_resources.GpuDevice]) -> LinkClass | None:
        """The class of these devices, whose ids are 0 to 15 and differ; None if there are too many classes."""
        present = mask_of(device.id for device in devices)
        gbps, nearness = _matrices(devices)
        islands = _islands(devices)
        key = (present.to_bytes(4), gbps.tobytes(), nearness.tobytes(), bytes(i + 1 for i in islands))
        found = self._known.get(key)
        if found is None:
            if len(self.all) >= MOST_CLASSES and not self._free:
                self._sweep()
                if not self._free:
                    return None
            number = self._free.pop() if self._free else len(self.all)
            found = self._known[key] = LinkClass(number, present, gbps, nearness, islands)
            self.all[number : number + 1] = [found]
            self.version += 1
            if gbps.max() > self.fastest:
                self.fastest = float(gbps.max())
                self.faster.note_all()
        return found

    def _sweep(self) -> None:
        """Free the numbers that no node has, and forget their classes."""
        used = set(self._in_use()) if self._in_use is not None else range(len(self.all))
        self._known = {key: each for key, each in self._known.items() if each.number in used}
        self._free = [number for number in range(len(self.all)) if number not in used]


def mask_of(ids: Iterable[int]) -> int:
    """A set of device ids as a mask; ids beyond 15 are left out."""
    mask = 0
    for id in ids:
        if 0 <= id < MOST_DEVICES:
            mask |= 1 << id
    return mask


@lru_cache(maxsize=4096)
def ids_of(mask: int) -> tuple[int, ...]:
    """The ids in a mask, ascending."""
    return tuple(id for id in range(mask.bit_length()) if mask >> id & 1)


def _matrices(devices: Sequence[custom_resources.GpuDevice]) -> tuple[Matrix, Matrix]:
    gbps = np.zeros((MOST_DEVICES, MOST_DEVICES))
    nearness = np.zeros((MOST_DEVICES, MOST_DEVICES))
    links = {(d.id, link.peer): link for d in devices for link in d.links}
    for a in devices:
        for b in devices:
            if a.id >= b.id:
                continue
            said = [link for key in ((a.id, b.id), (b.id, a.id)) if (link := links.get(key)) is not None]
            if said:
                speed = min(link.gbps for link in said)
                near = min(_NEARNESS[link.kind] for link in said)
            else:
                together = bool(a.island) and a.island == b.island
                speed = float(min(a.bandwidth_gbps, b.bandwidth_gbps)) if together else 0.0
                near = _NEARNESS["NVLINK"] if together and speed else 0
            near += _SAME_NUMA if a.numa_node == b.numa_node >= 0 else 0
            gbps[a.id, b.id] = gbps[b.id, a.id] = speed
            nearness[a.id, b.id] = nearness[b.id, a.id] = near
    return gbps, nearness


def _islands(devices: Sequence[custom_resources.GpuDevice]) -> tuple[int, ...]:
    """Islands by their names in the report, else the devices that NVLink connects."""
    names: dict[str, int] = {}
    islands = [NO_ISLAND] * MOST_DEVICES
    nvlinks: dict[int, list[int]] = {d.id: [] for d in devices}
    for device in devices:
        for link in device.links:
            if link.kind == "NVLINK" and link.peer in nvlinks:
                nvlinks[device.id].append(link.peer)
                nvlinks[link.peer].append(device.id)
    for device in sorted(devices, key=lambda device: device.id):
        if device.island:
            islands[device.id] = names.setdefault(device.island, len(names))
    named = len(names)
    for device in sorted(devices, key=lambda device: device.id):
        if device.island or islands[device.id] != NO_ISLAND or not nvlinks[device.id]:
            continue
        reached = [device.id]
        while reached:
            id = reached.pop()
            if islands[id] == NO_ISLAND:
                islands[id] = named
                reached += nvlinks[id]
        named += 1
    return tuple(islands)
