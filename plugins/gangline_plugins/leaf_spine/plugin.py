"""LeafSpine: where a gang may go by how many nodes it needs, and how good each such place is."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gangline import (
    Action,
    EventHint,
    GroupAttempt,
    Handle,
    NodeView,
    Placement,
    PodInfo,
    Rows,
    Status,
    TopologyConstraint,
    hookimpl,
    on,
    strategy_of,
    unschedulable,
)
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.leases.plugin import own_namespace
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs
from gangline_plugins.leaf_spine.choosing import Choice, added, largest, loose_offer, offer
from gangline_plugins.leaf_spine.configured import configured
from gangline_plugins.leaf_spine.demand import Demand, counts_of, demand_of
from gangline_plugins.leaf_spine.domain_status import DomainStatuses
from gangline_plugins.leaf_spine.layout import Ints, Layout, find_leaves
from gangline_plugins.leaf_spine.limits import Limits, limits_of
from gangline_plugins.leaf_spine.remembering import Keeper, memory_of
from gangline_plugins.leaf_spine.terms import Values, score

_REMEMBERED = 65_536
"""Members of groups that may still be bound."""
_NONE: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class LeafPlacement(Placement):
    """A placement with its score, worked out together with all others of its kind."""

    score: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Rated:
    """What the placements of others are compared by, for one attempt."""

    attempt: GroupAttempt
    layout: Layout
    demand: Demand | None
    total: Ints
    used: Ints
    fewest: int


class LeafSpine:
    """Generates placements for groups that require no level of their own, and scores those of all groups."""

    name = "LeafSpine"
    args_type = LeafSpineArgs

    def __init__(self, args: LeafSpineArgs, handle: Handle) -> None:
        self._args = args
        self._handle = handle
        self._table = device_table(handle.state)
        self._configured = configured(handle)
        self._configured.use(args)
        self.watches = self._configured.watches
        self._memory = memory_of(handle.state, handle.profile)
        self._members: OrderedDict[str, str] = OrderedDict()
        self._layout: Layout | None = None
        self._limits: tuple[Layout | None, int, Limits | None] = (None, -1, None)
        self._history: tuple[Layout | None, int, Values] = (None, -1, np.zeros(0))
        self._rated: _Rated | None = None
        handle.run(Keeper(handle, self._memory, own_namespace()).run)
        handle.run(DomainStatuses(handle, self._configured).run)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Nodes that come or change, pods that go, and what is configured."""
        return (
            on("nodes", Action.ADD | Action.UPDATE),
            on("pods", Action.DELETE),
            *self._configured.events(),
        )

    @hookimpl
    def pre_cycle(self) -> None:
        """Bring leaves and spines up to date before anything is decided by them."""
        self._configured.refresh()

    @hookimpl
    def placement_generate(self, attempt: GroupAttempt, nodes: NodeView) -> Iterable[Placement] | Status | None:
        """Placements by the rules, for groups that want GPUs, say nothing of topology and are not to be distributed."""
        self._remember(attempt)
        layout = self._leaves()
        if layout is None or _has_its_own(attempt) or self._is_distributed(attempt):
            return None
        history, limits, settings = self._past(layout), self._limits_of(layout), self._configured.settings
        choices = [
            Choice(layout, demand, limits, settings, history)
            for counts in counts_of(attempt)
            if (demand := demand_of(attempt, counts, nodes, self._table)) is not None
        ]
        if not choices:
            return None  # it wants no GPUs, or all nodes together do not hold it, whatever the leaves are
        found = self._placements(choices, attempt.placed_rows())
        first = next(found, None)
        if first is None:
            return unschedulable(choices[0].why_not())
        return itertools.chain((first,), found)

    @hookimpl
    def placement_score(self, attempt: GroupAttempt, placement: Placement, nodes: NodeView) -> float:
        """The weighted terms (see `terms`); 0 everywhere for groups that want no GPUs."""
        if isinstance(placement, LeafPlacement):
            return placement.score
        layout = self._leaves()
        if layout is None:
            return 0.0
        rated = self._rated
        if rated is None or rated.attempt is not attempt or rated.layout is not layout:
            self._remember(attempt)
            rated = self._rated = self._rated_for(attempt, layout, nodes)
        return self._score_of(rated, placement.rows)

    @hookimpl
    async def post_bind(self, pod: PodInfo, node: str) -> None:
        """From now on it is seen how the group fares on this leaf."""
        group, row = self._members.pop(pod.uid, None), self._handle.nodes.row_of(node)
        layout = self._leaves()
        if group is not None and layout is not None and row is not None and layout.place[row] >= 0:
            self._memory.observer.placed(group, layout.paths[layout.place[row]], pod)

    # Placements

    def _placements(self, choices: Sequence[Choice], placed: Rows) -> Iterator[LeafPlacement]:
        tier = 0
        for choice in choices:
            for batch in choice.batches(placed):
                self._handle.deadline.check()
                weights = self._configured.settings.weights
                scores = score(batch.offers, choice.demand.amount, choice.fewest, weights)
                for i, value in enumerate(scores.tolist()):
                    yield LeafPlacement(batch.name(i), batch.rows(i), tier, value)
                tier += 1

    def _remember(self, attempt: GroupAttempt) -> None:
        """Which group its members are in: they may be bound."""
        key = attempt.group.key
        for role in attempt.roles:
            for pod in role.pods:
                self._members[pod.uid] = key
        while len(self._members) > _REMEMBERED:
            self._members.popitem(last=False)

    # The placements of others

    def _rated_for(self, attempt: GroupAttempt, layout: Layout, nodes: NodeView) -> _Rated:
        counts = counts_of(attempt)[-1]
        demand = demand_of(attempt, counts, nodes, self._table)
        if demand is None:
            return _Rated(attempt, layout, None, _NONE, _NONE, 1)
        settings = self._configured.settings
        fewest = Choice(layout, demand, self._limits_of(layout), settings, self._past(layout)).fewest
        stock = demand.stock
        return _Rated(attempt, layout, demand, layout.sums(stock.total), layout.sums(stock.used), fewest)

    def _score_of(self, rated: _Rated, rows: Rows) -> float:
        """As if the group took those of the leaves that hold most, and then nodes in no leaf."""
        layout, demand = rated.layout, rated.demand
        if demand is None:
            return 0.0
        leaf, holds = layout.place[rows], demand.roles[0].capacity[rows]
        held = np.bincount(leaf[leaf >= 0], weights=holds[leaf >= 0], minlength=len(layout)).astype(np.int64)
        leaves, left = largest(held, demand.counts[0])
        found = [offer(layout, np.sort(leaves), rated.total, rated.used, self._past(layout))]
        if left:
            nodes, _ = largest(holds[leaf < 0], left)
            found.append(loose_offer(demand.stock, rows[leaf < 0][nodes]))
        return float(score(added(found), demand.amount, rated.fewest, self._configured.settings.weights)[0])

    # What is known of the leaves

    def _leaves(self) -> Layout | None:
        self._configured.refresh()
        found = find_leaves(self._handle.topology, self._args.leaf_level, self._args.spine_level)
        if found is None:
            return None
        if self._layout is None or (self._layout.leaves, self._layout.spines) != found:
            self._layout = Layout(*found)
        return self._layout

    def _past(self, layout: Layout) -> Values:
        """How placements went on each leaf."""
        history = self._memory.history
        if self._history[:2] != (layout, history.version):
            past = np.array([history.of(path) for path in layout.paths], dtype=np.float64)
            self._history = (layout, history.version, past)
        return self._history[2]

    def _limits_of(self, layout: Layout) -> Limits:
        known, version, limits = self._limits
        if limits is None or known is not layout or version != self._configured.version:
            limits = limits_of(layout, self._configured.settings, self._configured.domains)
            self._limits = (layout, self._configured.version, limits)
        return limits

    def _is_distributed(self, attempt: GroupAttempt) -> bool:
        return strategy_of(self._handle.workload(attempt.first)) == "distributed"


def _has_its_own(attempt: GroupAttempt) -> bool:
    """Whether the group, or a part of it, says itself how close its members have to be."""
    topologies = [attempt.group.topology, *(subgroup.topology for subgroup in attempt.group.subgroups)]
    return any(topology != TopologyConstraint() for topology in topologies)
