"""TaintToleration: rejects nodes with taints that a pod does not tolerate, or gives them a lower score."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gangline import (
    NODE,
    Action,
    CodeColumn,
    EventHint,
    NodeView,
    PodInfo,
    Reason,
    ScoreColumn,
    default_normalize,
    hookimpl,
    on,
    tolerations,
)

_FEW_SETS = 8
"""Sets of taints up to which comparing the column with each costs less than looking every node up: a tenth for one."""


class Args(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of TaintToleration."""

    enable_comparison_operators: bool = False
    """Whether the operators Gt and Lt are understood (gate TaintTolerationComparisonOperators, off in Kubernetes
    1.36).
    """


class TaintToleration:
    """Judges each distinct set of taints once, and spreads the verdicts over the nodes by number."""

    name = "TaintToleration"
    reads = NODE
    reasons = (Reason("node(s) had untolerated taint(s)", resolvable=False),)
    args_type = Args

    def __init__(self, args: Args) -> None:
        self._numeric = args.enable_comparison_operators

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A new node, or other taints."""
        return (on("nodes", Action.ADD | Action.UPDATE_NODE_TAINT),)

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Nodes with a taint NoSchedule or NoExecute that the pod does not tolerate."""
        accepted = pod.spec.tolerations
        verdicts = np.array(
            [
                tolerations.untolerated(taints, accepted, numeric=self._numeric) is not None
                for taints in nodes.taint_sets
            ],
            dtype=np.uint8,
        )
        bad = np.flatnonzero(verdicts).tolist()
        if len(bad) > _FEW_SETS:
            return verdicts[nodes.taints]
        column = np.zeros(len(nodes), dtype=np.bool_)
        for number in bad:
            column |= nodes.taints == number
        return column.view(np.uint8)

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """How many taints PreferNoSchedule the pod does not tolerate."""
        accepted = [t for t in pod.spec.tolerations if t.effect in ("", "PreferNoSchedule")]
        counts = np.array(
            [
                sum(
                    taint.effect == "PreferNoSchedule"
                    and not any(tolerations.tolerates(t, taint, self._numeric) for t in accepted)
                    for taint in taints
                )
                for taints in nodes.taint_sets
            ],
            dtype=np.float64,
        )
        return counts[nodes.taints] if counts.any() else np.zeros(len(nodes))

    @hookimpl
    def normalize_score(self, scores: ScoreColumn) -> ScoreColumn:
        """Fewer is better."""
        return default_normalize(scores, reverse=True)
