"""NodeResourcesBalancedAllocation: prefer nodes that the pod leaves more evenly used."""

from __future__ import annotations

import msgspec
import numpy as np

from gangline import NODE, PODS, SKIP, NodeView, PodInfo, ScoreColumn, Status, hookimpl
from gangline_plugins.resource_scoring import ResourceSpec, check_resources, pairs


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream."""

    resources: list[ResourceSpec] = msgspec.field(default_factory=lambda: [ResourceSpec("cpu"), ResourceSpec("memory")])


class NodeResourcesBalancedAllocation:
    """Scores how much the pod changes the spread between the used fractions of the resources.

    Source: kube-scheduler v1.36, balanced_allocation.go: 50 + (50 + with - without) / 2.
    """

    name = "NodeResourcesBalancedAllocation"
    reads = NODE | PODS
    args_type = Args

    def __init__(self, args: Args) -> None:
        self._resources = [name for name, _ in check_resources(args.resources)]

    @hookimpl
    def pre_score(self, pod: PodInfo) -> Status | None:
        """A pod that asks for none of the resources changes nothing."""
        wanted = pod.cls.requests.real
        return None if any(wanted.get(r, 0) for r in self._resources) else SKIP

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """50 for no change, more where the node becomes more even."""
        wanted = pod.cls.requests.real
        used, capacity, requests = [], [], []
        for resource in self._resources:
            pair = pairs(wanted, nodes, resource, nonzero=False)
            if pair is not None:
                used.append(pair[0])
                capacity.append(pair[1])
                requests.append(wanted.get(resource, 0))
        if not used:
            return np.full(len(nodes), 75.0)
        allocatable = np.array(capacity, dtype=np.float64)
        after = np.array(used, dtype=np.float64)
        before = after - np.array(requests, dtype=np.float64)[:, None]
        change = _evenness(after, allocatable) - _evenness(before, allocatable)
        return 50.0 + np.trunc((50.0 + change) / 2.0)


def _evenness(used: np.ndarray, allocatable: np.ndarray) -> ScoreColumn:
    """100 (1 - standard deviation of the used fractions), whole; resources that a node lacks do not count."""
    has = allocatable > 0
    fractions = np.minimum(np.where(has, used / np.where(has, allocatable, 1.0), 0.0), 1.0)
    if len(fractions) == 2 and has.all():
        deviation = np.abs((fractions[0] - fractions[1]) / 2.0)
        return np.trunc((1.0 - deviation) * 100.0)
    count = has.sum(axis=0)
    divisor = np.maximum(count, 1)
    total = np.zeros(used.shape[1])
    for fraction in fractions:  # in order, so that rounding is upstream's
        total += fraction
    mean = total / divisor
    squares = np.zeros(used.shape[1])
    for fraction, counts in zip(fractions, has, strict=True):
        squares += np.where(counts, (fraction - mean) * (fraction - mean), 0.0)
    deviation = np.sqrt(squares / divisor)
    if len(fractions) > 1:
        pair = _pair_deviation(fractions, has)
        deviation = np.where(count == 2, pair, deviation)
    deviation = np.where(count < 2, 0.0, deviation)
    return np.trunc((1.0 - deviation) * 100.0)


def _pair_deviation(fractions: np.ndarray, has: np.ndarray) -> ScoreColumn:
    """Half the distance between the only two fractions that count."""
    highest = np.where(has, fractions, -1.0).max(axis=0)
    lowest = np.where(has, fractions, 2.0).min(axis=0)
    return np.abs((highest - lowest) / 2.0)
