"""The plugin: the places where a gang may go, and their scores, by the number of nodes that the gang needs.

In a leaf-spine network, nodes of one leaf switch are close to each other, and leaves of one spine switch are the next
closest. The plugin keeps a gang's members close, and keeps complete leaves free for the gangs that need them. For a
group it works in these steps:

1. `layout` puts the leaves in one line, so that adjacent leaves are a slice of the line.
2. `demand` computes the fewest nodes that hold the group, and the GPUs that it asks for.
3. `limits` leaves out nodes by the configured limits on nodes and GPUs per leaf.
4. `choosing` applies the rule for this number of nodes, and yields the placements that obey it, in batches: the best
   ones first.
5. `terms` scores the placements of a batch.

Groups that state their own topology constraint keep it. The plugin generates no placements for them, and only scores
those of other plugins. `configured` follows the configuration; `history` and `remembering` record how gangs fared on
each leaf; `domain_status` reports the use of leaves and spines.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
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
from gangline_plugins.latest import Latest
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs
from gangline_plugins.leaf_spine.choosing import DomainChoice, added, largest, loose_offer, offer
from gangline_plugins.leaf_spine.configured import configured
from gangline_plugins.leaf_spine.demand import Demand, counts_of, demand_of
from gangline_plugins.leaf_spine.domain_status import DomainStatuses
from gangline_plugins.leaf_spine.layout import Ints, Layout, find_leaves
from gangline_plugins.leaf_spine.limits import DomainLimits, limits_of
from gangline_plugins.leaf_spine.remembering import Keeper, memory_of
from gangline_plugins.leaf_spine.terms import Values, score

_REMEMBERED = 65_536
"""At most this many members of groups that may still be bound."""
_NONE: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class LeafPlacement(Placement):
    """A placement with its score, which is computed together with those of its whole batch."""

    score: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Rated:
    """The values, for one attempt, by which placements of other plugins are scored."""

    attempt: GroupAttempt
    layout: Layout
    demand: Demand | None
    total: Ints
    used: Ints
    fewest: int


class LeafSpine:
    """Generates placements for groups that require no level, and scores the placements of all groups."""

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
        self._members: Latest[str, str] = Latest(_REMEMBERED)
        self._layout: Layout | None = None
        self._limits: tuple[Layout | None, int, DomainLimits | None] = (None, -1, None)
        self._history: tuple[Layout | None, int, Values] = (None, -1, np.zeros(0))
        self._rated: _Rated | None = None
        handle.run(Keeper(handle, self._memory, own_namespace()).run)
        handle.run(DomainStatuses(handle, self._configured).run)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """New or changed nodes, deleted pods, and changes of the configuration."""
        return (
            on("nodes", Action.ADD | Action.UPDATE),
            on("pods", Action.DELETE),
            *self._configured.events(),
        )

    @hookimpl
    def pre_cycle(self) -> None:
        """Bring leaves and spines up to date before a decision uses them."""
        self._configured.refresh()

    @hookimpl
    def placement_generate(self, attempt: GroupAttempt, nodes: NodeView) -> Iterable[Placement] | Status | None:
        """Placements by the rules, for groups that want GPUs, state no topology and do not ask for the strategy
        `distributed`.
        """
        self._remember(attempt)
        layout = self._leaves()
        if layout is None or _has_its_own(attempt) or self._is_distributed(attempt):
            return None
        history, limits, settings = self._past(layout), self._limits_of(layout), self._configured.settings
        choices = [
            DomainChoice(layout, demand, limits, settings, history)
            for counts in counts_of(attempt)
            if (demand := demand_of(attempt, counts, nodes, self._table)) is not None
        ]
        if not choices:
            return None  # the group wants no GPUs, or does not fit even on all nodes together
        found = self._placements(choices, attempt.placed_rows())
        first = next(found, None)
        if first is None:
            return unschedulable(choices[0].why_not())
        return itertools.chain((first,), found)

    @hookimpl
    def pod_group_key(self) -> Hashable:
        """Placements follow from the needs of the group, its topology and strategy, and the classes of its members."""
        return ()

    @hookimpl
    def placement_score(self, attempt: GroupAttempt, placement: Placement, nodes: NodeView) -> float:
        """The weighted terms (see `terms`), 0 to 100; 0 for every placement of a group that wants no GPUs."""
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
        """Start to observe how the group fares on this leaf."""
        group, row = self._members.pop(pod.uid, None), self._handle.nodes.row_of(node)
        layout = self._leaves()
        if group is not None and layout is not None and row is not None and layout.place[row] >= 0:
            self._memory.observer.placed(group, layout.paths[layout.place[row]], pod)

    # Placements

    def _placements(self, choices: Sequence[DomainChoice], placed: Rows) -> Iterator[LeafPlacement]:
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
        """Remember the group of each member, for the time when the member is bound."""
        key = attempt.group.key
        for role in attempt.roles:
            for pod in role.pods:
                self._members.keep(pod.uid, key)

    # The placements of others

    def _rated_for(self, attempt: GroupAttempt, layout: Layout, nodes: NodeView) -> _Rated:
        counts = counts_of(attempt)[-1]
        demand = demand_of(attempt, counts, nodes, self._table)
        if demand is None:
            return _Rated(attempt, layout, None, _NONE, _NONE, 1)
        settings = self._configured.settings
        fewest = DomainChoice(layout, demand, self._limits_of(layout), settings, self._past(layout)).fewest
        stock = demand.stock
        return _Rated(attempt, layout, demand, layout.sums(stock.total), layout.sums(stock.used), fewest)

    def _score_of(self, rated: _Rated, rows: Rows) -> float:
        """The score if the group took the leaves with most places, and then nodes in no leaf."""
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
        """The history of each leaf: how placements there went."""
        history = self._memory.history
        if self._history[:2] != (layout, history.version):
            past = np.array([history.of(path) for path in layout.paths], dtype=np.float64)
            self._history = (layout, history.version, past)
        return self._history[2]

    def _limits_of(self, layout: Layout) -> DomainLimits:
        known, version, limits = self._limits
        if limits is None or known is not layout or version != self._configured.version:
            limits = limits_of(layout, self._configured.settings, self._configured.domains)
            self._limits = (layout, self._configured.version, limits)
        return limits

    def _is_distributed(self, attempt: GroupAttempt) -> bool:
        return strategy_of(self._handle.workload(attempt.first)) == "distributed"


def _has_its_own(attempt: GroupAttempt) -> bool:
    """Whether the group or one of its subgroups states a topology constraint."""
    topologies = [attempt.group.topology, *(subgroup.topology for subgroup in attempt.group.subgroups)]
    return any(topology != TopologyConstraint() for topology in topologies)
