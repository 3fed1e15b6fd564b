"""NodeResourcesBalancedAllocation: prefers nodes whose resources the pod leaves more evenly used."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import (
    NODE,
    SKIP,
    SPECS,
    Handle,
    Int64Column,
    KeptColumns,
    NodeView,
    PodInfo,
    ScoreColumn,
    Status,
    hookimpl,
    memo_key,
)
from gangline_plugins.resource_amounts import amounts_of
from gangline_plugins.resource_scoring import (
    EXACT,
    FEW,
    CountedResources,
    ResourceSpec,
    Share,
    check_resources,
    is_everywhere,
    share_of,
)

Matrix = NDArray[np.float64]
"""One row per resource, one column per node."""
_max = np.maximum.reduce
_KEPT_BYTES = 8 * 1024 * 1024
"""Memory for what is kept of nodes without the pod, by the resources that count."""


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream."""

    resources: list[ResourceSpec] = msgspec.field(default_factory=lambda: [ResourceSpec("cpu"), ResourceSpec("memory")])


class NodeResourcesBalancedAllocation:
    """Scores how much the pod changes the spread between the used fractions of the resources.

    Source: kube-scheduler v1.36, balanced_allocation.go: 50 + (50 + with - without) / 2.
    """

    name = "NodeResourcesBalancedAllocation"
    reads = NODE | SPECS
    args_type = Args

    def __init__(self, args: Args, handle: Handle) -> None:
        self._resources = check_resources(args.resources)
        self._memo = memo_key(NodeResourcesBalancedAllocation, *self._resources)
        self._amounts, self.reads_own = amounts_of(handle, [name for name, _ in self._resources])
        self._kept = KeptColumns(self._columns, _KEPT_BYTES, own=self.reads_own)
        self._tables = KeptColumns(self._table, _KEPT_BYTES, own=self.reads_own, one=self._table_of_one)
        self._inexact = set[CountedResources]()
        """Resources of which some node has had too much for floating point."""

    @hookimpl
    def pre_score(self, pod: PodInfo) -> Status | None:
        """Skip the score for a pod that asks for none of the resources."""
        wanted = pod.cls.requests.real
        return None if any(wanted.get(name, 0) for name, _ in self._resources) else SKIP

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """50 for no change, more if the node's use becomes more even."""
        share: Share | None = pod.cls.memo.get(self._memo)
        if share is None:
            share = pod.cls.memo[self._memo] = share_of(self._resources, pod.cls.requests.real)
        counted = share.counted
        if len(counted.resources) == 2:
            if len(nodes) == 1:
                whole, before = self._amounts.of_one(counted.resources, nodes)
                if min(whole) > 0:
                    return np.array([_score_of_one(share, *before, *whole)])
            elif len(nodes) <= FEW:
                allocatable, used = self._amounts.of(counted.resources, nodes)
                if is_everywhere(allocatable):
                    one_by_one = zip(*used.tolist(), *allocatable.tolist(), strict=True)
                    return np.array([_score_of_one(share, *amounts) for amounts in one_by_one])
            elif nodes.is_whole and counted not in self._inexact:
                (table,) = self._tables.of(counted, nodes)
                if counted not in self._inexact:
                    return _scores_of_two(table, share)
        change = _evenness(*self._amounts.of(counted.resources, nodes), share.wanted)
        change -= self._as_they_are(counted, nodes)
        change += 50.0
        change *= 0.5
        return np.trunc(change) + 50.0

    def _as_they_are(self, counted: CountedResources, nodes: NodeView) -> ScoreColumn:
        """How even nodes are without the pod. This is the same for all pods, so the answer for all nodes is kept."""
        return self._kept.of(counted, nodes)[0] if nodes.is_whole else self._columns(counted, nodes)[0]

    def _columns(self, counted: CountedResources, nodes: NodeView) -> tuple[ScoreColumn]:
        return (_evenness(*self._amounts.of(counted.resources, nodes)),)

    def _table(self, counted: CountedResources, nodes: NodeView) -> tuple[Matrix]:
        """The part of the scores that does not depend on the pod, for two resources: 6 rows, one column per node.

        The rows are the requested amounts of both resources, their allocatable amounts, the evenness without the pod
        less 150, and the limit of the used fractions. The limit is a row because a comparison with a column takes half
        the time of one with a number. If a node lacks one of the resources, both allocatable amounts are infinity: then
        both fractions are 0, which is even.
        """
        allocatable, used = self._amounts.of(counted.resources, nodes)
        if int(allocatable.max(initial=0)) > EXACT:
            self._inexact.add(counted)
        table = np.empty((6, len(nodes)))
        table[:2] = used
        table[2:4] = allocatable
        if not is_everywhere(allocatable):
            table[2:4] = np.where((allocatable > 0).all(axis=0), allocatable, np.inf)
        table[4] = _evenness(allocatable, used) - 150.0
        table[5] = 1.0
        return (table,)

    def _table_of_one(self, counted: CountedResources, nodes: NodeView) -> tuple[list[float]]:
        """As `_table`, in plain numbers, for the only node of the view."""
        (whole, other), (used, other_used) = self._amounts.of_one(counted.resources, nodes)
        if max(whole, other) > EXACT:
            self._inexact.add(counted)
        if min(whole, other) <= 0:
            return ([used, other_used, math.inf, math.inf, -50.0, 1.0],)
        evenness = _evenness_of_two(used / whole, other_used / other)
        return ([used, other_used, whole, other, evenness - 150.0, 1.0],)


def _scores_of_two(table: Matrix, share: Share) -> ScoreColumn:
    """The scores of all nodes, from the table of the two resources that count.

    The evenness is `(1 - difference / 2) * 100` in fewer steps, which give the same: halving and doubling are exact. So
    are sums of whole numbers: with two resources the evenness is 50..100, so no change is below 0, and 50 may be added
    to it before it is rounded.
    """
    first, second = share.numbers
    change: ScoreColumn = table[0] + float(first)
    change /= table[2]
    if _max(change) > 1.0:  # a look takes a third of the time of `np.minimum`, and mostly no node is over its limit
        np.minimum(change, table[5], out=change)
    other: ScoreColumn = table[1] + float(second)
    other /= table[3]
    if _max(other) > 1.0:
        np.minimum(other, table[5], out=other)
    change -= other
    np.abs(change, out=change)
    np.subtract(2.0, change, out=change)
    change *= 50.0
    np.trunc(change, out=change)
    change -= table[4]
    change *= 0.5
    return np.trunc(change, out=change)


def _score_of_one(share: Share, used: int, other_used: int, whole: int, other_whole: int) -> float:
    """The score of one node that has both resources."""
    more, other_more = share.numbers
    before = _evenness_of_two(used / whole, other_used / other_whole)
    after = _evenness_of_two((used + more) / whole, (other_used + other_more) / other_whole)
    return math.trunc((after - before + 50.0) * 0.5) + 50.0


def _evenness_of_two(first: float, second: float) -> float:
    """`_evenness` of one node that has two resources, of which these fractions are used."""
    return float(math.trunc((1.0 - 0.5 * abs(min(first, 1.0) - min(second, 1.0))) * 100.0))


def _evenness(allocatable: Int64Column, used: Int64Column, more: Int64Column | int = 0) -> ScoreColumn:
    """0..100 for each node, rounded down, with so much more of each resource in use."""
    everywhere = is_everywhere(allocatable)
    fractions = (used + more).astype(np.float64)  # before the division, which is slower on integers
    fractions /= (allocatable if everywhere else np.maximum(allocatable, 1)).astype(np.float64)
    np.minimum(fractions, 1.0, out=fractions)
    if len(used) == 2 and everywhere:
        evenness = np.abs(fractions[0] - fractions[1])
        evenness *= -0.5
    else:
        evenness = -_deviation(fractions, allocatable > 0)
    evenness += 1.0
    evenness *= 100.0
    return np.trunc(evenness, out=evenness)


def _deviation(fractions: Matrix, has: NDArray[np.bool_]) -> ScoreColumn:
    """The standard deviation per node, in the order of operations that makes rounding the same as upstream's."""
    fractions = np.where(has, fractions, 0.0)
    count = has.sum(axis=0)
    divisor = np.maximum(count, 1)
    total = np.zeros(fractions.shape[1])
    for fraction in fractions:
        total += fraction
    mean = total / divisor
    squares = np.zeros(fractions.shape[1])
    for fraction, counts in zip(fractions, has, strict=True):
        squares += np.where(counts, (fraction - mean) * (fraction - mean), 0.0)
    deviation = np.sqrt(squares / divisor)
    highest = np.where(has, fractions, -1.0).max(axis=0)
    lowest = np.where(has, fractions, 2.0).min(axis=0)
    deviation = np.where(count == 2, np.abs((highest - lowest) / 2.0), deviation)
    return np.where(count < 2, 0.0, deviation)
