"""The plugin: which groups may preempt, the steps of the search for victims, and the message when no victims help.

The scheduler calls this plugin after a group has found no place. The plugin then works in these steps:

1. `occupants` lists the pods that may be removed: those of lower priority that nothing protects.
2. `domains` estimates for all topology domains at once up to which priority pods would have to be removed, and keeps
   the few domains that promise to cost least.
3. For each of these domains, `costs` puts the removable pods in order, and `searching` finds, by arithmetic on requests
   (`demand`, `room`), the victims that make enough room. The result is a draft with a cost.
4. `trying` takes the drafts, the cheapest first. It removes the victims of a draft in a transaction and tries to place
   the group with the filters of all plugins. The first draft after which the whole group fits is carried out.

The arithmetic comes first because it is fast: placing the group with all filters costs far more. The arithmetic may
find too few victims, because it knows requests and not every filter. It never finds too many, so a search with the
filters in the same domain never finds cheaper victims. If the group does not fit after a draft, and no wider domain is
open to the group, step 4 also searches the draft's domain with the filters.

While a preemption is being carried out for a group, the plugin starts no second one for that group. Pods that are being
deleted count as gone, so the plugin does not evict more pods while the victims take their time to end. Devices of
ResourceClaims whose pods are gone count as free, although they come free only later (`State.foreseen`).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import (
    BoolColumn,
    EventHint,
    GroupAttempt,
    Handle,
    NodeView,
    PodInfo,
    Rows,
    Status,
    hookimpl,
    resources,
    unschedulable,
)
from gangline_plugins.gang_preemption.costs import Cost, cost_of, first_start, in_order
from gangline_plugins.gang_preemption.demand import GangDemand
from gangline_plugins.gang_preemption.domains import Stages, find_domains, stages_of
from gangline_plugins.gang_preemption.occupants import Occupants, Removal, find_occupants
from gangline_plugins.gang_preemption.ranks import Ranks
from gangline_plugins.gang_preemption.room import Room
from gangline_plugins.gang_preemption.searching import find_victims
from gangline_plugins.gang_preemption.sparing import GangPreemptionArgs, Sparing
from gangline_plugins.gang_preemption.trying import Trials
from gangline_plugins.preemption.budgets import Budgets
from gangline_plugins.preemption.evicting import Evictor, Preemptor

MOST_SPARED = 8
"""If a plan has at most this many victims, each victim is checked once more: does the group fit without evicting it?"""
_NOBODY = unschedulable("preemption: no pods of lower priority that may be removed.", resolvable=False)


@dataclass(frozen=True, slots=True, eq=False)
class EvictionPlan:
    """The pods to evict, in the order of their eviction, and the nodes that the group gets: pod UID to row."""

    victims: Sequence[PodInfo]
    placed: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """The victims that the arithmetic proposes for one domain."""

    order: Sequence[Removal]
    victims: Sequence[Removal]
    cost: Cost
    start: str
    is_last_resort: bool
    """Whether the domain is searched on the real columns when these victims do not suffice: the group may use no wider
    domain.
    """


class GangPreemption:
    """Nominates a whole group to the nodes on which making room costs least, and has the victims evicted."""

    name = "GangPreemption"
    args_type = GangPreemptionArgs

    def __init__(self, args: GangPreemptionArgs, handle: Handle) -> None:
        self._handle = handle
        self._args = args
        self._evictor = Evictor(handle, self.name)
        self._ranks = handle.state.tracker(Ranks)
        self._attempts = handle.metric("scheduler_preemption_attempts", "Total preemption attempts in the cluster.")
        self._victims = handle.metric("scheduler_preemption_victims", "Number of selected preemption victims.")

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """No events: the plugins that rejected the group name the events that may help it."""
        return ()

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt, nodes: NodeView) -> Status | Mapping[str, str]:
        """Have victims evicted; return the node nominated for each member by pod UID, or why there is no preemption."""
        self._attempts.inc()
        plan = self.decide(attempt, nodes)
        if isinstance(plan, Status):
            return plan
        names = nodes.names
        nominated = {uid: names[row] for uid, row in plan.placed.items()}
        self._victims.inc(len(plan.victims))
        self._evictor.start(_preemptor(attempt, tuple(sorted(set(nominated.values())))), plan.victims)
        return nominated

    @hookimpl
    def pod_group_key(self, attempt: GroupAttempt) -> Hashable:
        """Whom the group may remove follows from its priority; None while pods are being removed for it."""
        return None if self._evictor.is_running(attempt.group.key) else priority_of(attempt)

    @hookimpl
    def pod_group_can_help(self, attempt: GroupAttempt) -> bool:
        """False if no pod of lower priority has a node, and nothing will come free that is not free yet."""
        if self._evictor.is_running(attempt.group.key) or self._has_any(priority_of(attempt)):
            return True
        with self._handle.state.foreseen() as is_under_way:
            return is_under_way

    def decide(self, attempt: GroupAttempt, nodes: NodeView) -> EvictionPlan | Status:
        """Find the pods to evict so that the whole group fits, or why there are none. Changes nothing."""
        refusal = self._refusal(attempt)
        if refusal:
            return unschedulable(f"preemption: {refusal}")
        with self._handle.state.foreseen() as is_under_way:
            return self._search(attempt, nodes, is_under_way)

    def _search(self, attempt: GroupAttempt, nodes: NodeView, is_under_way: bool) -> EvictionPlan | Status:
        """`is_under_way`: something, for example a device of a claim, still comes free after its pods have gone."""
        if not is_under_way and not self._has_any(priority_of(attempt)):
            return _NOBODY
        sparing = Sparing(self._handle, self._args)
        occupants = find_occupants(self._handle, attempt.group.key, priority_of(attempt), sparing, self._ranks)
        trials = Trials(self._handle, attempt, occupants.leaving)
        if (occupants.leaving or is_under_way) and (placed := trials.verify(())) is not None:
            return EvictionPlan((), placed)
        if not occupants.pods:
            return _NOBODY
        budgets = Budgets(self._handle.state.store(resources.PDBS))
        drafts = self._drafts(attempt, nodes, occupants, budgets)
        return _settled(drafts, trials, budgets) or unschedulable(
            "preemption: the whole gang would not fit if all pods of lower priority that may be removed were gone.",
            resolvable=False,
        )

    def _has_any(self, priority: int) -> bool:
        """Whether a pod with a node may be removed for this priority, or is being deleted: False is certain."""
        return self._ranks.has_lower(priority, self._handle) or bool(self._ranks.leaving(self._handle))

    def _refusal(self, attempt: GroupAttempt) -> str:
        if any(role.pods[0].spec.preemption_policy == "Never" for role in attempt.roles):
            return "not eligible due to preemptionPolicy=Never."
        if self._evictor.is_running(attempt.group.key):
            return "waiting for the preemption for this gang to be finished"
        return ""

    def _drafts(self, attempt: GroupAttempt, nodes: NodeView, occupants: Occupants, budgets: Budgets) -> list[_Draft]:
        """A draft for each domain in which enough pods can be removed, the cheapest first."""
        demand = GangDemand(self._handle, attempt, occupants)
        stages = stages_of(demand, occupants, budgets)
        gains = _gains(demand, stages, occupants)
        drafts: list[_Draft] = []
        for rows, has_to_do in find_domains(self._handle.topology, attempt, nodes, demand, stages):
            room = Room(demand, occupants, rows)
            inside = _on(rows, demand.size, occupants.rows)
            units = occupants.units(inside, inside & (gains > 0))
            order = in_order(units, occupants, gains, room.missing, budgets)
            victims = find_victims(room, order)
            if victims is not None:
                drafts.append(_Draft(order, victims, cost_of(victims, budgets), first_start(victims), has_to_do))
        drafts.sort(key=lambda draft: draft.start, reverse=True)
        return sorted(drafts, key=lambda draft: draft.cost)


def priority_of(attempt: GroupAttempt) -> int:
    """The priority of the group; if the group names none, that of its first pod."""
    return attempt.first.priority if attempt.group.priority is None else attempt.group.priority


def _settled(drafts: Sequence[_Draft], trials: Trials, budgets: Budgets) -> EvictionPlan | None:
    """The plan of the cheapest draft after which the group fits on the real columns; None if no plan is found.

    If a draft fails and its domain is the last resort, victims found by a search on the real columns compete with the
    drafts that follow. The loop may stop at the first draft that costs no less than the best plan so far: the plan
    found for a domain never costs less than the draft for that domain.
    """
    best: tuple[Cost, EvictionPlan] | None = None
    for draft in drafts:
        if best is not None and best[0] <= draft.cost:
            break
        placed = trials.verify(draft.victims)
        if placed is not None:
            return _plan(*_spared(draft.victims, placed, trials))
        found = trials.search(draft.order) if draft.is_last_resort else None
        if found is not None:
            cost = cost_of(found[0], budgets)
            if best is None or cost < best[0]:
                best = cost, _plan(*found)
    return None if best is None else best[1]


def _spared(
    victims: Sequence[Removal], placed: Mapping[str, int], trials: Trials
) -> tuple[Sequence[Removal], Mapping[str, int]]:
    """The victims without those that the group does not need, and the group's nodes.

    A draft counts the free room of one domain only, so room outside of the domain may make some of its victims
    unnecessary. Each check places the group on the real columns, so long lists of victims are left as they are.
    """
    if len(victims) > MOST_SPARED:
        return victims, placed
    stopped = {unit.gang for unit in victims if unit.stops}
    for unit in reversed(victims):
        if unit not in victims or (not unit.stops and unit.gang in stopped):
            continue  # already spared together with its gang, or evicted together with its gang
        gang = unit.gang if unit.stops else ""
        fewer = [other for other in victims if other is not unit and not (gang and other.gang == gang)]
        found = trials.verify(fewer) if fewer else None
        if found is not None:
            victims, placed = fewer, found
    return victims, placed


def _plan(victims: Sequence[Removal], placed: Mapping[str, int]) -> EvictionPlan:
    return EvictionPlan([pod for unit in victims for pod in unit.pods], placed)


def _gains(demand: GangDemand, stages: Stages, occupants: Occupants) -> NDArray[np.float64]:
    """How many members of the group fit in the room that each pod gives back; 0 on nodes where no removal makes
    room.
    """
    resource, each = demand.scarce()
    is_useful: BoolColumn = np.any(stages.holds[-1] > stages.holds[0], axis=0)
    gains: NDArray[np.float64] = np.maximum(demand.amounts[resource] / each, 1e-6) * is_useful[occupants.rows]
    return gains


def _on(rows: Rows, size: int, pods: Rows) -> BoolColumn:
    """For each pod, given by its row, whether the row is among `rows`."""
    mask: BoolColumn = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return mask.take(pods)


def _preemptor(attempt: GroupAttempt, nodes: tuple[str, ...]) -> Preemptor:
    group, first = attempt.group, attempt.first
    name = f"gang {group.namespace}/{group.name}"
    members = frozenset(pod.uid for pod in attempt.pods)
    return Preemptor(group.key, name, name, priority_of(attempt), first.scheduler_name, nodes, members, group.namespace)
