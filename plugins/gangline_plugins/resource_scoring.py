"""The scoring strategies over resources: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Integer arithmetic and rounding as in kube-scheduler's noderesources plugins, over all nodes at once. Most decisions
score a few nodes again, on which the pods before were placed: for one node plain numbers take a third of the time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import NodeView, PodClass, ScoreColumn, memo_key
from gangline_plugins.resource_amounts import Amounts, advertised

Int64Column = NDArray[np.int64]
Strategy = Callable[[PodClass, NodeView], ScoreColumn]
"""From a pod class to a score of 0..100 per node."""
_EXACT = 2**45
FEW = 12
"""Up to so many nodes plain numbers are faster than arrays."""


class ResourceSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A resource and its weight, 1-100; 0 means 1."""

    name: str
    weight: int = 1


class ShapePoint(msgspec.Struct, forbid_unknown_fields=True):
    """A point of the function: utilisation 0-100 % to score 0-10."""

    utilization: int
    score: int


class Shape(msgspec.Struct, forbid_unknown_fields=True):
    """requestedToCapacityRatio."""

    shape: list[ShapePoint] = []


class ScoringStrategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """How nodes are rated."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: list[ResourceSpec] = []
    requested_to_capacity_ratio: Shape | None = None


def build_strategy(strategy: ScoringStrategy, amounts: Amounts = advertised) -> Strategy:
    """The function for a configured strategy. Raises ValueError for weights or shapes that make no sense."""
    resources = check_resources(strategy.resources) or [("cpu", 1), ("memory", 1)]
    if strategy.type == "LeastAllocated":
        return _strategy(resources, amounts, _least, _unused)
    if strategy.type == "MostAllocated":
        return _strategy(resources, amounts, _most, min)
    shape = strategy.requested_to_capacity_ratio
    points = check_shape(shape.shape if shape else [])
    return _strategy(resources, amounts, _ratio(points))


def check_resources(resources: Sequence[ResourceSpec]) -> list[tuple[str, int]]:
    """Names and weights. Raises ValueError."""
    for resource in resources:
        if not 0 <= resource.weight <= 100:
            raise ValueError(f"the weight of resource {resource.name} must be 1..100, not {resource.weight}")
    names = [resource.name for resource in resources]
    if len(set(names)) != len(names):
        raise ValueError("a resource is named twice")
    return [(resource.name, resource.weight or 1) for resource in resources]


def check_shape(points: Sequence[ShapePoint]) -> list[tuple[int, int]]:
    """Utilisation and score 0..100 of each point. Raises ValueError."""
    if not points:
        raise ValueError("requestedToCapacityRatio.shape needs at least one point")
    last = -1
    for point in points:
        if not 0 <= point.utilization <= 100 or not 0 <= point.score <= 10:
            raise ValueError("shape points need a utilization of 0..100 and a score of 0..10")
        if point.utilization <= last:
            raise ValueError("shape points must be sorted by rising utilization")
        last = point.utilization
    return [(point.utilization, point.score * 10) for point in points]


@dataclass(frozen=True, slots=True, eq=False)
class Share:
    """The resources that count for a pod class, one row each."""

    resources: tuple[str, ...]
    wanted: Int64Column
    weights: ScoreColumn
    total: float
    """The sum of the weights."""
    numbers: tuple[tuple[int, float], ...]
    """`wanted` and `weights` as plain numbers."""

    def used(self, nodes: NodeView, amounts: Amounts) -> tuple[Int64Column, Int64Column]:
        """Requested (without the pod) and allocatable amounts, with defaults for cpu and memory."""
        allocatable, used = amounts(self.resources, nodes)
        if self.resources == ("cpu", "memory"):
            return nodes.nonzero, allocatable
        used = used.copy()
        for default, name in enumerate(("cpu", "memory")):
            if name in self.resources:
                used[self.resources.index(name)] = nodes.nonzero[default]
        return used, allocatable


def share_of(resources: Sequence[tuple[str, int]], wanted: Mapping[str, int]) -> Share:
    """The resources that count; an extended resource counts only if the pod asks for it."""
    counted = [(r, w) for r, w in resources if wanted.get(r, 0) or r in ("cpu", "memory", "ephemeral-storage")]
    names = tuple(name for name, _ in counted)
    numbers = tuple((wanted.get(name, 0), float(weight)) for name, weight in counted)
    return Share(
        names,
        np.array([amount for amount, _ in numbers], dtype=np.int64)[:, None],
        np.array([weight for _, weight in numbers], dtype=np.float64)[:, None],
        sum(weight for _, weight in numbers),
        numbers,
    )


def _strategy(
    resources: Sequence[tuple[str, int]],
    amounts: Amounts,
    mean: Callable[[Share, Int64Column, Int64Column], ScoreColumn],
    part: Callable[[int, int], int] | None = None,
) -> Strategy:
    """`part` gives from the used and the allocatable amount what counts in percent, if the mean is of percentages."""
    memo = memo_key(Share, *resources)

    def score(cls: PodClass, nodes: NodeView) -> ScoreColumn:
        share: Share | None = cls.memo.get(memo)
        if share is None:
            share = cls.memo[memo] = share_of(resources, cls.requests.scoring)
        if not share.resources:
            return np.zeros(len(nodes))
        used, allocatable = share.used(nodes, amounts)
        if part is not None and len(nodes) <= FEW:
            one_by_one = zip(used.T.tolist(), allocatable.T.tolist(), strict=True)
            return np.array([_mean_of_one(share, *each, part) for each in one_by_one])
        return mean(share, used + share.wanted, allocatable)

    return score


def _mean_of_one(share: Share, used: list[int], allocatable: list[int], part: Callable[[int, int], int]) -> float:
    """`_weighted_mean` of the percentages of one node."""
    total = weights = 0.0
    for (wanted, weight), before, whole in zip(share.numbers, used, allocatable, strict=True):
        if whole > 0:
            total += weight * (part(before + wanted, whole) * 100 // whole)
            weights += weight
    return float(total // max(weights, 1.0))


def _unused(used: int, allocatable: int) -> int:
    return max(allocatable - used, 0)


def _least(share: Share, used: Int64Column, allocatable: Int64Column) -> ScoreColumn:
    return _weighted_mean(share, percent(np.maximum(allocatable - used, 0), allocatable), allocatable)


def _most(share: Share, used: Int64Column, allocatable: Int64Column) -> ScoreColumn:
    return _weighted_mean(share, percent(np.minimum(used, allocatable), allocatable), allocatable)


def _weighted_mean(share: Share, rated: ScoreColumn, allocatable: Int64Column) -> ScoreColumn:
    """The weighted mean, rounded down; a resource that a node does not have does not count there."""
    if is_everywhere(allocatable):
        total: ScoreColumn = (share.weights.T @ rated)[0]  # whole numbers far below 2**53: exact in any order
        total /= share.total
        return np.floor(total, out=total)
    weights = share.weights * (allocatable > 0)
    return np.floor((rated * weights).sum(axis=0) / np.maximum(weights.sum(axis=0), 1.0))


def is_everywhere(allocatable: Int64Column) -> bool:
    """Whether every node has some of every resource."""
    return bool(allocatable.min(initial=1) > 0)  # half the time of all()


def percent(part: Int64Column, whole: Int64Column) -> ScoreColumn:
    """100 part / whole, rounded down exactly; 0 where whole is 0, as then part must be.

    Floating point is exact here up to 2**45 (with quotients of at most 100 the rounding error stays below 1 / whole),
    and several times faster than integer division; larger amounts take the slow way.
    """
    if not is_everywhere(whole):
        whole = np.maximum(whole, 1)
    if int(whole.max(initial=0)) > _EXACT:
        return (part * 100 // whole).astype(np.float64)
    result = part * 100.0
    result /= whole
    return np.floor(result, out=result)


def _ratio(points: list[tuple[int, int]]) -> Callable[[Share, Int64Column, Int64Column], ScoreColumn]:
    # Utilisation is a whole percentage, so the function is a table of 101 values.
    table = np.array([_interpolate(points, p) for p in range(101)], dtype=np.float64)

    def mean(share: Share, used: Int64Column, allocatable: Int64Column) -> ScoreColumn:
        utilization = np.where(used > allocatable, 100.0, percent(np.minimum(used, allocatable), allocatable))
        rated = np.where(allocatable > 0, table[utilization.astype(np.intp)], 0.0)
        total = (rated * share.weights).sum(axis=0)
        weights = (share.weights * (rated > 0)).sum(axis=0)
        return np.floor(total / np.maximum(weights, 1.0) + 0.5)

    return mean


def _interpolate(points: list[tuple[int, int]], utilization: int) -> int:
    """The broken line at a point; division towards zero, as in Go."""
    if utilization <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if utilization <= x1:
            return y0 + int((y1 - y0) * (utilization - x0) / (x1 - x0))
    return points[-1][1]
