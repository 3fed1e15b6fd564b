"""How large the cluster and how long the day is: small enough for CI by itself, anything by environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from gangline_e2e.day.fabric import Fabric
from gangline_e2e.day.plan import Day

PREFIX = "GANGLINE_DAY_"


@dataclass(frozen=True, slots=True)
class Size:
    """A cluster, and what happens on it."""

    fabric: Fabric
    day: Day


def size(env: Mapping[str, str] = os.environ) -> Size:
    """What $GANGLINE_DAY_NODES, _GPUS, _LEAVES, _SPINES, _PODS, _MINUTES and _SEED say.

    A longer day has as many more pods, unless their number is given.
    """

    def number(name: str, default: float) -> float:
        return float(env.get(f"{PREFIX}{name}") or default)

    usual = Day()
    seconds = number("MINUTES", usual.seconds / 60) * 60
    nodes = int(number("NODES", 5000))
    leaves = int(number("LEAVES", max(1, nodes // 20)))
    fabric = Fabric(nodes, int(number("GPUS", 8)), leaves, int(number("SPINES", max(1, leaves // 25))))
    pods = int(number("PODS", usual.pods * seconds / usual.seconds))
    return Size(fabric, Day(pods, seconds, int(number("SEED", usual.seed))))
