"""Evaluates one pod against all nodes: filters and scores as columns.

An attempt calls `filter`, which returns the feasible nodes, then `choose`, which scores them and picks the best row.
The answers of plugins that declare `reads` come from the entry of the pod's identity (`keeping`); every other plugin
is called for each attempt, over all rows. Nothing in this module changes the cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.api.diagnosis import Diagnosis, RejectedNodes
from gangline.deadline import NO_DEADLINE, Deadline
from gangline.failures import cause_of
from gangline.profile.answers import capacity_of, check_range, codes_of, identity_of, is_skipped, scores_of
from gangline.profile.entries import Extra, Filtered, Scores
from gangline.profile.implementations import CompiledProfile, Implementation
from gangline.profile.keeping import Kept
from gangline.profile.narrowing import mask_of, nothing_left
from gangline.profile.ranking import Wishes, outranking
from gangline.state.node_view import Int64Column, Rows
from gangline.state.nodes import Nodes
from gangline.state.pods import PodInfo
from gangline.status import SKIP, BoolColumn, Code, CodeColumn, Narrow, ScoreColumn, Status, read_only

_AFTER_FILTERS = ("reserve", "permit", "pre_bind", "bind", "post_bind", "unreserve")
_KEPT_BYTES = 64 * 1024 * 1024
"""For the entries of all identities: at 5,000 nodes, 150 with scores or 600 without."""


class Evaluator:
    """Calls the filters and scores of one profile."""

    def __init__(
        self,
        profile: CompiledProfile,
        nodes: Nodes,
        ties: random.Random | None,
        kept_bytes: int = _KEPT_BYTES,
        workload: Callable[[PodInfo], Mapping[str, str]] = lambda pod: pod.annotations,
    ) -> None:
        self.deadline: Deadline = NO_DEADLINE
        """The deadline of the current decision; checked before each call of a plugin over all nodes."""
        self.kept = Kept(profile, nodes, kept_bytes, workload)
        self._nodes = nodes
        self._ties = ties
        self._identities = profile.identities
        self._identifying = {each.name for each in profile.identities}
        points = profile.points
        self._pre_cycle = points.get("pre_cycle", ())
        self._pre_cycle_of_pods = [impl for impl in self._pre_cycle if impl.asks_for_pod]
        pre_filters = points.get("pre_filter", ())
        self._filters = points.get("filter", ())
        self._pre_scores = {impl.name: impl for impl in points.get("pre_score", ())}
        self._scorers = points.get("score", ())
        self._dynamic_pre_filters = [i for i in pre_filters if i.reads is None]
        self._dynamic_filters = [i for i in self._filters if i.reads is None]
        self._outranking = outranking({impl.name: impl.weight for impl in self._scorers})
        self._dynamic_scorers = [i for i in self._scorers if i.reads is None]
        later = {impl.name for point in _AFTER_FILTERS for impl in points.get(point, ())}
        self._counting = [impl for impl in self._filters if impl.capacity is not None]
        self._failing = [
            (number, impl.errors_from, impl)
            for number, impl in enumerate(self._filters)
            if impl.errors_from is not None
        ]
        self._remembering = [impl for impl in self._dynamic_pre_filters if impl.name in later]
        self._pre_filter_order = {impl.name: n for n, impl in enumerate(pre_filters)}

    @contextmanager
    def within(self, deadline: Deadline) -> Iterator[None]:
        """Sets the deadline for everything that is evaluated in this block."""
        before, self.deadline = self.deadline, deadline
        try:
            yield
        finally:
            self.deadline = before

    def likeness(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        """The class of the pod and what each plugin reads of it beyond the class, with the annotations of its owners.

        No plugin can tell pods with equal values apart: their identities are equal, and so are the answers of the
        plugins whose verdicts are not kept. Raises PluginError.
        """
        return (pod.cls.id, *identity_of(self._identities, pod, annotations))

    # Filtering

    def filter(self, pod: PodInfo) -> Filtered:
        """Which nodes are feasible now. Raises PluginError and DeadlineExceeded."""
        deadline = self.deadline
        deadline.check()
        for impl in self._pre_cycle:
            impl.call(pod)
        entry = self.kept.entry(pod, deadline)
        cycle = Cycle(entry.shared, entry.skipped, deadline)
        result = Filtered(pod, cycle, entry, entry.feasible)
        if self._prepare(result):
            result.feasible = np.zeros(self._nodes.size, dtype=np.bool_)
            return result
        view = self._nodes.view()
        for impl in self._dynamic_filters:
            if impl.name in result.skipped:
                continue
            deadline.check()
            verdicts = codes_of(impl, impl.call(cycle, pod, view), len(view))
            if verdicts.any():
                result.codes[impl.name] = verdicts
                result.feasible = result.feasible & (verdicts == 0)
        if self._failing and (error := self._error(result)):
            result.status, result.feasible = error, np.zeros(self._nodes.size, dtype=np.bool_)
        return result

    def _error(self, result: Filtered) -> Status | None:
        """The first error that a filter meets on a node which all filters before let through."""
        for number, first, impl in self._failing:
            codes = self._codes(result, impl)
            if codes is None or codes.max(initial=0) < first:
                continue
            is_wrong = self._nodes.alive[: len(codes)] & (codes >= first)
            narrow = {**result.entry.narrow, **result.narrow}
            if narrow:
                is_wrong &= mask_of(narrow, self._nodes)
            for earlier in self._filters[:number]:
                before = self._codes(result, earlier)
                if before is not None:
                    is_wrong &= before == 0
            if is_wrong.any():
                rejected = RejectedNodes(impl.name, impl.plugin, codes, impl.failures)
                (reason, *_) = rejected.reasons(result.cycle, result.pod, int(codes[int(is_wrong.argmax())]))
                return Status(Code.ERROR, (f'running "{impl.name}" filter plugin: {reason.message}',), impl.name)
        return None

    def _codes(self, result: Filtered, impl: Implementation) -> CodeColumn | None:
        """The verdicts of a filter, one per row; None if the filter has not been asked."""
        codes = result.codes.get(impl.name)
        return result.entry.codes.get(impl.name) if codes is None else codes

    def prepare(self, pod: PodInfo, like: Filtered) -> tuple[Cycle, frozenset[str] | None] | None:
        """What plugins have to remember of a pod that is placed unfiltered, because a pod like it was filtered.

        Returns also the nodes to which plugins narrow this pod, if they do; None if a plugin rejects the pod as a
        whole. Only plugins with a hook after the filters are called. A plugin with `identity` that skipped the other
        pod skips this one. Raises PluginError.
        """
        for impl in self._pre_cycle_of_pods:
            try:
                impl.quick(pod)
            except BaseException as error:  # a plugin's bug fails its group, not the scheduler
                raise impl.failures.raised(impl.name, impl.point, error) from cause_of(error)
        entry = like.entry
        if entry.rejected is not None:
            return None
        cycle = Cycle(entry.shared, entry.skipped)
        nodes: frozenset[str] | None = None
        for impl in self._remembering:
            name = impl.name
            if name in entry.skipped or (name in like.skipped and name in self._identifying):
                continue
            answer = _quickly(impl, cycle, pod, self._nodes.view())
            if answer is None or answer is SKIP:
                continue
            impl.check(answer)
            if isinstance(answer, Status) and answer.code is Code.SKIP_CLASS:
                entry.skipped.add(impl.name)
            elif isinstance(answer, Narrow):
                nodes = answer.names if nodes is None else nodes & answer.names
            elif isinstance(answer, Status) and answer.is_rejected:
                return None
        return cycle, nodes

    def capacities(self, filtered: Filtered) -> list[Int64Column]:
        """The plugins' answers to how many like pods fit on each node; the caller counts requests."""
        view = self._nodes.view()
        found = []
        for impl in self._counting:
            if impl.capacity is None or impl.name in filtered.skipped:
                continue
            answer = impl.capacity(filtered.cycle, filtered.pod, view)
            if answer is not None:
                found.append(capacity_of(impl, answer, len(view)))
        return found

    def passes(self, pod: PodInfo, rows: Rows) -> BoolColumn:
        """Whether each of these rows is feasible on the columns as they are now; for what-if."""
        return self.filter(pod).feasible[rows]

    def diagnose(self, filtered: Filtered) -> Diagnosis:
        """Why nodes are not feasible, as columns from which messages can be made."""
        rejections = []
        for impl in self._filters:
            verdicts = self._codes(filtered, impl)
            if verdicts is not None and filtered.status is None:
                rejections.append(RejectedNodes(impl.name, impl.plugin, read_only(verdicts), impl.failures))
        narrow = {**filtered.entry.narrow, **filtered.narrow}
        return Diagnosis(
            pod=filtered.pod,
            nodes=self._nodes.view(),
            cycle=filtered.cycle,
            rejections=rejections,
            narrowed=mask_of(narrow, self._nodes) if narrow else None,
            narrowed_by=tuple(narrow),
            status=filtered.status,
        )

    def _prepare(self, result: Filtered) -> bool:
        """Call the pre-filters of this attempt; True if one rejects the pod as a whole."""
        entry, cycle, pod = result.entry, result.cycle, result.pod
        rejected = entry.rejected
        view = self._nodes.view()
        skipped = set(entry.skipped)
        for impl in self._dynamic_pre_filters:
            if impl.name in skipped:
                continue
            answer = impl.call(cycle, pod, view)
            if answer is None:
                continue
            if isinstance(answer, Narrow):
                result.narrow[impl.name] = answer
            elif answer.code is Code.SKIP:
                skipped.add(impl.name)
            elif answer.code is Code.SKIP_CLASS:
                skipped.add(impl.name)
                entry.skipped.add(impl.name)
            elif not answer.is_success and self._earlier(impl.name, rejected):
                rejected = answer.by(impl.name)
        result.skipped = skipped
        if result.narrow and rejected is None:
            narrow = {**entry.narrow, **result.narrow}
            rejected = nothing_left(narrow)
            result.feasible = entry.feasible & mask_of(result.narrow, self._nodes)
        result.status = rejected
        return rejected is not None

    def _earlier(self, name: str, rejected: Status | None) -> bool:
        order = self._pre_filter_order
        return rejected is None or order[name] < order.get(rejected.plugin, len(order))

    # Scoring

    def choose(self, filtered: Filtered, bonus: ScoreColumn | None = None) -> int:
        """The row of the best feasible node; ties are broken at random, or by row without a source of randomness.

        `bonus` has a number for each row that is added to the plugins' weighted scores, in any range.
        """
        feasible = filtered.feasible
        entry = filtered.entry
        count = filtered.count = int(np.count_nonzero(feasible))
        if count < 2:
            return int(feasible.argmax())
        scores = self._scores(filtered)
        filtered.extra, index = self._extra_scores(filtered)
        extra = filtered.extra
        if not extra and bonus is None and feasible is entry.feasible and entry.is_asked_again:
            return self._best_of(self.kept.ranked(entry, scores))
        if index is None:
            index = feasible.nonzero()[0]
        ranked = scores.base[index]
        for _, weight, column in extra:
            ranked += weight * column
        if bonus is not None:
            ranked += bonus[index]
        filtered.place = self._best_of(ranked)
        return int(index[filtered.place])

    def _scores(self, filtered: Filtered) -> Scores:
        """The scores that are kept per identity. Raises PluginError and DeadlineExceeded."""
        if filtered.scores is None:
            filtered.scores = self.kept.scores(filtered.entry, filtered.pod, self.deadline)
        return filtered.scores

    def _best_of(self, ranked: ScoreColumn) -> int:
        if self._ties is None:
            return int(ranked.argmax())
        ties = (ranked == ranked.max()).nonzero()[0]
        return int(ties[0] if len(ties) == 1 else ties[int(self._ties.random() * len(ties))])

    def ranking(self, filtered: Filtered) -> ScoreColumn:
        """For each row the weighted sum of the scores that are kept per identity; only for comparing rows."""
        return self._scores(filtered).base

    def wishes(self, filtered: Filtered) -> Wishes | None:
        """The feasible rows and the weighted sum of the scores that outrank all others; None without such scores.

        See `ranking.outranking`. In the profiles that come with Gangline these scores express what users ask for.
        """
        if not self._outranking:
            return None
        extra, index = self._extra_scores(filtered, self._outranking)
        if not extra or index is None:
            return None
        total: ScoreColumn = sum((weight * scores for _, weight, scores in extra), start=np.zeros(len(index)))
        return index, total

    def scores(self, filtered: Filtered) -> dict[str, ScoreColumn]:
        """Each plugin's normalized score before its weight, for the feasible nodes in row order; for explanations."""
        kept = self._scores(filtered).raw
        index = filtered.feasible.nonzero()[0]
        result = {}
        dynamic = {name: s for name, _, s in self._dynamic_scores(filtered, index)[0]}
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

    def _extra_scores(self, filtered: Filtered, only: frozenset[str] | None = None) -> tuple[list[Extra], Rows | None]:
        """Weighted scores that cannot be kept: those normalized over the feasible nodes, and those of this attempt.

        Returns also the rows of the feasible nodes, if there are such scores.
        """
        kept = self._scores(filtered)
        extra = []
        index: Rows | None = None
        for impl in kept.scorers:
            if impl.normalize is not None and not kept.constant[impl.name] and (only is None or impl.name in only):
                if index is None:
                    index = filtered.feasible.nonzero()[0]
                scores = self._normalized(impl, filtered, kept.raw[impl.name][index])
                extra.append((impl.name, impl.weight, scores))
        found, index = self._dynamic_scores(filtered, index, only)
        return extra + found, index

    def _dynamic_scores(
        self, filtered: Filtered, index: Rows | None, only: frozenset[str] | None = None
    ) -> tuple[list[Extra], Rows | None]:
        if not self._dynamic_scorers:
            return [], index
        cycle, pod = filtered.cycle, filtered.pod
        entry = filtered.entry
        if filtered.feasible is not entry.feasible:
            cycle.feasible = read_only(filtered.feasible)
        else:
            if entry.shown is None:
                entry.shown = read_only(entry.feasible)
            cycle.feasible = entry.shown
        view = self._nodes.view()
        result = []
        for impl in self._dynamic_scorers:
            if only is not None and impl.name not in only:
                continue
            if is_skipped(self._pre_scores.get(impl.name), cycle, pod, view):
                continue
            cycle.deadline.check()
            raw = scores_of(impl, "score", impl.call(cycle, pod, view), len(view))
            index = filtered.feasible.nonzero()[0] if index is None else index
            result.append((impl.name, impl.weight, self._normalized(impl, filtered, raw[index])))
        return result, index

    def _normalized(self, impl: Implementation, filtered: Filtered, raw: ScoreColumn) -> ScoreColumn:
        if impl.normalize is not None:
            normalized = impl.normalize(filtered.cycle, filtered.pod, raw)
            raw = scores_of(impl, "normalize_score", normalized, len(raw))
        check_range(impl, raw)
        return raw


def _quickly(impl: Implementation, *args: Any) -> Any:
    """Call a plugin for one of many pods, without timing."""
    try:
        return impl.quick(*args)
    except BaseException as error:  # a plugin's bug fails its group, not the scheduler
        raise impl.failures.raised(impl.name, impl.point, error) from cause_of(error)
