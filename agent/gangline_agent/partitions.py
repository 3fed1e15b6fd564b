"""The parts into which MIG could cut a GPU, as devices that share the GPU's memory slices and multiprocessors.

A profile takes some of the eight memory slices of a GPU, from certain slices on. Profiles with media engines are left
out. The numbers are those of NVIDIA's user guide for MIG.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gangline.model.resource_slices import Counter, DeviceCounterConsumption

MEMORY_SLICES = 8
STARTS = {
    "1g": (1, (0, 1, 2, 3, 4, 5, 6)),
    "1g wide": (2, (0, 2, 4, 6)),
    "2g": (2, (0, 2, 4)),
    "3g": (4, (0, 4)),
    "4g": (4, (0,)),
    "7g": (8, (0,)),
}
"""Kind of profile to the memory slices that it takes, and the slices at which it may begin."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One profile at one place of a GPU."""

    profile: str
    start: int
    slices: int
    memory_mib: int
    multiprocessors: int

    @property
    def name(self) -> str:
        """Unique on the GPU, and part of a DNS label."""
        return f"{self.profile.replace('.', '-')}-{self.start}"


def of_product(product: str) -> tuple[Partition, ...]:
    """All partitions of a GPU by its product name, the largest first; none for a GPU that is not known."""
    return next((found for key, found in _KNOWN.items() if product.startswith(key)), ())


def counters(parts: Sequence[Partition]) -> dict[str, Counter]:
    """What the partitions of a GPU share: the largest of them takes all."""
    return amounts(max(parts, key=lambda part: part.multiprocessors))


def amounts(part: Partition) -> dict[str, Counter]:
    """What a partition takes of the counters of its GPU."""
    taken = {f"memory-slice-{at}": Counter("1") for at in range(part.start, part.start + part.slices)}
    return {"multiprocessors": Counter(str(part.multiprocessors)), **taken}


def consumed(counter_set: str, taken: dict[str, Counter]) -> DeviceCounterConsumption:
    """A device's entry that takes these amounts of a counter set."""
    return DeviceCounterConsumption(counter_set, taken)


def _cut(profiles: Mapping[str, tuple[str, int, int]]) -> tuple[Partition, ...]:
    """Kind of profile to its name, memory in MiB and multiprocessors."""
    return tuple(
        Partition(name, start, STARTS[kind][0], mib, multiprocessors)
        for kind, (name, mib, multiprocessors) in profiles.items()
        for start in STARTS[kind][1]
    )


def _of_80_gb(per_slice: int, three: int, whole: int, wide: int) -> tuple[Partition, ...]:
    return _cut(
        {
            "7g": ("7g.80gb", 81152, whole),
            "4g": ("4g.40gb", 40448, 4 * per_slice),
            "3g": ("3g.40gb", 40448, three),
            "2g": ("2g.20gb", 20096, 2 * per_slice),
            "1g wide": ("1g.20gb", 20096, wide),
            "1g": ("1g.10gb", 9984, per_slice),
        }
    )


_KNOWN = {
    "NVIDIA A100-SXM4-40GB": _cut(
        {
            "7g": ("7g.40gb", 40192, 98),
            "4g": ("4g.20gb", 19968, 56),
            "3g": ("3g.20gb", 19968, 42),
            "2g": ("2g.10gb", 9984, 28),
            "1g wide": ("1g.10gb", 9984, 14),
            "1g": ("1g.5gb", 4864, 14),
        }
    ),
    "NVIDIA A100-SXM4-80GB": _of_80_gb(14, 42, 98, 14),
    "NVIDIA A100 80GB PCIe": _of_80_gb(14, 42, 98, 14),
    "NVIDIA H100 80GB HBM3": _of_80_gb(16, 60, 132, 26),
}
