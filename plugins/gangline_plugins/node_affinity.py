"""NodeAffinity: nodeSelector and node affinity, by label and by name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gangline import (
    NODE,
    SKIP,
    Action,
    CodeColumn,
    EventHint,
    Narrow,
    NodeView,
    PodInfo,
    Reason,
    ScoreColumn,
    Status,
    codes,
    default_normalize,
    hookimpl,
    model,
    node_selection,
    on,
    unschedulable,
)


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments, named as upstream."""

    added_affinity: model.NodeAffinity | None = None
    """Node affinity that every pod of the profile has in addition to its own."""


class NodeAffinity:
    """Evaluated over label columns."""

    name = "NodeAffinity"
    reads = NODE
    ignores_requests = True
    args_type = Args
    reasons = (
        Reason("node(s) didn't match scheduler-enforced node affinity", resolvable=False),
        Reason("node(s) didn't match Pod's node affinity/selector", resolvable=False),
    )

    def __init__(self, args: Args) -> None:
        added = args.added_affinity
        self._added_required = added.required if added else None
        self._added_preferred = added.preferred if added else []
        if self._added_required is not None:
            node_selection.check_selector(self._added_required, "addedAffinity.required")
        for i, preferred in enumerate(self._added_preferred):
            node_selection.check_term(preferred.preference, f"addedAffinity.preferred[{i}]")

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A new node, or other labels."""
        return (on("nodes", Action.ADD | Action.UPDATE_NODE_LABEL),)

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | Narrow | None:
        """Skip the filter for a pod without selectors; terms that name nodes narrow the search down to these."""
        required = _required(pod)
        if not pod.spec.node_selector and required is None and self._added_required is None:
            return SKIP
        if required is None:
            return None
        names = node_selection.names_of(required.node_selector_terms)
        if names is None:
            return None
        if not names:
            return unschedulable("pod affinity terms conflict", resolvable=False)
        return Narrow(names)

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Nodes that do not match."""
        matches = node_selection.match_labels(pod.spec.node_selector or {}, nodes)
        required = _required(pod)
        if required is not None:
            matches = matches & node_selection.match_selector(required, nodes)
        if self._added_required is None:
            return codes(nodes.full(False), ~matches)
        return codes(~node_selection.match_selector(self._added_required, nodes), ~matches)

    @hookimpl
    def pre_score(self, pod: PodInfo) -> Status | None:
        """Skip the score for a pod without preferences. Raises InvalidObject for an invalid one."""
        preferred = _preferred(pod)
        for i, term in enumerate(preferred):
            node_selection.check_term(term.preference, f"spec.affinity.nodeAffinity.preferred[{i}].preference")
        return None if preferred or self._added_preferred else SKIP

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """The sum of the weights of the preferences that hold."""
        scores = np.zeros(len(nodes))
        for term in (*_preferred(pod), *self._added_preferred):
            scores += term.weight * node_selection.match_term(term.preference, nodes)
        return scores

    @hookimpl
    def normalize_score(self, scores: ScoreColumn) -> ScoreColumn:
        """The best node gets 100."""
        return default_normalize(scores)


def _affinity(pod: PodInfo) -> model.NodeAffinity | None:
    return pod.spec.affinity.node_affinity if pod.spec.affinity else None


def _required(pod: PodInfo) -> model.NodeSelector | None:
    affinity = _affinity(pod)
    return affinity.required if affinity else None


def _preferred(pod: PodInfo) -> list[model.PreferredSchedulingTerm]:
    affinity = _affinity(pod)
    return affinity.preferred if affinity else []
