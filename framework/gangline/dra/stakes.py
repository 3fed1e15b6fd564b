"""The loss with several devices of one node together, in numbers without names: equal nodes have equal stakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import comb

from gangline.dra.sharing import CounterSharing, State

LEVELS = ("island", "clique", "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode")
"""Attributes by which devices are linked, the fastest link first: NVLink, one PCIe root, one NUMA node."""
WEIGHTS = (8 / 15, 4 / 15, 2 / 15, 1 / 15)
"""The weight of each level, which is more than those of all later levels together."""
SIZE = 0.5
"""The weight of the sizes of devices; the loss of partitions has the weight 1."""
FAR = 0.01
"""The weight of pairs of devices that are not linked."""
CROWD = 0.001
"""The weight of breaking up devices, or groups of devices, that are free as a whole."""
Groups = tuple[tuple[tuple[int, int], ...], ...]
"""By level and group of linked devices: how many devices are free, and how many there are."""


@dataclass(frozen=True, slots=True)
class Stakes:
    """The devices of a problem, by positions, with the numbers that decide about losses; see `losses`."""

    sets: tuple[tuple[CounterSharing, State], ...]
    """The counter sets of the devices, and the state of each."""
    parts: tuple[tuple[tuple[int, int], ...], ...]
    """By position: the numbers of the sets whose counters the device consumes, and which part of the set it is."""
    sizes: tuple[float, ...]
    """By position: the size of the device, from 0 to 1."""
    rooms: tuple[float, ...]
    """By position: the free fraction of a device that may be shared, from 0 to 1; 0 for other devices."""
    links: tuple[tuple[int, ...], ...]
    """By position: the number of the device's group on each level."""
    groups: Groups
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.sets, self.sizes, self.rooms, self.links, self.groups)))

    def __hash__(self) -> int:
        return self._hash

    def loss(self, positions: Sequence[int]) -> float:
        """The loss if all of these devices are given to one pod."""
        lost = 0.0
        by_set: dict[int, list[int]] = {}
        for position in positions:
            lost += SIZE * self.sizes[position] + CROWD * self.rooms[position]
            for number, part in self.parts[position]:
                by_set.setdefault(number, []).append(part)
        for number, parts in by_set.items():
            sharing, state = self.sets[number]
            lost += sharing.loss(state, parts)
        return lost + FAR * self._apart(positions) + CROWD * self._broken(positions)

    def far(self, one: int, other: int) -> float:
        """The distance of two devices: 0 if they are in the same group on every level, 1 if on none."""
        pairs = zip(WEIGHTS, self.links[one], self.links[other], strict=True)
        return sum(weight for weight, mine, yours in pairs if mine != yours)

    def _apart(self, positions: Sequence[int]) -> float:
        """The mean distance of the devices from each other."""
        pairs = comb(len(positions), 2)
        if not pairs:
            return 0.0
        apart = 0.0
        for level, weight in enumerate(WEIGHTS):
            sizes = Counter([self.links[position][level] for position in positions]).values()
            apart += weight * (pairs - sum(comb(size, 2) for size in sizes))
        return apart / pairs

    def _broken(self, positions: Sequence[int]) -> float:
        """How much the devices break up groups of free devices: each device costs the fraction of its group that is
        free when the device is taken. So a device of a group that is mostly in use costs little.
        """
        whole = [position for position in positions if not self.parts[position] and not self.rooms[position]]
        lost = 0.0
        for level, weight in enumerate(WEIGHTS):
            for group, number in Counter(self.links[position][level] for position in whole).items():
                free, total = self.groups[level][group]
                lost += weight * sum(free - each for each in range(number)) / max(1, total)
        return lost
