"""The nodes of each leaf that one group may use: limits on nodes and GPUs per leaf, as a mask over rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gangline_plugins.gpu.node_devices import WHOLE
from gangline_plugins.leaf_spine.arguments import LeafSpineSettings
from gangline_plugins.leaf_spine.demand import Demand
from gangline_plugins.leaf_spine.documents import Domain
from gangline_plugins.leaf_spine.layout import Bools, Ints, Layout

NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class DomainLimits:
    """The limits of each leaf, in the order of the line."""

    nodes: Ints
    amount: Ints
    """GPUs, in the units of the demand."""

    @property
    def any(self) -> bool:
        """Whether any leaf has a limit."""
        return bool(self.nodes.min(initial=NO_LIMIT) < NO_LIMIT or self.amount.min(initial=NO_LIMIT) < NO_LIMIT)


def limits_of(layout: Layout, settings: LeafSpineSettings, domains: Mapping[str, Domain]) -> DomainLimits:
    """The limits of the settings and those of single leaves; the smaller one counts."""
    nodes = np.full(len(layout), settings.max_nodes or NO_LIMIT, dtype=np.int64)
    amount = np.full(len(layout), WHOLE * settings.max_gpus if settings.max_gpus else NO_LIMIT, dtype=np.int64)
    if any(domain.max_nodes or domain.max_gpus for domain in domains.values()):
        for leaf, number in enumerate(layout.number.tolist()):  # once per change of topology or configuration
            domain = domains.get(layout.leaves.values[number])
            if domain is not None and domain.max_nodes:
                nodes[leaf] = min(nodes[leaf], domain.max_nodes)
            if domain is not None and domain.max_gpus:
                amount[leaf] = min(amount[leaf], WHOLE * domain.max_gpus)
    return DomainLimits(nodes, amount)


def usable(layout: Layout, demand: Demand, limits: DomainLimits) -> Bools:
    """For each of `layout.rows` whether the group may use it. Where limits apply, the nodes that hold most members are
    kept.
    """
    rows = layout.rows
    holds = demand.roles[0].capacity[rows].copy()
    for role in demand.roles[1:]:
        holds += role.capacity[rows]
    may = holds > 0
    if not limits.any:
        return may
    most = demand.most_on()[rows]
    may &= most <= limits.amount[layout.leaf_of]
    order = np.lexsort((most, -holds, ~may, layout.leaf_of))
    leaf, most = layout.leaf_of[order], np.where(may, most, 0)[order]
    place = np.arange(len(rows)) - layout.starts[leaf]
    filled = np.cumsum(most)
    before = (filled - most)[layout.starts[:-1].clip(max=max(0, len(rows) - 1))] if len(rows) else filled
    allowed = (place < limits.nodes[leaf]) & (filled - before[leaf] <= limits.amount[leaf])
    kept = np.zeros(len(rows), dtype=np.bool_)
    kept[order] = allowed
    return kept & may


def sizes_of(layout: Layout, demand: Demand, limits: DomainLimits) -> Ints:
    """For each leaf how many of its nodes one group may use, regardless of the pods on them."""
    sizes = np.minimum(layout.sizes, limits.nodes)
    most = int(demand.most_on().max(initial=0))
    return np.minimum(sizes, limits.amount // most) if most else sizes


def usual(sizes: Ints) -> int:
    """The most frequent size of a leaf; of several equally frequent ones the largest; 0 if no leaf has a node."""
    counts = np.bincount(sizes[sizes > 0], minlength=1)
    return len(counts) - 1 - int(np.argmax(counts[::-1])) if counts.any() else 0
