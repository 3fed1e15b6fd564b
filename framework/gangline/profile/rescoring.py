"""Brings the scores that are kept for an identity up to date in the rows that have changed.

The verdicts on these rows are up to date already. Nothing in this module changes the cluster.
"""

from __future__ import annotations

import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.profile.answers import are_all, are_in_range, check_range, out_of_range, scores_of
from gangline.profile.entries import Entry, Scores
from gangline.profile.implementations import Implementation
from gangline.profile.leading import BestRows
from gangline.state.changes import PODS
from gangline.state.node_view import NodeView
from gangline.state.pods import PodInfo
from gangline.status import MAX_SCORE, BoolColumn, ScoreColumn

_ROWS_EACH = 1024
"""Keeping the best rows in step with one changed row takes as long as looking at this many rows."""


def score_rows(entry: Entry, scores: Scores, cycle: Cycle, pod: PodInfo, view: NodeView, kinds: int) -> None:
    """Score the rows of a view again, of which changes of these kinds have been noted."""
    if kinds == PODS and len(view) == 1:
        score_row(entry, scores, cycle, pod, view, view.first)
        return
    index = view.index
    for impl in scores.scorers:
        if (impl.reads or 0) & kinds:
            rescore(scores, entry.feasible, impl, cycle, pod, view)
    total: ScoreColumn | float = 0.0
    if scores.scorers:
        scores.base[index] = total = summed(scores, view)
    if scores.ranked is not None:
        ranked = np.where(entry.feasible[index], total, -1.0)
        if len(ranked) * _ROWS_EACH > len(scores.ranked):
            scores.leaders = None
        if scores.leaders is not None:
            _follow(scores, scores.leaders, view, scores.ranked[index], ranked)
        scores.ranked[index] = ranked


def score_row(entry: Entry, scores: Scores, cycle: Cycle, pod: PodInfo, view: NodeView, row: int) -> None:
    """Score one row whose pods have changed, the only one of the view; nearly every cycle does this, so it uses plain
    numbers.
    """
    feasible, total = entry.feasible.item(row), 0.0
    for impl in scores.scorers:
        kept = scores.raw[impl.name]
        if (impl.reads or 0) & PODS:
            answer = scores_of(impl, "score", impl.call(cycle, pod, view), 1)
            said = answer.item(0)
            if impl.normalize is not None:
                scores.keep(impl.name, view.index, answer)
            elif not 0.0 <= said <= MAX_SCORE:
                if feasible:
                    raise out_of_range(impl, said, said)
                said = 0.0
            kept[row] = said
        if impl.normalize is None:
            total += impl.weight * float(kept[row])
    scores.base[row] = total
    if scores.ranked is not None:
        ranked = total if feasible else -1.0
        if scores.leaders is not None and not scores.leaders.follow(row, scores.ranked.item(row), ranked):
            scores.leaders = None
        scores.ranked[row] = ranked


def rescore(
    scores: Scores,
    feasible: BoolColumn,
    impl: Implementation,
    cycle: Cycle,
    pod: PodInfo,
    view: NodeView,
) -> None:
    """Ask a plugin for the scores of the nodes in a view, and keep them."""
    raw = scores_of(impl, "score", impl.call(cycle, pod, view), len(view))
    if impl.normalize is None and not are_in_range(raw):
        check_range(impl, raw[feasible[view.index]])  # on infeasible nodes any score is allowed
        raw = np.where((raw >= 0.0) & (raw <= MAX_SCORE), raw, 0.0)
    if impl.name in scores.raw:
        scores.keep(impl.name, view.index, raw)
        return
    scores.raw[impl.name] = raw if raw.flags.owndata and raw.flags.writeable else raw.copy()
    if impl.normalize is not None:
        scores.constant[impl.name] = are_all(raw, raw)


def summed(scores: Scores, view: NodeView) -> ScoreColumn:
    """The weighted sum, at the rows of a view, of the scores that need no normalization."""
    total: ScoreColumn | None = None
    for impl in scores.scorers:
        if impl.normalize is None:
            raw = scores.raw[impl.name][view.index]
            weighted = raw if impl.weight == 1 else impl.weight * raw
            total = weighted if total is None else total + weighted
    return np.zeros(len(view)) if total is None else total


def _follow(scores: Scores, leaders: BestRows, view: NodeView, before: ScoreColumn, ranked: ScoreColumn) -> None:
    """Keep the leaders in step with the rows of a view whose values change."""
    changed = zip(view.rows.tolist(), before.tolist(), ranked.tolist(), strict=True)
    if not all([leaders.follow(row, before, now) for row, before, now in changed]):
        scores.leaders = None
