"""Evaluates one pod against all nodes: filters as columns, and with `scoring` scores.

A plugin is called once for all nodes, and answers with a column: one verdict or score per node. Most pods are like a
pod that was evaluated before, and most nodes have not changed since. So the answers of plugins that declare `reads`
come from the entry of the pod's identity (`keeping`), where only changed rows are evaluated again. Every other plugin
is called for each attempt, over all rows.

An attempt calls `filter`, which returns the feasible nodes, then `choose`, which scores them and picks the best row. If
no node is feasible, `diagnose` says why. Nothing in this module changes the cluster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.api.diagnosis import Diagnosis, RejectedNodes
from gangline.deadline import Deadline, DeadlineBlock
from gangline.profile.answers import capacity_of, codes_of
from gangline.profile.entries import Filtered
from gangline.profile.implementations import CompiledProfile, Implementation
from gangline.profile.keeping import Kept
from gangline.profile.members import Preparing, identities_of
from gangline.profile.narrowing import mask_of, nothing_left
from gangline.profile.repeating import Repeatable, holds
from gangline.profile.scoring import Scoring
from gangline.state.node_view import Int64Column, Rows
from gangline.state.nodes import Nodes
from gangline.state.pods import PodInfo
from gangline.status import BoolColumn, Code, CodeColumn, Narrow, Status, read_only

_AFTER_FILTERS = ("reserve", "permit", "pre_bind", "bind", "post_bind", "unreserve")
_KEPT_BYTES = 64 * 1024 * 1024
"""For the entries of all identities: at 5,000 nodes, 200 with scores or 1,500 without. On a large cluster `Kept` takes
more, if more identities come again.
"""


class Evaluator(Scoring):
    """Calls the filters of one profile, and the scores."""

    def __init__(
        self,
        profile: CompiledProfile,
        nodes: Nodes,
        ties: random.Random | None,
        kept_bytes: int = _KEPT_BYTES,
        workload: Callable[[PodInfo], Mapping[str, str]] = lambda pod: pod.annotations,
    ) -> None:
        super().__init__(profile, nodes, Kept(profile, nodes, kept_bytes, workload), ties)
        self._identities = profile.identities
        points = profile.points
        self._pre_cycle = points.get("pre_cycle", ())
        pre_filters = points.get("pre_filter", ())
        self._filters = points.get("filter", ())
        self._dynamic_pre_filters = [i for i in pre_filters if i.reads is None]
        self._dynamic_filters = [i for i in self._filters if i.reads is None]
        self._called = frozenset(impl.name for impl in (*self._dynamic_pre_filters, *self._dynamic_filters))
        later = {impl.name for point in _AFTER_FILTERS for impl in points.get(point, ())}
        self._counting = [impl for impl in self._filters if impl.capacity is not None]
        self._failing = [
            (number, impl.errors_from, impl)
            for number, impl in enumerate(self._filters)
            if impl.errors_from is not None
        ]
        remembering = [impl for impl in self._dynamic_pre_filters if impl.name in later]
        identifying = frozenset(each.name for each in profile.identities)
        self.members = Preparing(nodes, self._pre_cycle, remembering, identifying)
        self._pre_filter_order = {impl.name: n for n, impl in enumerate(pre_filters)}

    def within(self, deadline: Deadline) -> DeadlineBlock:
        """Sets the deadline for everything that is evaluated in this block."""
        return DeadlineBlock(self._exchange, deadline)

    def _exchange(self, deadline: Deadline) -> Deadline:
        before, self.deadline = self.deadline, deadline
        return before

    def likenesses(
        self, pods: Sequence[PodInfo], annotations: Sequence[Mapping[str, str]]
    ) -> list[tuple[Hashable, ...]]:
        """For each pod its class and the answers of all `identity` hooks, given the annotations of pod and owners.

        No plugin can tell pods with equal values apart: their identities are equal, and so are the answers of the
        plugins whose verdicts are not kept. Raises PluginError.
        """
        return identities_of(self._identities, pods, annotations)

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

    def again(self, pod: PodInfo) -> tuple[Cycle, Repeatable] | None:
        """As `filter`, for a pod that is decided as the one before: see `repeating`. None if a full attempt is needed.

        Raises PluginError and DeadlineExceeded.
        """
        last = self.repeats.of(pod)
        if last is None:
            return None
        self.deadline.check()
        for impl in self._pre_cycle:
            impl.call(pod)
        if not self._holds(last, pod):
            self.repeats.drop()
            return None
        entry = last.entry
        cycle = Cycle(entry.shared, entry.skipped, self.deadline)
        if self._dynamic_scorers:
            cycle.feasible = entry.show()
        return cycle, last

    def _holds(self, last: Repeatable, pod: PodInfo) -> bool:
        """Whether only kept answers decide as in the last attempt; they are up to date then. Raises PluginError."""
        entry = last.entry
        return (
            holds(last, pod)
            and self.kept.identity(pod) == entry.key
            and self.kept.refresh(entry, pod)
            and entry.counted() > 1
            and self.kept.catch_up(entry, last.scores, pod)
            and self.repeats.is_settled(entry, last.scores)
        )

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

    def capacities(self, filtered: Filtered) -> list[Int64Column]:
        """The plugins' answers to how many like pods fit on each node, apart from requests, which the caller counts."""
        view = self._nodes.view()
        found = []
        for impl in self._counting:
            if impl.capacity is None or impl.name in filtered.skipped:
                continue
            answer = impl.capacity(filtered.cycle, filtered.pod, view)
            if answer is not None:
                found.append(capacity_of(impl, answer, len(view)))
        return found

    def is_kept(self, filtered: Filtered) -> bool:
        """Whether the verdicts follow from the identity of the pod and the columns alone: no filter was called anew."""
        return self._called <= filtered.skipped

    def passes(self, pod: PodInfo, rows: Rows) -> BoolColumn:
        """Whether each of these rows is feasible on the columns as they are now; for what-if."""
        return self.filter(pod).feasible[rows]

    def diagnose(self, filtered: Filtered) -> Diagnosis:
        """Why nodes are not feasible, as columns from which messages can be made."""
        rejections, entry = [], filtered.entry
        anew, kept, known = filtered.codes, entry.codes, entry.diagnosed
        for impl in self._filters if filtered.status is None else ():
            name = impl.name
            if name in anew:
                rejections.append(RejectedNodes(name, impl.plugin, read_only(anew[name]), impl.failures))
            elif name in kept:
                if name not in known:
                    known[name] = RejectedNodes(name, impl.plugin, read_only(kept[name]), impl.failures)
                rejections.append(known[name])
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
                self.kept.skips(entry, impl)
            elif not answer.is_success and self._earlier(impl.name, rejected):
                rejected = answer.by(impl.name)
        result.skipped = skipped
        cycle.skipped = entry.skipped
        if result.narrow and rejected is None:
            narrow = {**entry.narrow, **result.narrow}
            rejected = nothing_left(narrow)
            result.feasible = entry.feasible & mask_of(result.narrow, self._nodes)
        result.status = rejected
        return rejected is not None

    def _earlier(self, name: str, rejected: Status | None) -> bool:
        order = self._pre_filter_order
        return rejected is None or order[name] < order.get(rejected.plugin, len(order))
