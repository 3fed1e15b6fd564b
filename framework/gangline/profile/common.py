"""Answers for pods that differ in their requests alone: asked for once, and again for the nodes that change.

Many new pod classes differ from a known one only in how much they request. The answers of plugins that declare
`ignores_requests` are the same for all of these classes, so only the other plugins are asked about a new one.

Rules:
- Verdicts and scores are kept of plugins that read nothing but nodes: a placed pod changes none of them.
- Of plugins that read more, one answer is kept: SKIP_CLASS.
- Answers are kept under everything that these plugins may read of a pod: namespace and spec without requests, and what
  the hooks `identity` say. After a change of a node, plugins are asked again about this node alone.
- The columns are shared with the entries of all these classes, so nobody writes them: a column of which some rows get
  other values is replaced. Mostly a changed node gets the verdicts and scores that it had.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from gangline.api.cycle_state import Cycle, StateKey
from gangline.deadline import Deadline
from gangline.model import Container, PodSpec
from gangline.profile.answers import are_all, codes_of, is_skipped, scores_of
from gangline.profile.implementations import CompiledProfile, Implementation
from gangline.profile.sharing import written
from gangline.sizes import CacheByUse, quick_size_of
from gangline.state.changes import NODE
from gangline.state.node_view import NodeView
from gangline.state.nodes import Nodes
from gangline.state.pods import PodClass, PodInfo
from gangline.status import BoolColumn, Code, CodeColumn, Narrow, ScoreColumn, Status, read_only

_POINTS = ("pre_filter", "filter", "pre_score", "score")
_ENTRY_BYTES = 4096
_MOST_BYTES = 16 * 1024 * 1024
"""Memory for the answers of one profile; on a large cluster at least the newest four."""
_BYTES_PER_NODE = 1024
"""Memory if more answers are used again and again: enough for some 50 of them, one for each namespace and spec."""
_FEWEST = 4
_WITHOUT_REQUESTS = object()
"""The key in a class's memo for its spec without requests."""
_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class PreFiltered(msgspec.Struct, eq=False):
    """What pre-filters say of a pod."""

    rejected: Status | None = None
    """The first rejection, with its plugin."""
    narrow: dict[str, Narrow] = {}
    skipped: set[str] = set()
    unconcerned: set[str] = set()
    """Of those that skip, the ones that skip each pod of the class."""


def pre_filtered(impls: Iterable[Implementation], cycle: Cycle, pod: PodInfo, nodes: Nodes) -> PreFiltered:
    """Ask pre-filters. Raises PluginError and DeadlineExceeded."""
    found, view, check = PreFiltered(), nodes.view(), cycle.deadline.check
    for impl in impls:
        check()
        answer = impl.call(cycle, pod, view)
        if answer is None:
            continue
        if isinstance(answer, Narrow):
            found.narrow[impl.name] = answer
        elif answer.code in (Code.SKIP, Code.SKIP_CLASS):
            found.skipped.add(impl.name)
            if answer.code is Code.SKIP_CLASS:
                found.unconcerned.add(impl.name)
        elif not answer.is_success and found.rejected is None:
            found.rejected = answer.by(impl.name)
    return found


@dataclass(slots=True, eq=False)
class CommonScores:
    """The scores, not yet normalized, of plugins that do not look at requests; nobody may change them."""

    shared: Mapping[StateKey[Any], Any]
    """What the plugins remember from pre_score on."""
    scoring: frozenset[str]
    """The plugins whose pre_score does not skip the score."""
    raw: dict[str, ScoreColumn] = field(default_factory=dict)
    """By plugin, for those whose scores are normalized; the range of others depends on which nodes are feasible. All
    columns are read-only, because entries share them.
    """
    constant: dict[str, bool] = field(default_factory=dict)
    """For each of these plugins: whether all its scores are equal."""


@dataclass(slots=True, eq=False)
class CommonAnswers:
    """The answers of plugins that do not look at requests; nobody may change them."""

    position: int
    """The position in the log `Nodes.placed` up to which the answers are known to be right."""
    asked: PreFiltered
    shared: Mapping[StateKey[Any], Any]
    """What the plugins remember."""
    steady: BoolColumn
    """The nodes that pass the filters."""
    codes: dict[str, CodeColumn] = field(default_factory=dict)
    """By filter, read-only, because entries share them."""
    skipping: set[str] = field(default_factory=set)
    """Plugins that read more than nodes, and have answered that no such pod concerns them."""
    scores: CommonScores | None = None
    """None until somebody asks for them."""


def _size(key: Hashable, answers: CommonAnswers) -> int:
    columns = [answers.steady, *answers.codes.values(), *(answers.scores.raw.values() if answers.scores else ())]
    shared = quick_size_of(key, *answers.shared.values(), *answers.asked.narrow.values())
    return _ENTRY_BYTES + shared + sum([column.nbytes for column in columns])


class Common:
    """Keeps the answers of one profile's plugins that do not look at requests."""

    def __init__(self, profile: CompiledProfile, nodes: Nodes, most_bytes: int = _MOST_BYTES) -> None:
        self._nodes = nodes
        at = {point: profile.points.get(point, ()) for point in _POINTS}
        others = {i.name for impls in at.values() for i in impls if not i.ignores_requests or i.reads != NODE}
        self._are_some = any(impl.ignores_requests for impls in at.values() for impl in impls)
        mine = {point: [i for i in impls if i.name not in others] for point, impls in at.items()}
        self.names = frozenset(impl.name for impls in mine.values() for impl in impls)
        """The plugins whose verdicts and scores are kept."""
        self._pre_filters, self._filters, self._scorers = mine["pre_filter"], mine["filter"], mine["score"]
        self._pre_scores = {impl.name: impl for impl in mine["pre_score"]}
        self._kept: CacheByUse[Hashable, CommonAnswers] = CacheByUse(
            most_bytes, lambda: max(most_bytes, _BYTES_PER_NODE * nodes.size), _size, _FEWEST
        )

    def clear(self) -> None:
        """Drop all answers; for tests."""
        self._kept.clear()

    def key(self, cls: PodClass, identity: Hashable) -> Hashable:
        """The key of the answers for pods of this class; `identity` is what the pod's identity has beside the class."""
        if not self._are_some:
            return None
        found = cls.memo.get(_WITHOUT_REQUESTS)
        if found is None:
            found = cls.memo[_WITHOUT_REQUESTS] = _encode((cls.namespace, _without_requests(cls.spec)))
        return found, identity

    def answers(self, key: Hashable, pod: PodInfo, deadline: Deadline) -> CommonAnswers:
        """The answers as they are now, for a pod that has the key. Raises PluginError and DeadlineExceeded."""
        kept = self._kept.get(key)
        if kept is None or not self._refresh(kept, pod, deadline):
            skipping = kept.skipping if kept is not None else set()
            kept = self._kept.put(key, self._asked(pod, deadline))
            kept.skipping = skipping
        return kept

    def _refresh(self, answers: CommonAnswers, pod: PodInfo, deadline: Deadline) -> bool:
        """Ask again about the nodes that have changed; False if asking about all is cheaper.

        Raises PluginError and DeadlineExceeded.
        """
        nodes = self._nodes
        changes, position = nodes.placed, nodes.placed.position
        if answers.position == position or not changes.kinds_since(answers.position) & NODE:
            answers.position = position
            return True
        changed = changes.since(answers.position, nodes.view().few)
        if changed is None or len(answers.steady) != nodes.size:
            return False
        view = nodes.view().at(changed[0])
        self._judge_again(answers, Cycle(answers.shared, deadline=deadline), pod, view)
        if answers.scores is not None:
            shared = {**answers.shared, **answers.scores.shared}
            self._score_again(answers.scores, Cycle(shared, deadline=deadline), pod, view)
        answers.position = position
        return True

    def _judge_again(self, answers: CommonAnswers, cycle: Cycle, pod: PodInfo, view: NodeView) -> None:
        steady = self._nodes.alive[view.index].copy()
        for impl in self._filters:
            if (kept := answers.codes.get(impl.name)) is not None:
                cycle.deadline.check()
                fresh = codes_of(impl, impl.call(cycle, pod, view), len(view))
                steady &= fresh == 0
                if (codes := written(kept, view.index, fresh)) is not kept:
                    answers.codes[impl.name] = read_only(codes)
        answers.steady[view.index] = steady

    def _score_again(self, scores: CommonScores, cycle: Cycle, pod: PodInfo, view: NodeView) -> None:
        for impl in self._scorers:
            if (kept := scores.raw.get(impl.name)) is not None:
                cycle.deadline.check()
                raw = written(kept, view.index, scores_of(impl, "score", impl.call(cycle, pod, view), len(view)))
                if raw is not kept:
                    scores.raw[impl.name], scores.constant[impl.name] = read_only(raw), are_all(raw, raw)

    def _asked(self, pod: PodInfo, deadline: Deadline) -> CommonAnswers:
        nodes, cycle = self._nodes, Cycle(deadline=deadline)
        position, view = nodes.placed.position, nodes.view()
        asked = pre_filtered(self._pre_filters, cycle, pod, nodes)
        answers = CommonAnswers(position, asked, cycle.export(), nodes.alive[nodes.everything].copy())
        for impl in self._filters:
            if asked.rejected is None and impl.name not in asked.skipped:
                deadline.check()
                codes = codes_of(impl, impl.call(cycle, pod, view), nodes.size).copy()
                answers.codes[impl.name] = read_only(codes)
                answers.steady &= np.logical_not(codes)
        return answers

    def skips(self, key: Hashable, name: str) -> None:
        """A plugin that ignores requests has answered SKIP_CLASS for a pod that has the key."""
        if (kept := self._kept.get(key)) is not None:
            kept.skipping.add(name)

    def scores(self, key: Hashable, pod: PodInfo, deadline: Deadline) -> CommonScores:
        """The scores as they are now, for a pod that has the key. Raises PluginError and DeadlineExceeded."""
        answers = self.answers(key, pod, deadline)
        if answers.scores is None:
            answers.scores = self._scored(answers, pod, deadline)
            self._kept.measure(key)
        return answers.scores

    def _scored(self, answers: CommonAnswers, pod: PodInfo, deadline: Deadline) -> CommonScores:
        nodes, view = self._nodes, self._nodes.view()
        cycle = Cycle(answers.shared, deadline=deadline)
        asked = []
        for impl in self._scorers:
            deadline.check()
            if not is_skipped(self._pre_scores.get(impl.name), cycle, pod, view):
                asked.append(impl)
        found = CommonScores(cycle.export(), frozenset([impl.name for impl in asked]))
        scoring = Cycle({**answers.shared, **found.shared}, deadline=deadline)
        for impl in asked:
            if impl.normalize is not None:
                deadline.check()
                raw = scores_of(impl, "score", impl.call(scoring, pod, view), nodes.size).copy()
                found.raw[impl.name], found.constant[impl.name] = read_only(raw), are_all(raw, raw)
        return found


def _without_requests(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(
        spec,
        containers=_unresourced(spec.containers),
        init_containers=_unresourced(spec.init_containers),
        resources=None,
        overhead=None,
    )


def _unresourced(containers: list[Container]) -> list[Container]:
    return [each if each.resources is None else msgspec.structs.replace(each, resources=None) for each in containers]
