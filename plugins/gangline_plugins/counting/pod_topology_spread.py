"""PodTopologySpread: spreads the pods that a selector matches evenly over the values of a node label."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import (
    SKIP,
    SKIP_CLASS,
    Action,
    BoolColumn,
    CodeColumn,
    Cycle,
    EventHint,
    Handle,
    NodeView,
    PodInfo,
    Reason,
    ScoreColumn,
    StateKey,
    Status,
    hookimpl,
    model,
    node_selection,
    on,
    tolerations,
    unschedulable,
)
from gangline_plugins.counting.columns import KeySlots, slot_sums
from gangline_plugins.counting.counts import PodCounts, is_by_labels
from gangline_plugins.counting.pod_topology_spread_constraints import (
    HOSTNAME,
    Args,
    Constraint,
    PodConstraints,
    SpreadConstraints,
)

_UNEVEN, _UNLABELLED = 1, 2
_NO_DOMAIN = 2**31 - 1
_CONSTRAINTS: StateKey[SpreadConstraints] = StateKey("PodTopologySpread.constraints")


class _Scored(msgspec.Struct, frozen=True):
    """The scores of one pod, over all rows."""

    scores: ScoreColumn
    ignored: BoolColumn | None
    """Nodes that lack a key and get 0; None if no node does."""


_SCORED: StateKey[_Scored] = StateKey("PodTopologySpread.scored")


class PodTopologySpread:
    """Counts pods per node and sums them over the values of each topology key.

    Source: kube-scheduler v1.36, podtopologyspread: the same verdicts and whole-number scores.
    """

    name = "PodTopologySpread"
    ignores_requests = True
    args_type = Args
    reasons = (
        Reason("node(s) didn't match pod topology spread constraints"),
        Reason("node(s) didn't match pod topology spread constraints (missing required label)", resolvable=False),
    )

    def __init__(self, args: Args, handle: Handle) -> None:
        self._constraints = PodConstraints(args, handle.state)
        self._counts = handle.state.tracker(PodCounts, handle.state)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Pods that start or stop to count, nodes that change domains, and the objects from which default selectors are
        derived.
        """
        pods = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL | Action.UPDATE_OTHER
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        selecting = ("services", "replicationcontrollers", "replicasets", "statefulsets")
        return (
            on("pods", pods, self._pod_helps),
            on("nodes", nodes, self._node_helps),
            *(on(kind, Action.ALL, _default_helps) for kind in selecting if self._constraints.has_hard_defaults),
        )

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> Status | None:
        """Skip the filter for a pod without hard constraints.

        If the pod has no constraints of its own, and no default constraint is hard, all pods of its class skip the
        filter.
        """
        if not pod.spec.topology_spread_constraints and not self._constraints.has_hard_defaults:
            return SKIP_CLASS
        constraints = self._constraints.hard(pod)
        if constraints.error:
            return unschedulable(constraints.error, resolvable=False)
        if not constraints.hard:
            return SKIP
        cycle.write(_CONSTRAINTS, constraints)
        return None

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """The reason is the first constraint that a node violates."""
        constraints = cycle.read(_CONSTRAINTS).hard
        domains = [KeySlots(nodes, c.topology_key) for c in constraints]
        complete = _all_of([d.has for d in domains])
        policies = _Policies(pod, nodes)
        verdicts: CodeColumn = np.zeros(len(nodes), dtype=np.uint8)
        for constraint, domain in zip(constraints, domains, strict=True):
            verdict = self._slot_verdicts(constraint, domain, policies.eligible(constraint, complete), pod)
            if verdict.any():
                verdicts = np.where(verdicts == 0, verdict[domain.slots], verdicts)
        return verdicts

    @hookimpl
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        """Which of the pod's hard constraints count the pod itself; and the constraints, if more than its class decides
        them. Soft defaults are left out: looking for services and controllers costs more than it would save.
        """
        if not pod.spec.topology_spread_constraints and not self._constraints.has_hard_defaults:
            return None
        found = self._constraints.of(pod)
        is_of_class = pod.spec.topology_spread_constraints and not is_by_labels(pod, SpreadConstraints)
        return tuple(each.selector.matches(pod.labels) for each in found.hard), None if is_of_class else found

    @hookimpl
    def identity_all(
        self, pods: Sequence[PodInfo], annotations: Sequence[Mapping[str, str]]
    ) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        has_some = any(cls.spec.topology_spread_constraints for cls in {pod.cls for pod in pods})
        is_asked = has_some or self._constraints.has_hard_defaults
        return list(map(self.identity, pods, annotations)) if is_asked else None

    @hookimpl
    def skip_key(self, pod: PodInfo) -> Hashable:
        """The services and controllers from which default constraints follow; nothing for a pod with constraints."""
        if pod.spec.topology_spread_constraints or self._constraints.has_hard_defaults:
            return None
        return self._constraints.version

    def _slot_verdicts(
        self, constraint: Constraint, domain: KeySlots, eligible: BoolColumn, pod: PodInfo
    ) -> NDArray[np.uint8]:
        """A verdict for each domain; slot 0 stands for nodes without the label."""
        slots = domain.slots if eligible.all() else np.where(eligible, domain.slots, 0)
        exists = np.bincount(slots, minlength=domain.size) > 0
        exists[0] = False
        sums = np.zeros(domain.size)
        if constraint.query is not None:
            counts = self._counts.count(constraint.query)
            if counts.total:
                sums = slot_sums(slots, counts.column(len(slots)), domain.size)
        if np.count_nonzero(exists) < constraint.min_domains:
            least = 0.0
        else:
            least = float(sums.min(where=exists, initial=_NO_DOMAIN))
        own = constraint.selector.matches(pod.labels)
        sums[0] = 0.0
        verdicts = (sums > constraint.max_skew - own + least).astype(np.uint8)  # counts are whole, so this is exact
        verdicts[0] = _UNLABELLED
        return verdicts

    # Scoring

    @hookimpl
    def pre_score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> Status | None:
        """Count the pods that the soft constraints match; skip the score for a pod without soft constraints."""
        constraints = self._constraints.of(pod)
        if not constraints.soft:
            return SKIP
        cycle.write(_SCORED, self._scored(constraints, pod, nodes, cycle.feasible))
        return None

    @hookimpl
    def score(self, cycle: Cycle) -> ScoreColumn:
        """The number of matching pods in the node's domains, weighted by the number of domains of each kind."""
        return cycle.read(_SCORED).scores

    @hookimpl
    def normalize_score(self, cycle: Cycle, scores: ScoreColumn) -> ScoreColumn:
        """Fewer pods are better; nodes that lack a key get 0."""
        ignored = cycle.read(_SCORED).ignored
        missing = ignored[cycle.feasible] if ignored is not None else None
        counted = scores if missing is None else scores[~missing]
        lowest, highest = counted.min(initial=np.inf), counted.max(initial=0.0)
        if highest == 0.0:
            normalized = np.full_like(scores, 100.0)
        else:
            normalized = np.floor(100.0 * (highest + lowest - scores) / highest)
        if missing is not None:
            normalized[missing] = 0.0
        return normalized

    def _scored(self, constraints: SpreadConstraints, pod: PodInfo, nodes: NodeView, feasible: BoolColumn) -> _Scored:
        domains = [KeySlots(nodes, c.topology_key) for c in constraints.soft]
        ignored, rated, complete = None, feasible, nodes.alive
        if constraints.needs_all_keys:
            complete = _all_of([d.has for d in domains])
            rated = feasible & complete
            left_out = feasible & ~complete
            ignored = left_out if left_out.any() else None
        policies = _Policies(pod, nodes)
        total = np.zeros(len(nodes))
        for constraint, domain in zip(constraints.soft, domains, strict=True):
            if constraint.topology_key == HOSTNAME:
                total += self._host_scores(constraint, domain, rated)
            else:
                eligible = policies.eligible(constraint, complete)
                total += self._domain_scores(constraint, domain, _merged(domain, nodes, constraint), rated, eligible)
        scores = np.floor(total + 0.5)
        if ignored is not None:
            scores[ignored] = 0.0
        return _Scored(scores, ignored)

    def _host_scores(self, constraint: Constraint, domain: KeySlots, rated: BoolColumn) -> ScoreColumn:
        """The scores if every node is a domain of its own, regardless of its host name."""
        scores = _score(self._column(constraint, len(rated)), constraint, int(np.count_nonzero(rated)))
        return np.where(domain.has, scores, 0.0)

    def _domain_scores(
        self,
        constraint: Constraint,
        domain: KeySlots,
        slots: NDArray[np.intp],
        rated: BoolColumn,
        eligible: BoolColumn,
    ) -> ScoreColumn:
        """The scores of a constraint. `slots` are the slots of the domain; unlabelled nodes are in the slot where they
        count.
        """
        number = int(np.count_nonzero(np.bincount(slots[rated], minlength=domain.size)))
        amounts = self._column(constraint, len(rated))
        if not eligible.all():
            amounts = np.where(eligible, amounts, 0)
        scores = _score(slot_sums(slots, amounts, domain.size), constraint, number)
        scores[0] = 0.0
        return scores[domain.slots]

    def _column(self, constraint: Constraint, size: int) -> NDArray[np.int64]:
        if constraint.query is None:
            return np.zeros(size, dtype=np.int64)
        return self._counts.count(constraint.query).column(size)

    # Hints

    def _pod_helps(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        """Whether a pod starts or stops to count for one of the hard constraints."""
        if new is not None and new.uid == pod.uid:
            return True
        hard = self._constraints.hard(pod).hard
        return any(_counts(c, pod, old) != _counts(c, pod, new) for c in hard)

    def _node_helps(self, pod: PodInfo, old: model.Node | None, new: model.Node | None) -> bool:
        """Whether a node with every topology key comes, goes, changes its domain or may change its eligibility."""
        hard = self._constraints.hard(pod).hard
        keys = [c.topology_key for c in hard]
        before, after = _labels(old), _labels(new)
        has_before = old is not None and all(key in before for key in keys)
        has_after = new is not None and all(key in after for key in keys)
        if old is None or new is None or has_before != has_after:
            return has_before or has_after
        if not has_after:
            return False
        if any(before[key] != after[key] for key in keys) or old.spec != new.spec:
            return True
        return before != after and _selects_nodes(pod)


class _Policies:
    """The nodes that count for a constraint, by its nodeAffinityPolicy and nodeTaintsPolicy."""

    def __init__(self, pod: PodInfo, nodes: NodeView) -> None:
        self._pod = pod
        self._nodes = nodes
        self._selected: BoolColumn | None = None
        self._tolerated: BoolColumn | None = None

    def eligible(self, constraint: Constraint, among: BoolColumn) -> BoolColumn:
        """The nodes among these that count for the constraint."""
        if constraint.honors_affinity and _selects_nodes(self._pod):
            if self._selected is None:
                self._selected = _selected(self._pod, self._nodes)
            among = among & self._selected
        if constraint.honors_taints:
            if self._tolerated is None:
                self._tolerated = _tolerated(self._pod, self._nodes)
            among = among & self._tolerated
        return among


def _selects_nodes(pod: PodInfo) -> bool:
    spec = pod.spec
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    return bool(spec.node_selector) or (node_affinity is not None and node_affinity.required is not None)


def _selected(pod: PodInfo, nodes: NodeView) -> BoolColumn:
    spec = pod.spec
    mask = node_selection.match_labels(spec.node_selector or {}, nodes)
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    if node_affinity is not None and node_affinity.required is not None:
        mask = mask & node_selection.match_selector(node_affinity.required, nodes)
    return mask


def _tolerated(pod: PodInfo, nodes: NodeView) -> BoolColumn:
    accepted = pod.spec.tolerations
    sets = [tolerations.untolerated(taints, accepted) is None for taints in nodes.taint_sets]
    return np.array(sets, dtype=np.bool_)[nodes.taints]


def _all_of(masks: Sequence[BoolColumn]) -> BoolColumn:
    return masks[0] if len(masks) == 1 else np.logical_and.reduce(masks)


def _merged(domain: KeySlots, nodes: NodeView, constraint: Constraint) -> NDArray[np.intp]:
    """Slots in which nodes without the label count as if its value were empty, as upstream; only default constraints do
    so.
    """
    if domain.has.all():
        return domain.slots
    empty = nodes.label(constraint.topology_key).equals("")
    if not empty.any():
        return domain.slots
    return np.where(domain.has, domain.slots, domain.slots[empty.argmax()])


def _score(counts: NDArray[np.float64] | NDArray[np.int64], constraint: Constraint, domains: int) -> ScoreColumn:
    """Counts weighted by the number of domains; a larger maxSkew reduces differences."""
    return counts.astype(np.float64, copy=False) * math.log(domains + 2) + (constraint.max_skew - 1)


def _counts(constraint: Constraint, waiting: PodInfo, pod: PodInfo | None) -> bool:
    """Whether a pod counts for a constraint of the waiting one."""
    if pod is None or pod.terminating or pod.namespace != waiting.namespace:
        return False
    return constraint.selector.matches(pod.labels)


def _labels(node: model.Node | None) -> dict[str, str]:
    return (node.metadata.labels or {}) if node is not None else {}


def _default_helps(pod: PodInfo, old: object, new: object) -> bool:
    """Default selectors concern pods without constraints of their own."""
    return not pod.spec.topology_spread_constraints
