"""How large the cluster and how long the day is: small enough for CI by itself, anything by environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from gangline_e2e.day.fabric import Fabric
from gangline_e2e.day.plan import Day

PREFIX = "GANGLINE_DAY_"
NODES, PODS, MINUTES = 5000, 20_000, 4
"""A day that 2 cores play in less than 8 minutes, with API server, etcd, kwok, schedulers and player on them."""


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster, and what happens on it."""

    fabric: Fabric
    day: Day


def size(env: Mapping[str, str] = os.environ) -> Size:
    """The size by $GANGLINE_DAY_NODES, _GPUS, _LEAVES, _SPINES, _PODS, _MINUTES and _SEED, or by default."""

    def number(name: str, default: float) -> float:
        return float(env.get(f"{PREFIX}{name}") or default)

    nodes = int(number("NODES", NODES))
    leaves = int(number("LEAVES", max(1, nodes // 20)))
    fabric = Fabric(nodes, int(number("GPUS", 8)), leaves, int(number("SPINES", max(1, leaves // 25))))
    day = Day(int(number("PODS", PODS)), 60 * number("MINUTES", MINUTES), int(number("SEED", 1)))
    return Size(fabric, day)
