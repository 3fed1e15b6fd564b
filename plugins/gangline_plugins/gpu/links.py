"""How the GPUs of a node are linked: the matrix of GB/s between them, one object for all nodes of the same hardware.

Rules:
- A device stands at the place of its id, 0 to 15; a set of devices is a bit mask.
- Where a report has no links, devices of one island are linked by the lower of their bandwidths, others not at all.
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
"""Devices of one node that can be told apart; their ids are 0 to 15."""
MOST_CLASSES: Final = 64
"""Kinds of hardware at the same time; the tables of all of them stand side by side. A large cluster has a dozen."""
NO_ISLAND: Final = -1
_NEARNESS = {"NVLINK": 10, "PIX": 8, "PXB": 6, "PHB": 4, "NODE": 2, "SYS": 0}
_SAME_NUMA = 1

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class LinkClass:
    """The interconnect of one kind of node."""

    number: int
    """Of the class; what the column `link_class` of the device table holds."""
    present: int
    """Mask of the devices that exist."""
    gbps: Matrix
    """GB/s between any two devices, 16 x 16, symmetric, 0 where there is no link or device."""
    nearness: Matrix
    """How near two devices are by NVLink, PCIe and NUMA, 16 x 16; higher is nearer. Breaks ties."""
    islands: tuple[int, ...]
    """For each id the number of its NVLink island, NO_ISLAND for none."""


class LinkClasses:
    """All link classes, each once.

    What nodes report may change again and again, so the numbers of classes that no node is of any more are given to
    new ones: `in_use` says which numbers nodes have, when there are MOST_CLASSES.
    """

    def __init__(self, in_use: Callable[[], Collection[int]] | None = None) -> None:
        self._in_use = in_use
        self.version = 0
        """Grows with each new class; what is kept by number holds for one version."""
        self.all: list[LinkClass] = []
        self.fastest = 0.0
        """GB/s of the best link of all."""
        self.faster = Changes()
        """That this has grown concerns every node."""
        self._known: dict[tuple[bytes, ...], LinkClass] = {}
        self._free: list[int] = []

    def intern(self, devices: Sequence[custom_resources.GpuDevice]) -> LinkClass | None:
        """The class of these devices, whose ids are 0 to 15 and differ; None where there are too many classes."""
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
        """Find the numbers that no node has, and forget their classes."""
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
    """The ids in a mask, rising."""
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
    """By name where the report names islands, else by what NVLink connects."""
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
