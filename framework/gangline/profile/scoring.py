"""Scores the feasible nodes of one pod, and chooses the best of them.

Scores of plugins that declare `reads` come from the entry of the pod's identity (`keeping`); every other plugin is
called for each attempt, over all rows. Scores that need no normalization are added up over all rows, because that is
faster than to pick out the feasible ones; normalized scores depend on which nodes are feasible.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import numpy as np

from gangline.deadline import NO_DEADLINE, Deadline
from gangline.profile.answers import are_in_range, check_range, is_skipped, scores_of
from gangline.profile.entries import Extra, Filtered, Scores
from gangline.profile.implementations import CompiledProfile, Implementation
from gangline.profile.keeping import Kept
from gangline.profile.ranking import Wishes, outranking
from gangline.profile.repeating import Repeatable, Repeats
from gangline.state.node_view import Rows
from gangline.state.nodes import Nodes
from gangline.status import BoolColumn, ScoreColumn, read_only

_FEW = 2048
"""Among so many rows a true value is looked for at once."""
_max = np.maximum.reduce

_Answers = list[tuple[Implementation, ScoreColumn]]
"""Plugins with the scores of all rows that they gave in this attempt, not yet normalized."""


class Chosen(NamedTuple):
    """A choice that repeats the one before."""

    row: int
    feasible: int
    """The number of feasible nodes."""
    scores: tuple[tuple[tuple[str, int], ...], list[float]]
    """See `Scoring.scores_at`."""


class Scoring:
    """Calls the scores of one profile."""

    def __init__(self, profile: CompiledProfile, nodes: Nodes, kept: Kept, ties: random.Random | None) -> None:
        self.deadline: Deadline = NO_DEADLINE
        """The deadline of the current decision; checked before each call of a plugin over all nodes."""
        self.kept = kept
        self._nodes = nodes
        self._ties = ties
        points = profile.points
        self._pre_scores = {impl.name: impl for impl in points.get("pre_score", ())}
        self._scorers = points.get("score", ())
        self._dynamic_scorers = [i for i in self._scorers if i.reads is None]
        self.repeats = Repeats(profile)
        self._outranking = outranking({impl.name: impl.weight for impl in self._scorers})

    def choose(self, filtered: Filtered, bonus: ScoreColumn | None = None) -> int:
        """The row of the best feasible node; ties are broken at random, or by row without a source of randomness.

        `bonus` has a number for each row that is added to the plugins' weighted scores, in any range.
        """
        feasible = filtered.feasible
        entry = filtered.entry
        count = filtered.count = entry.counted() if feasible is entry.feasible else int(np.count_nonzero(feasible))
        if count < 2:
            return int(feasible.argmax())
        scores = self._scores(filtered)
        answers = self._answers(filtered)
        if bonus is None and _are_plain(scores, answers):
            if not answers and feasible is entry.feasible and entry.is_asked_again:
                filtered.extra = []
                self.repeats.note(filtered, scores)
                best = self.kept.leaders(entry, scores).rows
                return best[self._one_in(len(best))]
            if 2 * count > len(feasible):
                return self._best_of_all(filtered, scores, answers)
        filtered.extra, index = self._extra_scores(filtered, answers)
        if index is None:
            index = feasible.nonzero()[0]
        ranked = scores.base[index]
        for _, weight, column in filtered.extra:
            ranked += weight * column
        if bonus is not None:
            ranked += bonus[index]
        filtered.place = self._best_of(ranked)
        return int(index[filtered.place])

    def choose_again(self, last: Repeatable) -> Chosen:
        """As `choose`, for an entry that is up to date, with several feasible nodes."""
        entry, scores = last.entry, last.scores
        best = (scores.leaders or self.kept.leaders(entry, scores)).rows
        row = int(best[self._one_in(len(best))])
        return Chosen(row, entry.counted(), (scores.told, [column.item(row) for column in scores.columns]))

    def _best_of_all(self, filtered: Filtered, scores: Scores, answers: _Answers) -> int:
        """The best feasible row by scores that need no normalization."""
        feasible, total = filtered.feasible, scores.base
        extra: list[Extra] = []
        for impl, column in answers:
            if not are_in_range(column):
                check_range(impl, column[feasible])  # on infeasible nodes any score is allowed
                column = np.where(feasible, column, 0.0)
            total = total + impl.weight * column
            extra.append((impl.name, impl.weight, column))
        filtered.extra = extra
        leading = total == _max(total)
        leading &= feasible
        count = int(np.count_nonzero(leading))
        if not count:  # nodes lead that are not feasible
            total = total.copy()
            np.copyto(total, -1.0, where=np.logical_not(feasible))
            leading = total == _max(total)
            count = int(np.count_nonzero(leading))
        filtered.place = _nth_true(leading, self._one_in(count))
        return filtered.place

    def _scores(self, filtered: Filtered) -> Scores:
        """The scores that are kept per identity. Raises PluginError and DeadlineExceeded."""
        if filtered.scores is None:
            filtered.scores = self.kept.scores(filtered.entry, filtered.pod, self.deadline)
        return filtered.scores

    def _best_of(self, ranked: ScoreColumn) -> int:
        leading = ranked == _max(ranked)
        return _nth_true(leading, self._one_in(int(np.count_nonzero(leading))))

    def _one_in(self, count: int) -> int:
        """The place of one in so many equally good rows: at random, or the first without randomness."""
        return 0 if self._ties is None or count == 1 else int(self._ties.random() * count)

    def ranking(self, filtered: Filtered) -> ScoreColumn:
        """For each row the weighted sum of the scores that are kept per identity; only for comparing rows."""
        return self._scores(filtered).base

    def wishes(self, filtered: Filtered) -> Wishes | None:
        """The feasible rows and the weighted sum of the scores that outrank all others; None without such scores.

        See `ranking.outranking`. In the profiles that come with Gangline these scores express what users ask for.
        """
        if not self._outranking:
            return None
        extra, index = self._extra_scores(filtered, self._answers(filtered, self._outranking), self._outranking)
        if not extra or index is None:
            return None
        total: ScoreColumn = sum((weight * scores for _, weight, scores in extra), start=np.zeros(len(index)))
        return index, total

    def scores(self, filtered: Filtered) -> dict[str, ScoreColumn]:
        """Each plugin's normalized score before its weight, for the feasible nodes in row order; for explanations."""
        kept = self._scores(filtered).raw
        index = filtered.feasible.nonzero()[0]
        result = {}
        dynamic = {impl.name: self._normalized(impl, filtered, raw[index]) for impl, raw in self._answers(filtered)}
        for impl in self._scorers:
            if impl.name in dynamic:
                result[impl.name] = dynamic[impl.name]
            elif impl.name in kept:
                result[impl.name] = self._normalized(impl, filtered, kept[impl.name][index])
        return result

    def weights(self) -> dict[str, int]:
        """The weight of each scoring plugin."""
        return {impl.name: impl.weight for impl in self._scorers}

    def scores_at(self, filtered: Filtered, row: int) -> tuple[tuple[tuple[str, int], ...], list[float]]:
        """The scores of the row at the last choice: plugins with their weights, and each score before its weight.

        Scores that are the same on all nodes after normalization are left out. Costs well under a microsecond.
        """
        kept = filtered.scores
        if filtered.count < 2 or kept is None:
            return (), []
        scores = [column.item(row) for column in kept.columns]
        if not filtered.extra or filtered.place < 0:
            return kept.told, scores
        names = [(name, weight) for name, weight, _ in filtered.extra]
        scores += [column.item(filtered.place) for _, _, column in filtered.extra]
        return (*kept.told, *names), scores

    def _extra_scores(
        self, filtered: Filtered, answers: _Answers, only: frozenset[str] | None = None
    ) -> tuple[list[Extra], Rows | None]:
        """Weighted scores that cannot be kept: those normalized over the feasible nodes, and those of this attempt.

        Returns also the rows of the feasible nodes, if there are such scores.
        """
        kept = self._scores(filtered)
        raw = [(impl, kept.raw[impl.name]) for impl in kept.scorers if not kept.constant.get(impl.name, True)]
        raw = [(impl, column) for impl, column in raw if only is None or impl.name in only] + answers
        if not raw:
            return [], None
        index = filtered.feasible.nonzero()[0]
        extra = [(impl.name, impl.weight, self._normalized(impl, filtered, column[index])) for impl, column in raw]
        return extra, index

    def _answers(self, filtered: Filtered, only: frozenset[str] | None = None) -> _Answers:
        """The scores of the plugins that are called for each attempt. Raises PluginError and DeadlineExceeded."""
        if not self._dynamic_scorers:
            return []
        cycle, pod = filtered.cycle, filtered.pod
        entry = filtered.entry
        if filtered.feasible is not entry.feasible:
            cycle.feasible = read_only(filtered.feasible)
        else:
            cycle.feasible = entry.show()
        view = self._nodes.view()
        found = []
        for impl in self._dynamic_scorers:
            if only is not None and impl.name not in only:
                continue
            if is_skipped(self._pre_scores.get(impl.name), cycle, pod, view):
                continue
            cycle.deadline.check()
            found.append((impl, scores_of(impl, "score", impl.call(cycle, pod, view), len(view))))
        return found

    def _normalized(self, impl: Implementation, filtered: Filtered, raw: ScoreColumn) -> ScoreColumn:
        if impl.normalize is not None:
            normalized = impl.normalize(filtered.cycle, filtered.pod, raw)
            raw = scores_of(impl, "normalize_score", normalized, len(raw))
        check_range(impl, raw)
        return raw


def _nth_true(mask: BoolColumn, number: int) -> int:
    """The place of a true value, counted from 0; the numbers of all of them, often most nodes, would take longer."""
    start, end = 0, len(mask)
    while end - start > _FEW:
        middle = (start + end) // 2
        before = int(np.count_nonzero(mask[start:middle]))
        if number < before:
            end = middle
        else:
            start, number = middle, number - before
    return start + int(mask[start:end].nonzero()[0][number])


def _are_plain(scores: Scores, answers: _Answers) -> bool:
    """Whether no score that makes a difference needs normalization."""
    return all(scores.constant.values()) and (not answers or all([impl.normalize is None for impl, _ in answers]))
