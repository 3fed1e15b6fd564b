"""Evaluates one pod against all nodes: filters and scores as columns, kept per identity.

Most pods are like a pod that was evaluated before, and most nodes have not changed since. So the results of filters and
scores are kept in an entry per identity. For the next pod with this identity, only the rows in the log of changes are
evaluated again. An attempt calls `filter`, which returns the feasible nodes and the entry, then `choose`, which scores
them and picks the best row.

Rules:
- The identity of a pod is its class and the `identity` answers of the plugins that declare `reads`. The verdicts of
  such
  plugins follow from the identity and the columns that they read, so these verdicts are kept. Every other plugin is
  called for each attempt, over all rows.
- An entry is always updated before it is used.
- Nothing in this module changes the cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gangline.api.cycle_state import Cycle, StateKey
from gangline.api.diagnosis import Diagnosis, RejectedNodes
from gangline.deadline import NO_DEADLINE, Deadline
from gangline.failures import cause_of
from gangline.profile.answers import capacity_of, check_range, codes_of, identity_of, out_of_range, scores_of
from gangline.profile.ranking import Wishes, outranking
from gangline.profile.registry import CompiledProfile, Implementation
from gangline.sizes import BoundedCache, quick_size_of
from gangline.state.changes import OWN, PODS, ChangeLog, together
from gangline.state.nodes import Int64Column, Nodes, NodeView, Rows
from gangline.state.pods import PodInfo
from gangline.status import (
    MAX_SCORE,
    SKIP,
    BoolColumn,
    Code,
    CodeColumn,
    Narrow,
    ScoreColumn,
    Status,
    read_only,
)

_AFTER_FILTERS = ("reserve", "permit", "pre_bind", "bind", "post_bind", "unreserve")
_KEPT_BYTES = 64 * 1024 * 1024
"""For the entries of all identities: at 5,000 nodes, 150 with scores or 600 without."""
_ENTRY_BYTES = 4096
"""The size of an entry without its arrays and shared values: lists, maps and sets, and the headers of the arrays."""

_SCORE_BYTES = np.dtype(np.float64).itemsize


@dataclass(slots=True, eq=False)
class _Entry:
    """The kept results of one identity."""

    key: Hashable
    position: Any
    shared: Mapping[StateKey[Any], Any]
    rejected: Status | None
    narrow: dict[str, Narrow]
    filters: list[Implementation]
    shared_bytes: int = 0
    """The size of the key and of the values that plugins share in the entry, measured once."""
    changing: list[Implementation] = field(default_factory=list)
    """The filters that look at the pods of a node."""
    steady: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """Where all other filters pass; changes only when a node itself changes."""
    skipped: set[str] = field(default_factory=set)
    """Plugins that are called for each attempt, but have answered that no pod of this class concerns them."""
    codes: dict[str, CodeColumn] = field(default_factory=dict)
    feasible: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    shown: BoolColumn = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    """`feasible` for plugins, read-only."""
    scorers: list[Implementation] | None = None
    raw: dict[str, ScoreColumn] = field(default_factory=dict)
    told: tuple[tuple[str, int], ...] = ()
    """Plugin and weight of the scores that need no normalization."""
    columns: list[ScoreColumn] = field(default_factory=list)
    """These scores, in the same order."""
    constant: dict[str, bool] = field(default_factory=dict)
    """Whether a normalized score is the same on all nodes, so that it decides nothing."""
    base: ScoreColumn = field(default_factory=lambda: np.zeros(0))
    """Weighted sum of the scores that need no normalization."""
    ranked: ScoreColumn = field(default_factory=lambda: np.zeros(0))
    """`base` where feasible, -1 elsewhere."""


@dataclass(slots=True, eq=False)
class Filtered:
    """The result of filtering one pod."""

    pod: PodInfo
    cycle: Cycle
    entry: _Entry
    feasible: BoolColumn
    codes: dict[str, CodeColumn] = field(default_factory=dict)
    """Verdicts of the plugins that are called for each attempt."""
    narrow: dict[str, Narrow] = field(default_factory=dict)
    status: Status | None = None
    skipped: frozenset[str] | set[str] = frozenset()
    count: int = 0
    """Feasible nodes at the last choice; 0 without a choice."""
    extra: list[tuple[str, int, ScoreColumn]] = field(default_factory=list)
    """Plugin, weight and scores of the feasible nodes at the last choice, for the scores that cannot be kept."""
    place: int = -1
    """The index of the chosen node among the feasible nodes; only if `extra` has entries."""


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
        self._nodes = nodes
        self._ties = ties
        self._entries: BoundedCache[Hashable, _Entry] = BoundedCache(kept_bytes, _size, fewest=16)
        self._changes: ChangeLog = together((nodes.changes, *profile.own_changes()))
        self._workload = workload
        self._identities = [each for each in profile.identities if each.is_kept]
        self._other_identities = [each for each in profile.identities if not each.is_kept]
        self._looks_at_owners = any(each.of_workload for each in self._identities)
        points = profile.points
        self._pre_cycle = points.get("pre_cycle", ())
        self._pre_filters = points.get("pre_filter", ())
        self._filters = points.get("filter", ())
        self._pre_scores = {impl.name: impl for impl in points.get("pre_score", ())}
        self._scorers = points.get("score", ())
        self._dynamic_pre_filters = [i for i in self._pre_filters if i.reads is None]
        self._kept_pre_filters = [i for i in self._pre_filters if i.reads is not None]
        self._dynamic_filters = [i for i in self._filters if i.reads is None]
        self._outranking = outranking({impl.name: impl.weight for impl in self._scorers})
        self._dynamic_scorers = [i for i in self._scorers if i.reads is None]
        self._kept_scorers = [i for i in self._scorers if i.reads is not None]
        later = {impl.name for point in _AFTER_FILTERS for impl in points.get(point, ())}
        self._counting = [impl for impl in self._filters if impl.capacity is not None]
        self._remembering = [impl for impl in self._dynamic_pre_filters if impl.name in later]
        self._pre_filter_order = {impl.name: n for n, impl in enumerate(self._pre_filters)}

    @contextmanager
    def within(self, deadline: Deadline) -> Iterator[None]:
        """Sets the deadline for everything that is evaluated in this block."""
        before, self.deadline = self.deadline, deadline
        try:
            yield
        finally:
            self.deadline = before

    def identity(self, pod: PodInfo) -> Hashable:
        """The key under which verdicts are kept: pods with equal identities get equal verdicts. Raises PluginError."""
        if not self._identities:
            return pod.cls.id
        annotations = self._workload(pod) if self._looks_at_owners else pod.annotations
        return (pod.cls.id, *identity_of(self._identities, pod, annotations))

    def likeness(self, pod: PodInfo) -> Hashable:
        """The identity, and the answers of the plugins whose verdicts are not kept.

        No plugin can tell pods with equal values apart. Raises PluginError.
        """
        others = identity_of(self._other_identities, pod, self._workload(pod)) if self._other_identities else ()
        return self.identity(pod), *others

    # Filtering

    def filter(self, pod: PodInfo) -> Filtered:
        """Which nodes are feasible now. Raises PluginError and DeadlineExceeded."""
        deadline = self.deadline
        deadline.check()
        for impl in self._pre_cycle:
            impl.call(pod)
        entry = self._entry(pod)
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
        return result

    def prepare(self, pod: PodInfo) -> tuple[Cycle, frozenset[str] | None] | None:
        """What plugins have to remember of a pod that is placed unfiltered: a member of a group, like other members.

        Returns also the nodes to which plugins narrow this pod, if they do; None if a plugin rejects the pod as a
        whole. Only plugins with a hook after the filters are called. The entry of the class may be out of date, as no
        column is read. Raises PluginError.
        """
        for impl in self._pre_cycle:
            _quickly(impl, pod)
        entry = self._entries.get(self.identity(pod)) or self._entry(pod)
        if entry.rejected is not None:
            return None
        cycle = Cycle(entry.shared, entry.skipped)
        nodes: frozenset[str] | None = None
        view = self._nodes.view()
        for impl in self._remembering:
            if impl.name in entry.skipped:
                continue
            answer = _quickly(impl, cycle, pod, view)
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
            verdicts = filtered.codes.get(impl.name)
            if verdicts is None:
                verdicts = filtered.entry.codes.get(impl.name)
            if verdicts is not None and filtered.status is None:
                rejections.append(RejectedNodes(impl.name, impl.plugin, read_only(verdicts), impl.failures))
        narrow = {**filtered.entry.narrow, **filtered.narrow}
        return Diagnosis(
            pod=filtered.pod,
            nodes=self._nodes.view(),
            cycle=filtered.cycle,
            rejections=rejections,
            narrowed=self._mask(narrow) if narrow else None,
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
            rejected = _nothing_left(narrow)
            result.feasible = entry.feasible & self._mask(result.narrow)
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
        if count == 1:
            return int(feasible.argmax())
        self._ensure_scored(entry, filtered.pod)
        extra = filtered.extra = self._extra_scores(filtered)
        if not extra and bonus is None and feasible is entry.feasible:
            return self._best_of(entry.ranked)
        index = feasible.nonzero()[0]
        ranked = entry.base[index]
        for _, weight, scores in extra:
            ranked += weight * scores
        if bonus is not None:
            ranked += bonus[index]
        filtered.place = self._best_of(ranked)
        return int(index[filtered.place])

    def _best_of(self, ranked: ScoreColumn) -> int:
        if self._ties is None:
            return int(ranked.argmax())
        ties = (ranked == ranked.max()).nonzero()[0]
        return int(ties[0] if len(ties) == 1 else ties[int(self._ties.random() * len(ties))])

    def ranking(self, filtered: Filtered) -> ScoreColumn:
        """For each row the weighted sum of the scores that are kept per identity; only for comparing rows."""
        self._ensure_scored(filtered.entry, filtered.pod)
        return filtered.entry.base

    def wishes(self, filtered: Filtered) -> Wishes | None:
        """The feasible rows and the weighted sum of the scores that outrank all others; None without such scores.

        See `ranking.outranking`. In the profiles that come with Gangline these scores express what users ask for.
        """
        if not self._outranking:
            return None
        self._ensure_scored(filtered.entry, filtered.pod)
        extra = self._extra_scores(filtered, self._outranking)
        if not extra:
            return None
        index = filtered.feasible.nonzero()[0]
        total: ScoreColumn = sum((weight * scores for _, weight, scores in extra), start=np.zeros(len(index)))
        return index, total

    def scores(self, filtered: Filtered) -> dict[str, ScoreColumn]:
        """Each plugin's normalized score before its weight, for the feasible nodes in row order; for explanations."""
        self._ensure_scored(filtered.entry, filtered.pod)
        index = filtered.feasible.nonzero()[0]
        result = {}
        dynamic = {name: s for name, _, s in self._dynamic_scores(filtered, index)}
        for impl in self._scorers:
            if impl.name in dynamic:
                result[impl.name] = dynamic[impl.name]
            elif impl.name in filtered.entry.raw:
                raw = filtered.entry.raw[impl.name][index]
                result[impl.name] = self._normalized(impl, filtered, raw)
        return result

    def weights(self) -> dict[str, int]:
        """The weight of each scoring plugin."""
        return {impl.name: impl.weight for impl in self._scorers}

    def scores_at(self, filtered: Filtered, row: int) -> tuple[tuple[tuple[str, int], ...], list[float]]:
        """The scores of the row at the last choice: plugins with their weights, and each score before its weight.

        Scores that are the same on all nodes after normalization are left out. Costs well under a microsecond.
        """
        if filtered.count < 2:
            return (), []
        entry = filtered.entry
        scores = [column.item(row) for column in entry.columns]
        if not filtered.extra or filtered.place < 0:
            return entry.told, scores
        names = [(name, weight) for name, weight, _ in filtered.extra]
        scores += [column.item(filtered.place) for _, _, column in filtered.extra]
        return (*entry.told, *names), scores

    def _extra_scores(
        self, filtered: Filtered, only: frozenset[str] | None = None
    ) -> list[tuple[str, int, ScoreColumn]]:
        """Weighted scores that cannot be kept: those normalized over the feasible nodes, and those of this attempt."""
        entry = filtered.entry
        extra = []
        index: Rows | None = None
        for impl in entry.scorers or ():
            if impl.normalize is not None and not entry.constant[impl.name] and (only is None or impl.name in only):
                if index is None:
                    index = filtered.feasible.nonzero()[0]
                scores = self._normalized(impl, filtered, entry.raw[impl.name][index])
                extra.append((impl.name, impl.weight, scores))
        return extra + self._dynamic_scores(filtered, index, only)

    def _dynamic_scores(
        self, filtered: Filtered, index: Rows | None, only: frozenset[str] | None = None
    ) -> list[tuple[str, int, ScoreColumn]]:
        cycle, pod = filtered.cycle, filtered.pod
        feasible, entry = filtered.feasible, filtered.entry
        cycle.feasible = entry.shown if feasible is entry.feasible else read_only(feasible)
        view = self._nodes.view()
        result = []
        for impl in self._dynamic_scorers:
            if (only is not None and impl.name not in only) or self._is_skipped(impl, cycle, pod, view):
                continue
            cycle.deadline.check()
            raw = scores_of(impl, "score", impl.call(cycle, pod, view), len(view))
            index = filtered.feasible.nonzero()[0] if index is None else index
            result.append((impl.name, impl.weight, self._normalized(impl, filtered, raw[index])))
        return result

    def _is_skipped(self, impl: Implementation, cycle: Cycle, pod: PodInfo, view: NodeView) -> bool:
        pre_score = self._pre_scores.get(impl.name)
        answer = pre_score.call(cycle, pod, view) if pre_score is not None else None
        if answer is None or answer.is_success:
            return False
        if answer.code is Code.SKIP:
            return True
        raise impl.refused("pre_score", answer.message)

    def _normalized(self, impl: Implementation, filtered: Filtered, raw: ScoreColumn) -> ScoreColumn:
        if impl.normalize is not None:
            normalized = impl.normalize(filtered.cycle, filtered.pod, raw)
            raw = scores_of(impl, "normalize_score", normalized, len(raw))
        check_range(impl, raw)
        return raw

    def _ensure_scored(self, entry: _Entry, pod: PodInfo) -> None:
        if entry.scorers is not None:
            return
        cycle = Cycle(entry.shared, deadline=self.deadline)
        view = self._nodes.view()
        scorers = []
        check = self.deadline.check
        for impl in self._kept_scorers:
            check()
            if not self._is_skipped(impl, cycle, pod, view):
                scorers.append(impl)
        if exported := cycle.export():
            entry.shared = {**entry.shared, **exported}
            entry.shared_bytes += sum(map(quick_size_of, exported.values()))
        filtered_cycle = Cycle(entry.shared, deadline=self.deadline)
        entry.raw.clear()
        for impl in scorers:
            check()
            self._rescore(entry, impl, filtered_cycle, pod, view)
        plain = [impl for impl in scorers if impl.normalize is None]
        entry.told = tuple((impl.name, impl.weight) for impl in plain)
        entry.columns = [entry.raw[impl.name] for impl in plain]
        entry.scorers = scorers  # at the end: a plugin that raises leaves the entry without scores
        self._rebase(entry, view.index)
        self._entries.measure(entry.key)

    def _rescore(self, entry: _Entry, impl: Implementation, cycle: Cycle, pod: PodInfo, view: NodeView) -> None:
        raw = scores_of(impl, "score", impl.call(cycle, pod, view), len(view))
        within = raw.min(initial=0.0) >= 0.0 and raw.max(initial=0.0) <= MAX_SCORE
        if impl.normalize is None and not within:
            check_range(impl, raw[entry.feasible[view.index]])  # elsewhere it may say what it likes; it counts as 0
            raw = np.where((raw >= 0.0) & (raw <= MAX_SCORE), raw, 0.0)
        kept = entry.raw.get(impl.name)
        if impl.normalize is not None:
            first = raw[:1] if kept is None else kept[0]
            entry.constant[impl.name] = entry.constant.get(impl.name, True) and bool((raw == first).all())
        if kept is None:
            entry.raw[impl.name] = raw if raw.flags.owndata and raw.flags.writeable else raw.copy()
        else:
            kept[view.index] = raw

    def _rebase(self, entry: _Entry, index: slice | Rows) -> None:
        """Sum and rank the scores at these rows again."""
        whole = len(entry.ranked) != len(entry.feasible)
        total: ScoreColumn | None = None
        for impl in entry.scorers or ():
            if impl.normalize is None:
                raw = entry.raw[impl.name][index]
                weighted = raw if impl.weight == 1 else impl.weight * raw
                total = weighted if total is None else total + weighted
        if total is None:
            total = np.zeros(len(entry.feasible[index]))
        ranked = np.where(entry.feasible[index], total, -1.0)
        if whole:
            entry.base, entry.ranked = total.copy(), ranked
        else:
            entry.base[index], entry.ranked[index] = total, ranked

    # What is kept per identity

    def _entry(self, pod: PodInfo) -> _Entry:
        key = self.identity(pod)
        entry = self._entries.get(key)
        if entry is None or not self._refresh(entry, pod):
            entry = self._entries.put(key, self._build(key, pod))
        return entry

    def _build(self, key: Hashable, pod: PodInfo) -> _Entry:
        nodes, position = self._nodes, self._changes.position
        cycle = Cycle(deadline=self.deadline)
        view = nodes.view()
        rejected: Status | None = None
        narrow: dict[str, Narrow] = {}
        skipped = set()
        check = self.deadline.check
        for impl in self._kept_pre_filters:
            check()
            answer = impl.call(cycle, pod, view)
            if answer is None:
                continue
            if isinstance(answer, Narrow):
                narrow[impl.name] = answer
            elif answer.code in (Code.SKIP, Code.SKIP_CLASS):
                skipped.add(impl.name)
            elif not answer.is_success and rejected is None:
                rejected = answer.by(impl.name)
        rejected = rejected or _nothing_left(narrow)
        filters = [i for i in self._filters if i.reads is not None and i.name not in skipped and rejected is None]
        entry = _Entry(key, position, cycle.export(), rejected, narrow, filters)
        entry.shared_bytes = sum(map(quick_size_of, (key, *entry.shared.values(), *narrow.values())))
        entry.changing = [impl for impl in filters if (impl.reads or 0) & PODS]
        for impl in filters:
            check()
            verdicts = codes_of(impl, impl.call(cycle, pod, view), len(view)).copy()
            entry.codes[impl.name] = verdicts
        entry.steady = np.zeros(nodes.size, dtype=np.bool_)
        entry.feasible = np.zeros(nodes.size, dtype=np.bool_)
        entry.shown = read_only(entry.feasible)
        self._combine(entry, nodes.everything)
        return entry

    def _combine(self, entry: _Entry, index: slice | Rows) -> None:
        """Combine the verdicts of the filters at these rows."""
        steady = self._nodes.alive[index].copy()
        if entry.narrow:
            steady &= self._mask(entry.narrow)[index]
        feasible = steady.copy()
        for impl in entry.filters:
            passes = entry.codes[impl.name][index] == 0
            feasible &= passes
            if impl not in entry.changing:
                steady &= passes
        entry.steady[index] = steady
        entry.feasible[index] = feasible

    def _refresh(self, entry: _Entry, pod: PodInfo) -> bool:
        """Update an entry; False if building a new one is cheaper."""
        nodes, position = self._nodes, self._changes.position
        if entry.position == position:
            return True
        if len(entry.feasible) != nodes.size:
            return False
        changed = self._changes.since(entry.position, nodes.view().few)
        if changed is None:
            return False
        rows, kinds = changed
        if kinds & OWN:
            rows = rows[rows < nodes.size]
        if len(rows) == 1 and kinds == PODS:
            self._evaluate_row(entry, pod, int(rows[0]))
        else:
            self._evaluate_rows(entry, pod, rows, kinds)
        entry.position = position
        return True

    def _evaluate_rows(self, entry: _Entry, pod: PodInfo, index: Rows, kinds: int) -> None:
        view = self._nodes.view(index)
        cycle = Cycle(entry.shared)
        for impl in entry.filters:
            if (impl.reads or 0) & kinds:
                _keep(entry, impl.name, index, codes_of(impl, impl.call(cycle, pod, view), len(view)))
        self._combine(entry, index)
        if entry.scorers is None:
            return
        for impl in entry.scorers:
            if (impl.reads or 0) & kinds:
                self._rescore(entry, impl, cycle, pod, view)
        self._rebase(entry, index)

    def _evaluate_row(self, entry: _Entry, pod: PodInfo, row: int) -> None:
        """Evaluate one row whose pods have changed; nearly every cycle does this, so it uses plain numbers."""
        view = self._nodes.view(slice(row, row + 1))
        cycle = Cycle(entry.shared)
        feasible = bool(entry.steady[row])
        for impl in entry.changing:
            verdict = codes_of(impl, impl.call(cycle, pod, view), 1)
            _keep(entry, impl.name, view.index, verdict)
            feasible = feasible and not verdict[0]
        entry.feasible[row] = feasible
        if entry.scorers is None:
            return
        total = 0.0
        for impl in entry.scorers:
            kept = entry.raw[impl.name]
            if (impl.reads or 0) & PODS:
                score = float(scores_of(impl, "score", impl.call(cycle, pod, view), 1)[0])
                if impl.normalize is not None:
                    entry.constant[impl.name] &= score == kept[0]
                elif not 0.0 <= score <= MAX_SCORE:
                    if feasible:
                        raise out_of_range(impl, score, score)
                    score = 0.0
                kept[row] = score
            if impl.normalize is None:
                total += impl.weight * float(kept[row])
        entry.base[row] = total
        entry.ranked[row] = total if feasible else -1.0

    def _mask(self, narrow: Mapping[str, Narrow]) -> BoolColumn:
        """The rows that every pre-filter leaves."""
        mask = np.zeros(self._nodes.size, dtype=np.bool_)
        names = frozenset.intersection(*(answer.names for answer in narrow.values()))
        rows = [row for name in names if (row := self._nodes.row_of(name)) is not None]
        mask[rows] = True
        return mask


def _size(key: Hashable, entry: _Entry) -> int:
    """The size of an entry in bytes."""
    rows = len(entry.feasible)
    masks = entry.steady.nbytes + entry.feasible.nbytes + sum([codes.nbytes for codes in entry.codes.values()])
    scores = entry.base.nbytes + entry.ranked.nbytes + rows * _SCORE_BYTES * len(entry.raw)
    return _ENTRY_BYTES + masks + scores + entry.shared_bytes


def _quickly(impl: Implementation, *args: Any) -> Any:
    """Call a plugin for one of many pods, without timing."""
    try:
        return impl.quick(*args)
    except BaseException as error:  # a plugin's bug fails its group, not the scheduler
        raise impl.failures.raised(impl.name, impl.point, error) from cause_of(error)


def _keep(entry: _Entry, name: str, index: slice | Rows, verdicts: CodeColumn) -> None:
    """Store verdicts at these rows; the column gets more bits if the new verdicts need them."""
    kept = entry.codes[name]
    if verdicts.dtype.itemsize > kept.dtype.itemsize:
        kept = entry.codes[name] = kept.astype(verdicts.dtype)
    kept[index] = verdicts


def _nothing_left(narrow: Mapping[str, Narrow]) -> Status | None:
    """The rejection if the pre-filters leave no node."""
    if not narrow or frozenset.intersection(*(answer.names for answer in narrow.values())):
        return None
    names = sorted(narrow)
    if len(names) == 1:
        message = f"node(s) didn't satisfy plugin {names[0]}"
    else:
        message = f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (message,))
