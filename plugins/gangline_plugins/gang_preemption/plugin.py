"""The plugin: who may preempt, what is tried, and what is said when nothing helps.

A group for which a preemption is being carried out is not helped again; pods that are being deleted count as gone, so
that it is not helped again after that either, while its victims take their time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import (
    Action,
    BoolColumn,
    EventHint,
    GroupAttempt,
    Handle,
    NodeView,
    PodInfo,
    Rows,
    Status,
    hookimpl,
    on,
    resources,
    unschedulable,
)
from gangline_plugins.gang_preemption.costs import Cost, cost_of, first_start, in_order
from gangline_plugins.gang_preemption.demand import Demand
from gangline_plugins.gang_preemption.domains import Stages, find_domains, stages_of
from gangline_plugins.gang_preemption.occupants import Occupants, Removal, find_occupants
from gangline_plugins.gang_preemption.room import Room
from gangline_plugins.gang_preemption.searching import find_victims
from gangline_plugins.gang_preemption.sparing import GangPreemptionArgs, Sparing
from gangline_plugins.gang_preemption.trying import Trials
from gangline_plugins.preemption.budgets import Budgets
from gangline_plugins.preemption.evicting import Evictor, Preemptor

MOST_SPARED = 8
"""Victims of a plan, at most, for each of which it is tried whether the group fits without its going."""


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Who has to go, the first to go first, and where the group goes then: pod UID to row."""

    victims: Sequence[PodInfo]
    placed: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Draft:
    """What the arithmetic proposes for one domain."""

    order: Sequence[Removal]
    victims: Sequence[Removal]
    cost: Cost
    start: str
    is_last_resort: bool
    """Whether it is worth a search on the real columns: no wider domain will do."""


class GangPreemption:
    """Nominates a whole group to the nodes on which making room costs least, and has its victims evicted."""

    name = "GangPreemption"
    args_type = GangPreemptionArgs

    def __init__(self, args: GangPreemptionArgs, handle: Handle) -> None:
        self._handle = handle
        self._args = args
        self._evictor = Evictor(handle, self.name)
        self._attempts = handle.metric("scheduler_preemption_attempts", "Total preemption attempts in the cluster.")
        self._victims = handle.metric("scheduler_preemption_victims", "Number of selected preemption victims.")

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Pods that go; but whether that helps is for the plugins to say that rejected the group."""
        return (on("pods", Action.DELETE, lambda pod, old, new: False),)

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt, nodes: NodeView) -> Status | Mapping[str, str]:
        """The nodes on which room is being made for the members, or why that cannot be."""
        self._attempts.inc()
        plan = self.decide(attempt, nodes)
        if isinstance(plan, Status):
            return plan
        names = nodes.names
        nominated = {uid: names[row] for uid, row in plan.placed.items()}
        self._victims.inc(len(plan.victims))
        self._evictor.start(_preemptor(attempt, tuple(sorted(set(nominated.values())))), plan.victims)
        return nominated

    def decide(self, attempt: GroupAttempt, nodes: NodeView) -> Plan | Status:
        """Who has to go for the whole group to find its place, or why nobody does; changes nothing."""
        refusal = self._refusal(attempt)
        if refusal:
            return unschedulable(f"preemption: {refusal}")
        sparing = Sparing(self._handle, self._args)
        occupants = find_occupants(self._handle, attempt.group.key, priority_of(attempt), sparing)
        trials = Trials(self._handle, attempt, occupants.leaving)
        if occupants.leaving and (placed := trials.verify(())) is not None:
            return Plan((), placed)
        if not occupants.pods:
            return unschedulable("preemption: no pods of lower priority that may be removed.")
        budgets = Budgets(self._handle.state.store(resources.PDBS))
        drafts = self._drafts(attempt, nodes, occupants, budgets)
        return _settled(drafts, trials, budgets) or unschedulable(
            "preemption: the whole gang would not fit if all pods of lower priority that may be removed were gone."
        )

    def _refusal(self, attempt: GroupAttempt) -> str:
        if any(role.pods[0].spec.preemption_policy == "Never" for role in attempt.roles):
            return "not eligible due to preemptionPolicy=Never."
        if self._evictor.is_running(attempt.group.key):
            return "waiting for the preemption for this gang to be finished"
        return ""

    def _drafts(self, attempt: GroupAttempt, nodes: NodeView, occupants: Occupants, budgets: Budgets) -> list[_Draft]:
        """One for each domain that is worth it, the cheapest first."""
        demand = Demand(self._handle, attempt, occupants)
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
    """The priority of the group, or of its first pod."""
    return attempt.first.priority if attempt.group.priority is None else attempt.group.priority


def _settled(drafts: Sequence[_Draft], trials: Trials, budgets: Budgets) -> Plan | None:
    """The cheapest draft that holds on the real columns, or what is found there where a cheaper one does not.

    A draft costs at least as little as whatever is found for its domain.
    """
    best: tuple[Cost, Plan] | None = None
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
    """The same without those that are not needed: a draft for one domain does not know of the room outside of it.

    Only where there are few, for each costs a try on the real columns.
    """
    if len(victims) > MOST_SPARED:
        return victims, placed
    stopped = {unit.gang for unit in victims if unit.stops}
    for unit in reversed(victims):
        if unit not in victims or (not unit.stops and unit.gang in stopped):
            continue  # stays with its gang, or goes with it
        gang = unit.gang if unit.stops else ""
        fewer = [other for other in victims if other is not unit and not (gang and other.gang == gang)]
        found = trials.verify(fewer) if fewer else None
        if found is not None:
            victims, placed = fewer, found
    return victims, placed


def _plan(victims: Sequence[Removal], placed: Mapping[str, int]) -> Plan:
    return Plan([pod for unit in victims for pod in unit.pods], placed)


def _gains(demand: Demand, stages: Stages, occupants: Occupants) -> NDArray[np.float64]:
    """What each pod gives when it goes, in members of the group; nothing where nobody's going makes room."""
    resource, each = demand.scarce()
    is_useful: BoolColumn = np.any(stages.holds[-1] > stages.holds[0], axis=0)
    gains: NDArray[np.float64] = np.maximum(demand.amounts[resource] / each, 1e-6) * is_useful[occupants.rows]
    return gains


def _on(rows: Rows, size: int, pods: Rows) -> BoolColumn:
    """For each pod, by its row, whether it is on one of rows."""
    mask: BoolColumn = np.zeros(size, dtype=np.bool_)
    mask[rows] = True
    return mask.take(pods)


def _preemptor(attempt: GroupAttempt, nodes: tuple[str, ...]) -> Preemptor:
    group, first = attempt.group, attempt.first
    name = f"gang {group.namespace}/{group.name}"
    members = frozenset(pod.uid for pod in attempt.pods)
    return Preemptor(group.key, name, name, priority_of(attempt), first.scheduler_name, nodes, members)
