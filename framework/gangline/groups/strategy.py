"""How the pods of one workload want to lie to each other, by the annotation `topology.scheduler/placement-strategy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

Strategy = Literal["consolidated", "distributed", "balanced"]
"""As close as possible; over nodes and leaves; as the profile's own scores say."""
PLACEMENT_STRATEGY = "topology.scheduler/placement-strategy"
"""On a workload or its pods: consolidated, distributed or balanced; the last one where it is not there."""
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
"""The placement strategies that a workload may ask for."""
_DEFAULT: Strategy = "balanced"


def strategy_of(annotations: Mapping[str, str]) -> Strategy:
    """The strategy that is asked for; `balanced` where none is, or one that does not exist."""
    asked = annotations.get(PLACEMENT_STRATEGY, _DEFAULT)
    for strategy in STRATEGIES:
        if strategy == asked:
            return strategy
    return _DEFAULT
