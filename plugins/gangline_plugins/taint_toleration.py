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
    TaintKey,
    default_normalize,
    hookimpl,
    model,
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
    ignores_requests = True
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
        accepted, numbers, sets = pod.spec.tolerations, nodes.taints, nodes.taint_sets
        bad = [
            number
            for number, taints in enumerate(sets)
            if taints and tolerations.untolerated(taints, accepted, numeric=self._numeric) is not None
        ]
        if len(bad) > _FEW_SETS:
            verdicts = np.zeros(len(sets), dtype=np.uint8)
            verdicts[bad] = 1
            return verdicts[numbers]
        column = numbers == bad[0] if bad else nodes.full(False)
        for number in bad[1:]:
            column |= numbers == number
        return column.view(np.uint8)

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """How many taints PreferNoSchedule the pod does not tolerate."""
        accepted = [t for t in pod.spec.tolerations if t.effect in ("", "PreferNoSchedule")]
        counts = [self._avoided(taints, accepted) if taints else 0 for taints in nodes.taint_sets]
        return np.array(counts, dtype=np.float64)[nodes.taints] if any(counts) else np.zeros(len(nodes))

    def _avoided(self, taints: Sequence[TaintKey], accepted: Sequence[model.Toleration]) -> int:
        """How many of the taints PreferNoSchedule none of the tolerations tolerates."""
        preferred = [taint for taint in taints if taint.effect == "PreferNoSchedule"]
        return sum(not any(tolerations.tolerates(t, taint, self._numeric) for t in accepted) for taint in preferred)

    @hookimpl
    def normalize_score(self, scores: ScoreColumn) -> ScoreColumn:
        """Fewer is better."""
        return default_normalize(scores, reverse=True)
