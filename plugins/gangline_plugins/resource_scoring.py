"""The scoring strategies over resources: LeastAllocated, MostAllocated, RequestedToCapacityRatio.

Integer arithmetic and rounding as in kube-scheduler's noderesources plugins, over all nodes at once. Most decisions
score a few nodes again, on which the pods before were placed: for one node plain numbers take a third of the time.
For all nodes, what does not depend on the pod is kept as floating point numbers.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import sub
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import Changes, KeptColumns, NodeView, PodClass, ScoreColumn, memo_key
from gangline_plugins.resource_amounts import ADVERTISED, Amounts

Int64Column = NDArray[np.int64]
Strategy = Callable[[PodClass, NodeView], ScoreColumn]
"""From a pod class to a score of 0..100 per node."""
EXACT = 2**45
"""Amounts up to which a hundredfold and percentages are exact in floating point."""
_DEFAULTED = ("cpu", "memory")
"""The resources with defaults for pods that do not ask for them, in the order of `NodeView.nonzero`."""
_ALWAYS = ("cpu", "memory", "ephemeral-storage")
"""The resources that count for each pod."""
_KEPT_BYTES = 16 * 1024 * 1024
"""Memory for the tables of nodes, by the resources that count."""
_max, _min = np.maximum.reduce, np.minimum.reduce
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
    """The argument requestedToCapacityRatio: points of a function from utilization to score."""

    shape: list[ShapePoint] = []


class ScoringStrategy(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """How nodes are rated."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: list[ResourceSpec] = []
    requested_to_capacity_ratio: Shape | None = None


def build_strategy(strategy: ScoringStrategy, amounts: Amounts = ADVERTISED, own: tuple[Changes, ...] = ()) -> Strategy:
    """The function for a configured strategy; `own` are the logs of the amounts.

    Raises ValueError for weights or shapes that make no sense.
    """
    resources = check_resources(strategy.resources) or [("cpu", 1), ("memory", 1)]
    if strategy.type == "LeastAllocated":
        return _Percentages(resources, amounts, own, of_free=True)
    if strategy.type == "MostAllocated":
        return _Percentages(resources, amounts, own, of_free=False)
    shape = strategy.requested_to_capacity_ratio
    points = check_shape(shape.shape if shape else [])
    return _ratios(resources, amounts, _ratio(points))


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


class CountedResources(msgspec.Struct, frozen=True, eq=False):
    """Resources that count for some pods, one row each."""

    resources: tuple[str, ...]
    weights: ScoreColumn
    numbers: tuple[float, ...]
    """The weights as plain numbers."""
    total: float
    """The sum of the weights."""
    defaulted: tuple[tuple[int, int], ...]
    """The places of cpu and memory among the resources, and which row of `nonzero` each has."""

    def used(self, nodes: NodeView, amounts: Amounts) -> tuple[Int64Column, Int64Column]:
        """Requested (without the pod) and allocatable amounts, with defaults for cpu and memory."""
        allocatable, used = amounts.of(self.resources, nodes)
        if self.resources == _DEFAULTED:
            return nodes.nonzero, allocatable
        used, nonzero = used.copy(), nodes.nonzero
        for at, default in self.defaulted:
            used[at] = nonzero[default]
        return used, allocatable

    def used_by_one(self, nodes: NodeView, amounts: Amounts) -> tuple[list[int], list[int]]:
        """As `used`, as plain numbers, for the only node of the view."""
        allocatable, used = amounts.of_one(self.resources, nodes)
        nonzero = nodes.nonzero_of_one
        for at, default in self.defaulted:
            used[at] = nonzero[default]
        return used, allocatable


class Share(msgspec.Struct, frozen=True, eq=False):
    """The amounts of a pod class. A struct is made in a sixth of the time of a dataclass."""

    counted: CountedResources
    """The resources that count for the class."""
    numbers: tuple[int, ...]
    """The amount of each, as plain numbers."""

    @property
    def wanted(self) -> Int64Column:
        """The amounts, one row for each resource."""
        return np.array(self.numbers, dtype=np.int64)[:, None]


def share_of(resources: Sequence[tuple[str, int]], wanted: Mapping[str, int]) -> Share:
    """The resources that count; an extended resource counts only if the pod asks for it."""
    counted = _counted(tuple([(r, w) for r, w in resources if r in _ALWAYS or wanted.get(r, 0)]))
    return Share(counted, tuple([wanted.get(name, 0) for name in counted.resources]))


@lru_cache(maxsize=1024)
def _counted(resources: tuple[tuple[str, int], ...]) -> CountedResources:
    names = tuple([name for name, _ in resources])
    weights = np.array([weight for _, weight in resources], dtype=np.float64)
    weights.flags.writeable = False
    defaulted = tuple([(names.index(name), row) for row, name in enumerate(_DEFAULTED) if name in names])
    return CountedResources(names, weights[:, None], tuple(weights.tolist()), float(weights.sum()), defaulted)


class _Percentages:
    """The weighted mean of percentages: of what stays free with the pod, or of what is in use.

    The values that do not depend on the pod are kept for all nodes, in a table of floating point numbers with one
    column per node. Its rows are: for each resource a hundred times the free or used amount; for each resource the
    allocatable amount; the sum of the weights of the resources that the node has; and the limit of the rated amounts,
    because a comparison with a row of the table takes half the time of one with a number. If a node lacks a resource,
    the allocatable amount is infinite, so that the percentage is 0. The scores are those of `_weighted_mean`, as long
    as floating point is exact.
    """

    def __init__(
        self, resources: Sequence[tuple[str, int]], amounts: Amounts, own: tuple[Changes, ...], of_free: bool
    ) -> None:
        self._resources = resources
        self._amounts = amounts
        self._of_free = of_free
        self._part = _unused if of_free else min
        """From the used and the allocatable amount to the amount that is scored as a percentage."""
        self._limit = 0.0 if of_free else 100.0
        self._memo = memo_key(Share, *resources)
        self._kept = KeptColumns(self._table, _KEPT_BYTES, own, one=self._table_of_one)
        self._inexact = set[CountedResources]()
        """Resources of which some node has had too much for floating point."""
        self._partly = set[CountedResources]()
        """Resources of which some node has had some, but not all: there only these count, so the weights differ."""

    def __call__(self, cls: PodClass, nodes: NodeView) -> ScoreColumn:
        """The score of each node."""
        share: Share | None = cls.memo.get(self._memo)
        if share is None:
            share = cls.memo[self._memo] = share_of(self._resources, cls.requests.scoring)
        counted = share.counted
        if not counted.resources:
            return np.zeros(len(nodes))
        if len(nodes) == 1:
            return np.array([_mean_of_one(share, *counted.used_by_one(nodes, self._amounts), self._part)])
        if len(nodes) <= FEW:
            used, allocatable = counted.used(nodes, self._amounts)
            one_by_one = zip(used.T.tolist(), allocatable.T.tolist(), strict=True)
            return np.array([_mean_of_one(share, *each, self._part) for each in one_by_one])
        if nodes.is_whole and counted not in self._inexact:
            (table,) = self._kept.of(counted, nodes)
            if counted not in self._inexact:
                return self._from(table, share)
        used, allocatable = counted.used(nodes, self._amounts)
        return (_least if self._of_free else _most)(share, used + share.wanted, allocatable)

    def _from(self, table: ScoreColumn, share: Share) -> ScoreColumn:
        counted, limit = share.counted, table[-1]
        count, total = len(share.numbers), None
        has_weights = counted.total != count
        for place, (wanted, weight) in enumerate(zip(share.numbers, counted.numbers, strict=True)):
            rated: ScoreColumn
            if self._of_free:
                rated = table[place] - wanted * 100.0
                if _min(rated) < 0.0:  # a look takes a third of the time of `np.maximum`
                    np.maximum(rated, limit, out=rated)
                rated /= table[count + place]
            else:
                rated = table[place] + wanted * 100.0
                rated /= table[count + place]
                if _max(rated) > 100.0:
                    np.minimum(rated, limit, out=rated)
            np.floor(rated, out=rated)
            if has_weights:
                rated *= weight
            if total is None:
                total = rated
            else:
                total += rated
        assert total is not None  # some resource counts
        if counted in self._partly or math.frexp(counted.total)[0] != 0.5:
            total /= table[-2]
        else:
            total *= 1.0 / counted.total  # exact for a power of two, and in half the time
        return np.floor(total, out=total)

    def _table(self, counted: CountedResources, nodes: NodeView) -> tuple[ScoreColumn]:
        used, allocatable = counted.used(nodes, self._amounts)
        if int(allocatable.max(initial=0)) > EXACT:
            self._inexact.add(counted)
        count = len(used)
        table = np.empty((2 * count + 2, len(nodes)))
        table[:count] = allocatable - used if self._of_free else used
        table[:count] *= 100.0
        table[count:-2], table[-2] = allocatable, counted.total
        if not is_everywhere(allocatable):
            has = allocatable > 0
            if np.count_nonzero(has.any(axis=0) != has.all(axis=0)):
                self._partly.add(counted)
            table[count:-2] = np.where(has, allocatable, np.inf)
            table[-2] = np.maximum((counted.weights * has).sum(axis=0), 1.0)
        table[-1] = self._limit
        return (table,)

    def _table_of_one(self, counted: CountedResources, nodes: NodeView) -> tuple[list[float]]:
        """As `_table`, in plain numbers, for the only node of the view."""
        used, allocatable = counted.used_by_one(nodes, self._amounts)
        if max(allocatable) > EXACT:
            self._inexact.add(counted)
        free_or_used = map(sub, allocatable, used) if self._of_free else used
        weights = counted.total
        if min(allocatable) <= 0:
            if max(allocatable) > 0:
                self._partly.add(counted)
            weights = sum([weight for weight, whole in zip(counted.numbers, allocatable, strict=True) if whole > 0])
        numbers = [float(amount) * 100.0 for amount in free_or_used]
        numbers += [whole or math.inf for whole in allocatable]
        return ([*numbers, max(weights, 1.0), self._limit],)


def _ratios(
    resources: Sequence[tuple[str, int]],
    amounts: Amounts,
    mean: Callable[[Share, Int64Column, Int64Column], ScoreColumn],
) -> Strategy:
    """The mean of ratings that a function of the utilization gives."""
    memo = memo_key(Share, *resources)

    def score(cls: PodClass, nodes: NodeView) -> ScoreColumn:
        share: Share | None = cls.memo.get(memo)
        if share is None:
            share = cls.memo[memo] = share_of(resources, cls.requests.scoring)
        if not share.counted.resources:
            return np.zeros(len(nodes))
        used, allocatable = share.counted.used(nodes, amounts)
        return mean(share, used + share.wanted, allocatable)

    return score


def _mean_of_one(share: Share, used: list[int], allocatable: list[int], part: Callable[[int, int], int]) -> float:
    """`_weighted_mean` of the percentages of one node."""
    total = weights = 0.0
    for wanted, weight, before, whole in zip(share.numbers, share.counted.numbers, used, allocatable, strict=True):
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
        total: ScoreColumn = (share.counted.weights.T @ rated)[0]  # whole numbers far below 2**53: exact in any order
        total /= share.counted.total
        return np.floor(total, out=total)
    weights = share.counted.weights * (allocatable > 0)
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
    if int(whole.max(initial=0)) > EXACT:
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
        total = (rated * share.counted.weights).sum(axis=0)
        weights = (share.counted.weights * (rated > 0)).sum(axis=0)
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
