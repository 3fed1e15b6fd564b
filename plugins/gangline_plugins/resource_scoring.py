"""The scoring strategies over resources: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Integer arithmetic and rounding as in kube-scheduler's noderesources plugins, over all nodes at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import NodeView, ScoreColumn

Int64Column = NDArray[np.int64]
Strategy = Callable[[Mapping[str, int], NodeView], ScoreColumn]
"""From a pod's requests to a score of 0..100 per node."""
ResourceScore = Callable[[Int64Column, Int64Column], Int64Column]
"""From requested and allocatable amounts (> 0) to a score of 0..100."""


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


def build_strategy(strategy: ScoringStrategy) -> Strategy:
    """The function for a configured strategy. Raises ValueError for weights or shapes that make no sense."""
    resources = check_resources(strategy.resources) or [("cpu", 1), ("memory", 1)]
    if strategy.type == "LeastAllocated":
        return _weighted_mean(resources, _least)
    if strategy.type == "MostAllocated":
        return _weighted_mean(resources, _most)
    shape = strategy.requested_to_capacity_ratio
    points = check_shape(shape.shape if shape else [])
    return _ratio(resources, points)


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


def pairs(
    requests: Mapping[str, int], nodes: NodeView, resource: str, nonzero: bool
) -> tuple[Int64Column, Int64Column] | None:
    """Requested (with the pod) and allocatable amounts; None for an extended resource that the pod does not want."""
    wanted = requests.get(resource, 0)
    if wanted == 0 and resource not in ("cpu", "memory", "ephemeral-storage"):
        return None
    if nonzero and resource == "cpu":
        used = nodes.nonzero_cpu
    elif nonzero and resource == "memory":
        used = nodes.nonzero_memory
    else:
        used = nodes.requested(resource)
    return used + wanted, nodes.allocatable(resource)


def _weighted_mean(resources: Sequence[tuple[str, int]], rate: ResourceScore) -> Strategy:
    def score(requests: Mapping[str, int], nodes: NodeView) -> ScoreColumn:
        total = np.zeros(len(nodes), dtype=np.int64)
        weights = np.zeros(len(nodes), dtype=np.int64)
        for resource, weight in resources:
            pair = pairs(requests, nodes, resource, nonzero=True)
            if pair is None:
                continue
            requested, allocatable = pair
            has = allocatable > 0
            total += np.where(has, weight * rate(requested, np.maximum(allocatable, 1)), 0)
            weights += np.where(has, weight, 0)
        return (total // np.maximum(weights, 1)).astype(np.float64)

    return score


def _least(requested: Int64Column, allocatable: Int64Column) -> Int64Column:
    return np.where(requested > allocatable, 0, (allocatable - requested) * 100 // allocatable)


def _most(requested: Int64Column, allocatable: Int64Column) -> Int64Column:
    return np.minimum(requested, allocatable) * 100 // allocatable


def _ratio(resources: Sequence[tuple[str, int]], points: list[tuple[int, int]]) -> Strategy:
    # Utilisation is a whole percentage, so the function is a table of 101 values.
    table = np.array([_interpolate(points, p) for p in range(101)], dtype=np.int64)

    def score(requests: Mapping[str, int], nodes: NodeView) -> ScoreColumn:
        total = np.zeros(len(nodes), dtype=np.int64)
        weights = np.zeros(len(nodes), dtype=np.int64)
        for resource, weight in resources:
            pair = pairs(requests, nodes, resource, nonzero=True)
            if pair is None:
                continue
            requested, allocatable = pair
            has = allocatable > 0
            capacity = np.maximum(allocatable, 1)
            used = np.where(requested > capacity, 100, np.minimum(requested, capacity) * 100 // capacity)
            rated = np.where(has, table[used], 0)
            total += weight * rated
            weights += np.where(rated > 0, weight, 0)
        return np.floor(total / np.maximum(weights, 1) + 0.5)

    return score


def _interpolate(points: list[tuple[int, int]], utilization: int) -> int:
    """The broken line at a point; division towards zero, as in Go."""
    if utilization <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        if utilization <= x1:
            return y0 + int((y1 - y0) * (utilization - x0) / (x1 - x0))
    return points[-1][1]
