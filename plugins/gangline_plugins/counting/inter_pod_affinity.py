"""InterPodAffinity: pods that must or should be near certain other pods, or away from them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Annotated

import msgspec
import numpy as np

from gangline import (
    SKIP,
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
    codes,
    hookimpl,
    model,
    on,
    unschedulable,
)
from gangline_plugins.counting.columns import Int64Column, KeySlots, RowCounts, slot_sums
from gangline_plugins.counting.counts import Clause, NamespaceLabels, PodCounts, Query, is_by_labels
from gangline_plugins.counting.inter_pod_affinity_terms import Effect, PodTerms, TermOwners, has_terms, terms_of

_REPELLED: StateKey[BoolColumn | None] = StateKey("InterPodAffinity.repelled")
_SCORES: StateKey[ScoreColumn] = StateKey("InterPodAffinity.scores")


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream."""

    hard_pod_affinity_weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 1
    """The score that the required affinity of a placed pod adds to nodes where it would attract the new pod."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Whether pods without preferred terms of their own are left unscored."""


class InterPodAffinity:
    """Sums matching pods over the values of each topology key.

    Source: kube-scheduler v1.36, interpodaffinity: the same verdicts and whole-number scores.
    """

    name = "InterPodAffinity"
    args_type = Args
    reasons = (
        Reason("node(s) didn't match pod affinity rules", resolvable=False),
        Reason("node(s) didn't match pod anti-affinity rules"),
        Reason("node(s) didn't satisfy existing pods anti-affinity rules"),
    )

    def __init__(self, args: Args, handle: Handle) -> None:
        self._args = args
        self._counts = handle.state.tracker(PodCounts, handle.state)
        self._owners = handle.state.tracker(TermOwners, handle.state)
        self._namespaces = NamespaceLabels(handle.state)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """Pods that come, go or change labels; nodes that come, go or change domains; changed labels of namespaces."""
        return (
            on("pods", Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL, self._pod_helps),
            on("nodes", Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL, self._node_helps),
            on("namespaces", Action.ADD | Action.DELETE | Action.UPDATE_OTHER, self._namespace_helps),
        )

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> Status | None:
        """Skip the filter for a pod without required terms that no placed pod's anti-affinity matches."""
        terms = terms_of(pod)
        if terms.error:
            return unschedulable(f"parsing pod: {terms.error}", resolvable=False)
        repelled = self._repelled(pod, nodes)
        if repelled is None and not terms.affinity and not terms.anti:
            return SKIP
        cycle.write(_REPELLED, repelled)
        return None

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """The first of these reasons: the pod's affinity, its anti-affinity, the anti-affinity of placed pods."""
        terms = terms_of(pod)
        nowhere = nodes.full(False)
        repelled = cycle.read(_REPELLED)
        return codes(
            self._lacks_company(pod, terms, nodes) if terms.affinity else nowhere,
            self._has_enemies(terms, nodes) if terms.anti else nowhere,
            nowhere if repelled is None else repelled,
        )

    @hookimpl
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        """The terms of placed pods that match this pod, whether its own required affinity matches it, and its terms
        where these follow from its labels.
        """
        matching = self._owners.matching(pod)
        found = frozenset(id(term) for term, _ in matching) if matching else None
        if not has_terms(pod.cls):
            return found
        terms = terms_of(pod)
        is_own = bool(terms.affinity) and self._matches(terms.together, pod)
        return found, is_own, terms if is_by_labels(pod, PodTerms) else None

    @hookimpl
    def identity_all(
        self, pods: Sequence[PodInfo], annotations: Sequence[Mapping[str, str]]
    ) -> Sequence[Hashable] | None:
        """As `identity` for each."""
        is_asked = not self._owners.is_empty or any(map(has_terms, {pod.cls for pod in pods}))
        return list(map(self.identity, pods, annotations)) if is_asked else None

    @hookimpl
    def skip_key(self, pod: PodInfo) -> Hashable:
        """Nothing is read as long as neither the pod nor a placed pod has terms."""
        return True if self._owners.is_empty and not has_terms(pod.cls) else None

    @hookimpl
    def pre_score(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> Status | None:
        """Sum up the weights of matching terms; skip the score if no term matches a pod on a node with the term's
        label.
        """
        preferred = terms_of(pod).preferred
        if self._args.ignore_preferred_terms_of_existing_pods and not preferred:
            return SKIP
        weighted = [(weight, term.topology_key, self._counts.count(term.query)) for weight, term in preferred]
        hard = self._args.hard_pod_affinity_weight
        for term, counts in self._owners.matching(pod):
            if term.effect is Effect.PREFERS:
                weighted.append((term.weight, term.topology_key, counts))
            elif term.effect is Effect.REQUIRES and hard:
                weighted.append((hard, term.topology_key, counts))
        weighted = [entry for entry in weighted if entry[2].total]
        scores = _sums(weighted, nodes) if weighted else None
        if scores is None:
            return SKIP
        cycle.write(_SCORES, scores)
        return None

    @hookimpl
    def score(self, cycle: Cycle) -> ScoreColumn:
        """The sum of weights, of any size and sign."""
        return cycle.read(_SCORES)

    @hookimpl
    def normalize_score(self, scores: ScoreColumn) -> ScoreColumn:
        """The lowest becomes 0 and the highest 100."""
        lowest = scores.min(initial=np.inf)
        span = scores.max(initial=-np.inf) - lowest
        if not span > 0:
            return np.zeros_like(scores)
        normalized: ScoreColumn = np.trunc(100.0 * ((scores - lowest) / span))
        return normalized

    # Filtering

    def _repelled(self, pod: PodInfo, nodes: NodeView) -> BoolColumn | None:
        """Nodes in a domain with a pod whose anti-affinity matches this pod; None if there is none."""
        by_key: dict[str, list[RowCounts]] = {}
        for term, counts in self._owners.matching(pod):
            if term.effect is Effect.REPELS and counts.total:
                by_key.setdefault(term.topology_key, []).append(counts)
        masks = [
            KeySlots(nodes, key).touched_by(np.concatenate([c.rows() for c in found])) for key, found in by_key.items()
        ]
        if not masks:
            return None
        repelled = masks[0] if len(masks) == 1 else np.logical_or.reduce(masks)
        return repelled if repelled.any() else None

    def _lacks_company(self, pod: PodInfo, terms: PodTerms, nodes: NodeView) -> BoolColumn:
        """Nodes without a topology label, or without the pods of the affinity terms, unless the pod is the first that
        its terms match.
        """
        rows = self._counts.count(terms.together).rows()
        labelled, met = nodes.full(True), nodes.full(True)
        anywhere = False
        for key in {term.topology_key for term in terms.affinity}:
            domains = KeySlots(nodes, key)
            near = domains.touched_by(rows)
            anywhere = anywhere or bool(near.any())
            labelled &= domains.has
            met &= near
        if not anywhere and self._matches(terms.together, pod):
            return ~labelled
        return ~(labelled & met)

    def _has_enemies(self, terms: PodTerms, nodes: NodeView) -> BoolColumn:
        """Nodes in a domain with a pod that an anti-affinity term of the new pod matches."""
        close = nodes.full(False)
        for term in terms.anti:
            counts = self._counts.count(term.query)
            if counts.total:
                close |= KeySlots(nodes, term.topology_key).touched_by(counts.rows())
        return close

    def _matches(self, query: Query, pod: PodInfo) -> bool:
        return query.matches(pod.namespace, self._namespaces.of(pod.namespace), pod.labels)

    # Hints

    def _pod_helps(self, pod: PodInfo, old: PodInfo | None, new: PodInfo | None) -> bool:
        """Whether a pod that an affinity term needs has come, or a pod that an anti-affinity term rejects has gone."""
        if new is not None and new.uid == pod.uid:
            return True
        terms = terms_of(pod)
        if new is not None and terms.affinity and self._matches(terms.together, new):
            return True
        if old is None:
            return False
        # If the last pod that the terms match goes, the waiting pod becomes the first one.
        if terms.affinity and self._matches(terms.together, old):
            return True
        if any(self._matches(t.query, old) and not (new and self._matches(t.query, new)) for t in terms.anti):
            return True
        return any(self._repels(term.clause, pod) for term in terms_of(old).anti)

    def _repels(self, clause: Clause, pod: PodInfo) -> bool:
        labels = self._namespaces.of(pod.namespace) or {}
        return clause.covers(pod.namespace, labels) and clause.selector.matches(pod.labels)

    def _node_helps(self, pod: PodInfo, old: model.Node | None, new: model.Node | None) -> bool:
        """Whether a node comes or goes, or its value changes for a key in this pod's terms."""
        if old is None or new is None:
            return True
        terms = terms_of(pod)
        keys = {term.topology_key for term in (*terms.affinity, *terms.anti)}
        keys |= {term.topology_key for term, _ in self._owners.matching(pod) if term.effect is Effect.REPELS}
        before, after = old.metadata.labels or {}, new.metadata.labels or {}
        return any(before.get(key) != after.get(key) for key in keys)

    def _namespace_helps(self, pod: PodInfo, old: model.Namespace | None, new: model.Namespace | None) -> bool:
        """Whether the changed labels may change the pods that a term matches: labels of the pod's own namespace, or of
        one that its terms select.
        """
        changed = new or old
        if changed is None or (old and new and old.metadata.labels == new.metadata.labels):
            return False
        terms = terms_of(pod)
        selects = any(term.clause.reads_namespaces for term in (*terms.affinity, *terms.anti))
        return selects or changed.metadata.name == pod.namespace


def _sums(weighted: Sequence[tuple[int, str, RowCounts]], nodes: NodeView) -> ScoreColumn | None:
    """For each node the sum of weights times pods in its domains; None if no domain has a pod."""
    by_key: dict[str, Int64Column] = {}
    for weight, key, counts in weighted:
        column = by_key.get(key)
        if column is None:
            column = by_key[key] = np.zeros(len(nodes), dtype=np.int64)
        counts.add_to(column, weight)
    total = np.zeros(len(nodes))
    domains = {key: KeySlots(nodes, key) for key in by_key}
    for key, column in by_key.items():
        sums = slot_sums(domains[key].slots, column, domains[key].size)
        sums[0] = 0.0
        total += sums[domains[key].slots]
    if total.any() or any(domains[key].has[counts.rows()].any() for _, key, counts in weighted):
        return total
    return None
