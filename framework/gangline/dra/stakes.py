"""What a node loses with several devices together, in numbers: equal nodes have equal stakes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import comb

from gangline.dra.sharing import CounterSharing, State

LEVELS = ("island", "clique", "resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode")
"""Attributes by which devices are linked, the fastest link first: NVLink, one PCIe root, one NUMA node."""
WEIGHTS = (8 / 15, 4 / 15, 2 / 15, 1 / 15)
"""How much each level counts: more than all later ones together."""
SIZE = 0.5
"""The weight of the sizes of devices, beside the loss of partitions."""
FAR = 0.01
"""The weight of pairs of devices that are not linked."""
CROWD = 0.001
"""The weight of taking what is free as a whole."""
Groups = tuple[tuple[tuple[int, int], ...], ...]
"""By level and group of linked devices: how many devices are free, and how many there are."""


@dataclass(frozen=True, slots=True)
class Stakes:
    """The devices of a problem, as `losses` sees them."""

    sets: tuple[tuple[CounterSharing, State], ...]
    """The counter sets of the devices, and how they stand."""
    parts: tuple[tuple[tuple[int, int], ...], ...]
    """By position: the sets of whose counters the device consumes, and which part of each it is."""
    sizes: tuple[float, ...]
    """By position: the size of the device, from 0 to 1."""
    rooms: tuple[float, ...]
    """By position: what is free of a device that may be shared, from 0 to 1; 0 for other devices."""
    links: tuple[tuple[int, ...], ...]
    """By position: the number of its group on each level."""
    groups: Groups
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.sets, self.sizes, self.rooms, self.links, self.groups)))

    def __hash__(self) -> int:
        return self._hash

    def loss(self, positions: Sequence[int]) -> float:
        """What is lost if all of these devices are given, one pod having all of them."""
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
        """How far two devices are from each other: 0 if they are in the same groups, 1 if they share none."""
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
        """How much the devices break up groups of free devices: each device costs the part of its group that is free
        when the device is taken. So groups that are in use already, or are taken whole, cost little.
        """
        whole = [position for position in positions if not self.parts[position] and not self.rooms[position]]
        lost = 0.0
        for level, weight in enumerate(WEIGHTS):
            for group, number in Counter(self.links[position][level] for position in whole).items():
                free, total = self.groups[level][group]
                lost += weight * sum(free - each for each in range(number)) / max(1, total)
        return lost
