"""The plugin: who may preempt, on which nodes to look, what to say when nothing helps.

A pod for which a preemption is being carried out is not helped again. kube-scheduler holds it back at pre_enqueue; here
it may be tried, because another node may have become free, but it starts no second preemption.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np

from gangline import (
    Action,
    BoolColumn,
    Diagnosis,
    EventHint,
    Handle,
    NodeView,
    PodInfo,
    Rows,
    Status,
    hookimpl,
    on,
    unschedulable,
)
from gangline_plugins.default_preemption.budgets import Budgets
from gangline_plugins.default_preemption.eligibility import why_not
from gangline_plugins.default_preemption.evicting import Evictor
from gangline_plugins.default_preemption.importance import Candidate
from gangline_plugins.default_preemption.levels import PriorityLevels
from gangline_plugins.default_preemption.searching import find_best, number_wanted
from gangline_plugins.default_preemption.simulating import Simulation


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream: how many candidate nodes are enough."""

    min_candidate_nodes_percentage: Annotated[int, msgspec.Meta(ge=0, le=100)] = 10
    """Percent of the nodes on which preemption may help."""
    min_candidate_nodes_absolute: Annotated[int, msgspec.Meta(ge=0)] = 100
    """Nodes; the larger of both counts."""


class DefaultPreemption:
    """Nominates the node on which making room costs least, and has its victims evicted."""

    name = "DefaultPreemption"
    args_type = Args

    def __init__(self, args: Args, handle: Handle, offsets: random.Random | None = None) -> None:
        if not args.min_candidate_nodes_percentage and not args.min_candidate_nodes_absolute:
            raise ValueError("minCandidateNodesPercentage and minCandidateNodesAbsolute cannot both be 0")
        self._args = args
        self._handle = handle
        self._offsets = offsets or random.Random()
        self._levels = PriorityLevels()
        self._evictor = Evictor(handle, self.name)
        self._attempts = handle.metric("scheduler_preemption_attempts", "Total preemption attempts in the cluster.")
        self._victims = handle.metric("scheduler_preemption_victims", "Number of selected preemption victims.")
        handle.state.track(self._levels)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Pods that go; but whether that helps is for the filters to say that rejected the pod."""
        return (on("pods", Action.DELETE, lambda pod, old, new: False),)

    @hookimpl
    def post_filter(self, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis) -> Status | str:
        """The node on which room is being made.

        A Status that is unresolvable says that there is none, and a nomination that the pod still has is void; one that
        is not says that the pod may not preempt (now), and its nomination stands.
        """
        self._attempts.inc()
        decided = self.decide(pod, nodes, diagnosis)
        if isinstance(decided, Status):
            return decided
        self._victims.inc(len(decided.victims))
        self._evictor.start(pod, decided.node, decided.victims)
        return decided.node

    def decide(self, pod: PodInfo, nodes: NodeView, diagnosis: Diagnosis) -> Candidate | Status:
        """Where to make room for a pod and who has to go, or why that cannot be; changes nothing."""
        resolvable = diagnosis.resolvable()
        refusal = self._refusal(pod, nodes, resolvable)
        if refusal:
            return unschedulable(f"preemption: {refusal}")
        rows, wanted = self._potential(resolvable)
        hopeful = rows[self._levels.below(pod.priority, len(nodes))[rows]]
        simulation = Simulation(self._handle, pod, self.budgets())
        best = find_best(simulation, pod, hopeful, wanted)
        if best is not None:
            return best
        reasons = simulation.reasons
        reasons["No preemption victims found for incoming pod"] += len(rows) - len(hopeful)
        reasons["Preemption is not helpful for scheduling"] += nodes.count - len(rows)
        return unschedulable(f"preemption: {_in_words(reasons, nodes.count)}", resolvable=False)

    def budgets(self) -> Budgets:
        """The disruption budgets as they are now."""
        return Budgets(self._handle.state.store("poddisruptionbudgets"))

    def _refusal(self, pod: PodInfo, nodes: NodeView, resolvable: BoolColumn) -> str:
        if self._evictor.is_running(pod.uid):
            return "waiting for the preemption for this pod to be finished"
        return why_not(pod, self._nomination(pod), nodes, resolvable)

    def _nomination(self, pod: PodInfo) -> str:
        """The node that the pod is nominated to: what its status says, or what has yet to be written there."""
        remembered = (node for node, pods in self._handle.nominated().items() if pod.uid in pods)
        return pod.nominated_node_name or next(remembered, "")

    def _potential(self, resolvable: BoolColumn) -> tuple[Rows, int]:
        """The rows to look at, from a random one on, and how many candidates among them are enough."""
        rows = np.flatnonzero(resolvable)
        if len(rows):
            rows = np.roll(rows, -self._offsets.randrange(len(rows)))
        args = self._args
        return rows, number_wanted(len(rows), args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute)


def _in_words(reasons: Counter[str], nodes: int) -> str:
    said = ", ".join(sorted(f"{number} {reason}" for reason, number in reasons.items() if number))
    return f"0/{nodes} nodes are available: {said}."
