"""Keeps the verdicts and scores that follow from the identity of a pod and the columns, one entry per identity.

Most pods are like a pod that was evaluated before, and most nodes have not changed since. So for the next pod with an
identity only the rows in the log of changes are evaluated again.

Rules:
- Only the answers of plugins that declare `reads` are kept: they follow from the identity and the columns that these
  plugins read.
- An entry is always updated before it is used: its verdicts at each attempt, its scores when they are asked for.
- Nothing in this module changes the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.deadline import Deadline
from gangline.profile.answers import codes_of, identity_of, is_skipped
from gangline.profile.common import Common, CommonAnswers, PreFiltered, pre_filtered
from gangline.profile.entries import Entry, Scores, size
from gangline.profile.implementations import CompiledProfile, Implementation
from gangline.profile.leading import BestRows
from gangline.profile.narrowing import mask_of, nothing_left
from gangline.profile.rescoring import rescore, score_row, score_rows, summed
from gangline.sizes import CacheByUse, quick_size_of
from gangline.state.changes import PODS, ChangeLog, Changes, positions_in, positions_of, together
from gangline.state.node_view import NodeView, Rows
from gangline.state.nodes import Nodes
from gangline.state.pods import PodInfo
from gangline.status import BoolColumn, Narrow, Status

_BYTES_PER_NODE = 4096
"""Bytes for the entries that are used again and again: enough for some 80 identities with scores."""


class Kept:
    """The entries of one profile: at most `most_bytes`, or 4 KiB per node if more entries are used again and again."""

    def __init__(
        self,
        profile: CompiledProfile,
        nodes: Nodes,
        most_bytes: int,
        workload: Callable[[PodInfo], Mapping[str, str]],
    ) -> None:
        self.entries: CacheByUse[Hashable, Entry] = CacheByUse(
            most_bytes, lambda: max(most_bytes, _BYTES_PER_NODE * nodes.size), size, fewest=16
        )
        """By identity; the columns of an entry may be out of date: see `entry`."""
        self._newest: Entry | None = None
        """The entry that was scored last; None once its scores have been asked for again."""
        self._nodes = nodes
        self._workload = workload
        self._more_changes = profile.more_changes(nodes.relabelled)
        self._all_logs = (nodes.placed, *(log for logs in self._more_changes.values() for log in logs))
        self._logs: dict[tuple[str, ...], ChangeLog] = {}
        """The log of the nodes read as one with the logs of some plugins, by the names of these plugins."""
        self._identities = [each for each in profile.identities if each.is_kept]
        self._looks_at_owners = any(each.of_workload for each in self._identities)
        points = profile.points
        kept = {impl.name for point in ("pre_filter", "filter", "score") for impl in points.get(point, ())}
        self._judging = [name for name in self._more_changes if name in kept]
        self.common = Common(profile, nodes)
        """The answers that do not depend on requests."""
        self._common_identities = [n for n, i in enumerate(self._identities, start=1) if i.name in self.common.names]
        """The places, in the key of an entry, of the identities that plugins of `common` answer."""
        asked = [i for i in points.get("pre_filter", ()) if i.reads is not None]
        self._order = {impl.name: number for number, impl in enumerate(asked)}
        self._pre_filters = [i for i in asked if i.name not in self.common.names]
        """The pre-filters that are asked about each identity; `common` asks the others."""
        self._filters = [i for i in points.get("filter", ()) if i.reads is not None]
        self._pre_scores = {impl.name: impl for impl in points.get("pre_score", ())}
        self._scorers = [i for i in points.get("score", ()) if i.reads is not None]

    def identity(self, pod: PodInfo) -> Hashable:
        """The key under which verdicts are kept: pods with equal identities get equal verdicts. Raises PluginError."""
        if not self._identities:
            return pod.cls.id
        annotations = self._workload(pod) if self._looks_at_owners else pod.annotations
        return (pod.cls.id, *identity_of(self._identities, pod, annotations))

    def entry(self, pod: PodInfo, deadline: Deadline) -> Entry:
        """The entry of the pod, up to date. Raises PluginError and DeadlineExceeded."""
        key = self.identity(pod)
        entry = self.entries.get(key)
        if entry is None or not self.refresh(entry, pod):
            entry = self.entries.put(key, self._build(key, pod, deadline))
        return entry

    def skips(self, entry: Entry, impl: Implementation) -> None:
        """A plugin that is called for each attempt has answered SKIP_CLASS."""
        entry.skipped |= {impl.name}
        if impl.ignores_requests:
            self.common.skips(entry.common_key, impl.name)

    def _log(self, plugins: tuple[str, ...]) -> ChangeLog:
        """The log of the nodes, read as one with the other logs that these plugins read."""
        found = self._logs.get(plugins)
        if found is None:
            more = (log for name in plugins for log in self._more_changes[name])
            found = self._logs[plugins] = together((self._nodes.placed, *more))
        return found

    def _positions(self) -> dict[Changes, int]:
        """The position of each log now."""
        return {log: log.position for log in self._all_logs}

    def _build(self, key: Hashable, pod: PodInfo, deadline: Deadline) -> Entry:
        nodes = self._nodes
        before = self._positions()
        identity = tuple([key[n] for n in self._common_identities]) if isinstance(key, tuple) else ()
        common_key = self.common.key(pod.cls, identity)
        common = self.common.answers(common_key, pod, deadline)
        cycle = Cycle(common.shared, deadline=deadline)
        own = pre_filtered(self._pre_filters, cycle, pod, nodes)
        rejected, narrow = self._together(common, own)
        skipped = common.asked.skipped | own.skipped
        filters = [i for i in self._filters if i.name not in skipped and rejected is None]
        reading = tuple([name for name in self._judging if name not in skipped])
        log = self._log(reading)
        shared = {**common.shared, **cycle.export()}
        entry = Entry(key, common_key, reading, log, positions_in(log, before), shared, rejected, narrow, filters)
        entry.skipped = frozenset(common.skipping | common.asked.unconcerned | own.unconcerned)
        entry.shared_bytes = quick_size_of(key, *entry.shared.values(), *narrow.values())
        entry.changing = [impl for impl in filters if (impl.reads or 0) & PODS]
        view, size = nodes.view(), nodes.size
        asked = []
        for impl in filters:
            if (known := common.codes.get(impl.name)) is not None:
                entry.codes[impl.name] = known
                continue
            deadline.check()
            entry.codes[impl.name] = codes_of(impl, impl.call(cycle, pod, view), size).copy()
            asked.append(impl)
        steady = common.steady.copy()
        entry.steady, entry.feasible = self._combined(entry, steady, asked, nodes.everything)
        return entry

    def _together(self, common: CommonAnswers, own: PreFiltered) -> tuple[Status | None, dict[str, Narrow]]:
        """The first rejection of all pre-filters, and the nodes to which they narrow the pod, in their order."""
        order, narrow = self._order, {**common.asked.narrow, **own.narrow}
        if len(narrow) > 1:
            narrow = {name: narrow[name] for name in order if name in narrow}
        said = [each for each in (common.asked.rejected, own.rejected) if each is not None]
        first = min(said, key=lambda status: order[status.plugin], default=None)
        return first or nothing_left(narrow), narrow

    def _combined(
        self, entry: Entry, steady: BoolColumn, filters: Sequence[Implementation], index: slice | Rows
    ) -> tuple[BoolColumn, BoolColumn]:
        """`steady` and `feasible` at these rows, from the verdicts of filters; `steady` has those of all others."""
        if entry.narrow:
            steady &= mask_of(entry.narrow, self._nodes)[index]
        feasible = steady.copy()
        for impl in filters:
            codes = entry.codes[impl.name][index]
            if np.count_nonzero(codes):
                passes = np.logical_not(codes)
                feasible &= passes
                if impl not in entry.changing:
                    steady &= passes
        return steady, feasible

    def refresh(self, entry: Entry, pod: PodInfo) -> bool:
        """Update the verdicts of an entry; False if building a new one is cheaper.

        Scores that have been asked for since the last update are updated too: they will be asked for again.
        """
        position = entry.log.position
        if entry.position == position:
            return True
        if len(entry.feasible) != self._nodes.size:
            return False
        scores = entry.scores
        if scores is not None and not (scores.is_wanted and scores.position == entry.position):
            scores = None
        row, cycle = entry.log.only_row(entry.position), Cycle(entry.shared)
        if 0 <= row < self._nodes.size:
            view = self._nodes.view_of_one(row)
            self._evaluate_row(entry, cycle, pod, view, row)
            if scores is not None:
                score_row(entry, scores, cycle, pod, view, row)
        else:
            changed = self._changed(entry.log, entry.position)
            if changed is None:
                return False
            view, kinds = changed
            self._evaluate_rows(entry, cycle, pod, view, kinds)
            if scores is not None:
                score_rows(entry, scores, cycle, pod, view, kinds)
        if scores is not None:
            scores.position, scores.is_wanted = position, False
        entry.position = position
        return True

    def _changed(self, log: ChangeLog, position: Any) -> tuple[NodeView, int] | None:
        """The rows that have changed since a position, and the kinds of the changes; None for too many rows."""
        nodes, whole = self._nodes, self._nodes.view()
        changed = log.since(position, whole.few)
        if changed is None:
            return None
        rows, kinds = changed
        if log is not nodes.placed:  # plugins may note rows that no node has
            rows = rows[rows < nodes.size]
        return whole.at(rows), kinds

    def _evaluate_rows(self, entry: Entry, cycle: Cycle, pod: PodInfo, view: NodeView, kinds: int) -> None:
        if kinds == PODS and len(view) == 1:
            self._evaluate_row(entry, cycle, pod, view, view.first)
            return
        index = view.index
        entry.count = -1
        if kinds == PODS:
            feasible = entry.steady[index]
            for impl in entry.changing:
                verdicts = codes_of(impl, impl.call(cycle, pod, view), len(view))
                entry.keep(impl.name, index, verdicts)
                feasible &= verdicts == 0
            entry.feasible[index] = feasible
        else:
            for impl in entry.filters:
                if (impl.reads or 0) & kinds:
                    entry.keep(impl.name, index, codes_of(impl, impl.call(cycle, pod, view), len(view)))
            steady = self._nodes.alive[index].copy()
            entry.steady[index], entry.feasible[index] = self._combined(entry, steady, entry.filters, index)

    def _evaluate_row(self, entry: Entry, cycle: Cycle, pod: PodInfo, view: NodeView, row: int) -> None:
        """Evaluate one row whose pods have changed; nearly every cycle does this, so it uses plain numbers."""
        feasible = bool(entry.steady[row])
        for impl in entry.changing:
            verdict = codes_of(impl, impl.call(cycle, pod, view), 1)
            entry.keep(impl.name, view.index, verdict)
            feasible = feasible and not verdict[0]
        if entry.feasible.item(row) != feasible:
            entry.feasible[row], entry.count = feasible, -1

    def scores(self, entry: Entry, pod: PodInfo, deadline: Deadline) -> Scores:
        """The scores of all nodes. Raises PluginError and DeadlineExceeded.

        Many identities occur once. The scores of such an identity are dropped when the next identity is scored, which
        then uses the same memory: to write memory for the first time takes as long as to compute the scores.
        """
        if entry.scores is not None and self.catch_up(entry, entry.scores, pod):
            if entry is self._newest:
                self._newest = None
                self._stays(entry)
            return entry.scores
        if self._newest is not None:
            self._newest.scores = None
            self._newest = None
        before = self._positions() if self._more_changes else {}
        found = self._scored(entry, pod, deadline)
        self._follow(entry, found, before)
        found.position = entry.position
        entry.scores = found  # at the end: a plugin that raises leaves the entry without scores
        if entry.was_scored:
            self._stays(entry)
        else:
            self._newest, entry.was_scored = entry, True
        return found

    def catch_up(self, entry: Entry, scores: Scores, pod: PodInfo) -> bool:
        """Bring the scores of an entry up to date with its verdicts; False, with the scores dropped, if too many rows
        have changed. Raises PluginError.

        Often the nodes are only filtered, for example while no node is feasible; then no plugin is asked for scores.
        """
        scores.is_wanted = True
        if scores.position == entry.position:
            return True
        changed = self._changed(entry.log, scores.position)
        if changed is None:
            entry.scores = None
            return False
        score_rows(entry, scores, Cycle(entry.shared), pod, *changed)
        scores.position = entry.position
        return True

    def _stays(self, entry: Entry) -> None:
        """The scores of the entry are kept from now on, and count towards its size."""
        if not entry.is_asked_again:
            entry.is_asked_again = True
            self.entries.measure(entry.key)

    def _scored(self, entry: Entry, pod: PodInfo, deadline: Deadline) -> Scores:
        """The scores, computed anew. Raises PluginError and DeadlineExceeded."""
        common = self.common.scores(entry.common_key, pod, deadline)
        cycle = Cycle({**entry.shared, **common.shared}, deadline=deadline)
        view = self._nodes.view()
        found = Scores()
        check = deadline.check
        for impl in self._scorers:
            if impl.name in self.common.names:
                if impl.name in common.scoring:
                    found.scorers.append(impl)
                continue
            check()
            if not is_skipped(self._pre_scores.get(impl.name), cycle, pod, view):
                found.scorers.append(impl)
        if exported := {**common.shared, **cycle.export()}:
            if not exported.keys() <= entry.shared.keys():
                entry.shared_bytes += quick_size_of(*exported.values())
                self.entries.measure(entry.key)
            entry.shared = {**entry.shared, **exported}
        for impl in found.scorers:
            if impl.name in common.raw:
                found.raw[impl.name] = common.raw[impl.name]
                found.constant[impl.name] = common.constant[impl.name]
                continue
            check()
            rescore(found, entry.feasible, impl, cycle, pod, view)
        plain = [impl for impl in found.scorers if impl.normalize is None]
        found.told = tuple([(impl.name, impl.weight) for impl in plain])
        found.columns = [found.raw[impl.name] for impl in plain]
        found.base = summed(found, view)
        return found

    def _follow(self, entry: Entry, scores: Scores, before: dict[Changes, int]) -> None:
        """Let the entry read the logs of its scoring plugins too, so that its scores are brought up to date with it.

        A plugin that scores pods without filtering them has a log that the entry does not read yet; `before` has the
        position of each log at which the scores were computed.
        """
        more = [impl.name for impl in scores.scorers if impl.name in self._more_changes]
        more = [name for name in more if name not in entry.reading]
        if more:
            known = positions_of(entry.log, entry.position)
            entry.reading = (*entry.reading, *more)
            entry.log = self._log(entry.reading)
            entry.position = positions_in(entry.log, before | known)

    def leaders(self, entry: Entry, scores: Scores) -> BestRows:
        """The best feasible rows; made at the first call, because profiles with other scores never ask for them."""
        if scores.leaders is None:
            if scores.ranked is None:
                scores.ranked = np.where(entry.feasible, scores.base, -1.0)
            scores.leaders = BestRows(scores.ranked)
        return scores.leaders
