"""The plugin: which pods may preempt, which nodes are examined, and the message when no node helps.

While a preemption is being carried out for a pod, the plugin starts no second one for that pod. kube-scheduler keeps
such a pod out of the active queue at pre_enqueue. Here the pod may be tried again, because another node may have become
free.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np

from gangline import (
    BoolColumn,
    Diagnosis,
    EventHint,
    Handle,
    NodeView,
    PodInfo,
    Proposal,
    Rows,
    Status,
    Victims,
    hookimpl,
    resources,
    unschedulable,
)
from gangline_plugins.default_preemption.eligibility import why_not
from gangline_plugins.default_preemption.importance import Candidate, choose
from gangline_plugins.default_preemption.levels import PriorityLevels
from gangline_plugins.default_preemption.searching import find_all, find_best, number_wanted
from gangline_plugins.default_preemption.simulating import NO_VICTIMS, Simulation
from gangline_plugins.preemption.budgets import Budgets
from gangline_plugins.preemption.evicting import Evictor, Preemptor
from gangline_plugins.preemption.mates import with_mates
from gangline_plugins.preemption.precedence import importance


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream: how many candidate nodes are enough."""

    min_candidate_nodes_percentage: Annotated[int, msgspec.Meta(ge=0, le=100)] = 10
    """Enough candidates, as a percentage of the nodes on which preemption may help."""
    min_candidate_nodes_absolute: Annotated[int, msgspec.Meta(ge=0)] = 100
    """Enough candidates, as a number of nodes. The larger of the two arguments counts."""


class DefaultPreemption:
    """Nominates the node on which making room costs least, and has the victims there evicted."""

    name = "DefaultPreemption"
    args_type = Args

    def __init__(self, args: Args, handle: Handle) -> None:
        if not args.min_candidate_nodes_percentage and not args.min_candidate_nodes_absolute:
            raise ValueError("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0")
        self._args = args
        self._handle = handle
        self._levels = handle.state.tracker(PriorityLevels)
        self._evictor = Evictor(handle, self.name)
        self._attempts = handle.metric("scheduler_preemption_attempts", "Total preemption attempts in the cluster.")
        self._victims = handle.metric("scheduler_preemption_victims", "Number of selected preemption victims.")

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """No events: the plugins that rejected the pod name the events that may help it."""
        return ()

    @hookimpl
    def post_filter(self, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis) -> Status | str | Proposal:
        """The name of the node on which room is being made, or why there is none.

        An unresolvable Status means that no node helps, and clears a nomination that the pod has. Any other Status
        means that the pod may not preempt now, and keeps the nomination. If extenders review preemptions, the result is
        a Proposal with all candidates.
        """
        self._attempts.inc()
        if self._handle.preemption_is_reviewed(pod):
            return self._propose(pod, nodes, diagnosis)
        decided = self.decide(pod, nodes, diagnosis)
        return decided if isinstance(decided, Status) else self._carry_out(pod, decided)

    def decide(self, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis) -> Candidate | Status:
        """The best node for a preemption with its victims, or why there is none. Changes nothing."""
        found = self._candidates(pod, nodes, diagnosis, every=False)
        return found if isinstance(found, Status) else found[0]

    def _candidates(
        self, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis, every: bool
    ) -> Sequence[Candidate] | Status:
        """The best candidate, or all candidates that are found if `every`; otherwise why there is none."""
        resolvable = diagnosis.resolvable()
        refusal = self._refusal(pod, nodes, resolvable)
        if refusal:
            return unschedulable(f"preemption: {refusal}")
        potential = int(np.count_nonzero(resolvable))
        start = self._handle.random.randrange(potential) if potential else 0
        reasons = Counter[str]()
        below = self._levels.below(pod.priority, len(nodes))
        hopeful = _rolled(resolvable, start, below) if below.any() else below[:0].nonzero()[0]
        if len(hopeful):
            simulation = Simulation(self._handle, pod, self.budgets())
            found = self._search(simulation, pod, hopeful, self._wanted(potential), every)
            if found:
                return found
            reasons = simulation.reasons
        reasons[NO_VICTIMS] += potential - len(hopeful)
        reasons["Preemption is not helpful for scheduling"] += nodes.count - potential
        return unschedulable(f"preemption: {_in_words(reasons, nodes.count)}", resolvable=False)

    def _search(
        self, simulation: Simulation, pod: PodInfo, rows: Rows, wanted: int, every: bool
    ) -> Sequence[Candidate]:
        if every:
            return find_all(simulation, pod, rows, wanted)
        best = find_best(simulation, pod, rows, wanted)
        return [] if best is None else [best]

    def _propose(self, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis) -> Status | Proposal:
        found = self._candidates(pod, nodes, diagnosis, every=True)
        if isinstance(found, Status):
            return found
        victims = {each.node: Victims(each.victims, each.violations) for each in found}
        return Proposal(victims, lambda left: self._settle(pod, left))

    def _settle(self, pod: PodInfo, left: Mapping[str, Victims]) -> Status | str:
        """Carry out the best of the candidates that remain after review."""
        rows = ((node, self._handle.nodes.row_of(node)) for node in left)
        candidates = [
            Candidate(row, node, tuple(sorted(left[node].pods, key=importance)), left[node].violations)
            for node, row in rows
            if row is not None
        ]
        best = choose(candidates)
        if best is None:
            return unschedulable("preemption: no candidate node for preemption")
        return self._carry_out(pod, best)

    def _carry_out(self, pod: PodInfo, decided: Candidate) -> str:
        victims = with_mates(self._handle, decided.victims)
        self._victims.inc(len(victims))
        self._evictor.start(Preemptor.of(pod, decided.node), victims)
        return decided.node

    def budgets(self) -> Budgets:
        """The present PodDisruptionBudgets."""
        return Budgets(self._handle.state.store(resources.PDBS))

    def _refusal(self, pod: PodInfo, nodes: NodeView, resolvable: BoolColumn) -> str:
        if self._evictor.is_running(pod.uid):
            return "waiting for the preemption for this pod to be finished"
        nominated = self._nomination(pod)
        refusal = why_not(pod, nominated, nodes, resolvable)
        if not refusal and self._comes_free(pod, nodes.row_of(nominated) if nominated else None):
            return "not eligible due to devices that come free on the nominated node."
        return refusal

    def _comes_free(self, pod: PodInfo, row: int | None) -> bool:
        """Whether the pod fits on the node in this row once everything has happened that is under way already.

        For example, a victim is gone, but its ResourceClaim has not given its devices back yet.
        """
        if row is None:
            return False
        with self._handle.state.foreseen() as is_under_way:
            return is_under_way and bool(self._handle.filter(pod, np.array([row], dtype=np.intp))[0])

    def _nomination(self, pod: PodInfo) -> str:
        """The node to which the pod is nominated: the one in its status, or one that is still to be written there."""
        remembered = (node for node, pods in self._handle.nominated().items() if pod.uid in pods)
        return pod.nominated_node_name or next(remembered, "")

    def _wanted(self, potential: int) -> int:
        """How many candidates are enough among this many nodes."""
        args = self._args
        return number_wanted(potential, args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute)


def _rolled(resolvable: BoolColumn, start: int, below: BoolColumn) -> Rows:
    """The resolvable rows that are marked in `below`, beginning with the resolvable row of number `start`."""
    rows = np.flatnonzero(resolvable)
    rows = np.concatenate((rows[start:], rows[:start]))  # in a tenth of the time of np.roll
    hopeful: Rows = rows[below[rows]]
    return hopeful


def _in_words(reasons: Counter[str], nodes: int) -> str:
    said = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items() if number))
    return f"0/{nodes} nodes are available: {said}."
