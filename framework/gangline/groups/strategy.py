"""How the pods of one workload are spread, by the annotation `topology.scheduler/placement-strategy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Strategy = Literal["consolidated", "distributed", "balanced"]
"""consolidated: as close together as possible; distributed: spread over nodes and leaf switches; balanced: by the
profile's own scores."""
PLACEMENT_STRATEGY = "topology.scheduler/placement-strategy"
"""On a workload or its pods: consolidated, distributed or balanced; balanced if it is missing."""
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
"""The placement strategies that a workload may ask for."""
_DEFAULT: Strategy = "balanced"


def strategy_of(annotations: Mapping[str, str]) -> Strategy:
    """The strategy in the annotations; `balanced` if it is missing or unknown."""
    asked = annotations.get(PLACEMENT_STRATEGY, _DEFAULT)
    for strategy in STRATEGIES:
        if strategy == asked:
            return strategy
    return _DEFAULT
