"""A pod like the one before is decided without asking the plugins that would say the same again, and not otherwise."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest

from gangline import (
    NODE,
    SKIP,
    SPECS,
    CodeColumn,
    Cycle,
    NodeView,
    PodInfo,
    Reason,
    ScoreColumn,
    StateKey,
    Status,
    codes,
    hookimpl,
)
from gangline.deciding.scheduling import Decision, Rejection, decide
from gangline.profile.runtime import Runtime
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.testing import cluster, make_node, make_pod, make_runtime
from gangline_plugins.node_resources_fit import NodeResourcesFit


class Ban:
    """Rejects one node for each attempt while a ban is in force, else it skips."""

    name = "Ban"
    reasons = (Reason("banned"),)

    def __init__(self) -> None:
        self.banned = ""
        self.asked = 0

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        self.asked += 1
        return None if self.banned else SKIP

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        return codes(np.array([name == self.banned for name in nodes.names]))


class Careful(Ban):
    """The same, and says what SKIP follows from."""

    said: Callable[[Ban], Hashable] = staticmethod(lambda ban: ban.banned)

    @hookimpl
    def skip_key(self, pod: PodInfo) -> Hashable:
        return type(self).said(self)


class Emptiest:
    """Prefers nodes with few pods, so that there are several best nodes and one row changes with each pod."""

    name = "Emptiest"
    reads = SPECS

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        return np.array([100.0 - len(nodes.pods(i)) for i in range(len(nodes))])


class Cases:
    """Pods that follow each other on four nodes."""

    def __init__(self, ban: type[Ban], *others: type) -> None:
        self.cache: Cache = cluster([make_node(f"n{i}", cpu=16) for i in range(4)])
        self.runtime: Runtime = make_runtime(self.cache, ban, NodeResourcesFit, Emptiest, *others)
        self.ban: Any = self.runtime.profile.plugins["Ban"]
        self._number = 0

    def outcome(self, **fields: Any) -> Decision | Rejection:
        self._number += 1
        pod = self.cache.record(make_pod(f"p{self._number}", cpu=1, **fields))
        return decide(Unit([pod], added=0.0), self.runtime, self.cache, {})

    def decide(self, **fields: Any) -> str:
        outcome = self.outcome(**fields)
        assert isinstance(outcome, Decision), outcome
        return outcome.node

    def known(self) -> int:
        """Decide like pods until one may repeat what was decided; returns how often the plugin was asked."""
        for _ in range(4):
            self.decide()
        return int(self.ban.asked)


def test_a_plugin_that_can_only_skip_again_is_not_asked_again() -> None:
    cases = Cases(Careful)
    before = cases.known()

    nodes = {cases.decide() for _ in range(4)}

    assert cases.ban.asked == before and len(nodes) == 4


def test_a_plugin_that_does_not_say_what_skip_follows_from_is_asked_each_time() -> None:
    cases = Cases(Ban)
    before = cases.known()

    for _ in range(4):
        cases.decide()

    assert cases.ban.asked == before + 4


def test_when_what_skip_follows_from_has_changed_the_plugin_is_asked_and_obeyed() -> None:
    cases = Cases(Careful)
    cases.known()

    cases.ban.banned = "n1"

    assert "n1" not in {cases.decide() for _ in range(6)}
    cases.ban.banned = ""
    assert {cases.decide() for _ in range(2)} == {"n1"}


@pytest.mark.parametrize(
    "fields",
    [{"labels": {"a": "b"}}, {"annotations": {"a": "b"}}, {"priority": 5}],
    ids=lambda fields: next(iter(fields)),
)
def test_a_pod_that_is_not_like_the_one_before_is_decided_anew(fields: dict[str, Any]) -> None:
    cases = Cases(Careful)
    before = cases.known()

    cases.decide(**fields)

    assert cases.ban.asked == before + 1


def test_nodes_that_come_change_and_go_are_seen() -> None:
    cases = Cases(Careful)
    cases.known()

    cases.cache.upsert_node(make_node("new", cpu=16))
    assert cases.decide() == "new"
    cases.cache.upsert_node(make_node("new", cpu=1))
    cases.cache.remove_node("n0")
    assert {cases.decide() for _ in range(3)} == {"n1", "n2", "n3"}


def _fails(ban: Ban) -> Hashable:
    raise RuntimeError("no key")


@pytest.mark.parametrize(
    ("said", "faults"),
    [(_fails, True), (lambda ban: [], True), (lambda ban: float("nan"), False), (lambda ban: None, False)],
    ids=["raises", "unhashable", "nan", "none"],
)
def test_a_bad_key_costs_an_attempt_and_nothing_else(said: Callable[[Ban], Hashable], faults: bool) -> None:
    class Odd(Careful):
        pass

    Odd.said = staticmethod(said)
    cases = Cases(Odd)
    before = cases.known()

    nodes = {cases.decide() for _ in range(4)}

    assert cases.ban.asked == before + 4 and len(nodes) == 4
    assert (("Ban", "skip_key") in cases.runtime.failures.counts) is faults


class Marked:
    """Prefers marked nodes by scores that are normalized."""

    name = "Marked"
    reads = NODE

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        return nodes.label("mark").exists.astype(np.float64)

    @hookimpl
    def normalize_score(self, scores: ScoreColumn) -> ScoreColumn:
        return 100.0 * scores


class Unreadable:
    """Marked nodes make the attempt fail."""

    name = "Unreadable"
    reads = NODE
    errors_from = 1
    reasons = (Reason("the mark cannot be read"),)

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        return codes(nodes.label("mark").exists)


def test_a_normalized_score_that_begins_to_differ_between_like_pods_counts() -> None:
    cases = Cases(Careful, Marked)
    cases.known()

    cases.cache.upsert_node(make_node("n2", cpu=16, labels={"mark": ""}))

    assert {cases.decide() for _ in range(3)} == {"n2"}


def test_a_filter_that_begins_to_fail_between_like_pods_fails_the_attempt() -> None:
    cases = Cases(Careful, Unreadable)
    cases.known()

    cases.cache.upsert_node(make_node("n2", cpu=16, labels={"mark": ""}))

    outcome = cases.outcome()
    assert isinstance(outcome, Rejection) and outcome.is_error and "the mark cannot be read" in outcome.message


def test_a_key_is_asked_for_after_what_plugins_do_before_each_cycle() -> None:
    class Timed(Careful):
        due = ""

        @hookimpl
        def pre_cycle(self) -> None:
            self.banned = self.due

    cases = Cases(Timed)
    cases.known()
    assert cases.decide() == "n0"

    cases.ban.due = "n1"  # this would be the next node

    assert "n1" not in {cases.decide() for _ in range(6)}


class Touchy:
    """A key that cannot be compared with another one."""

    def __eq__(self, other: object) -> bool:
        if self is not other:
            raise RuntimeError("no comparison")
        return True

    def __hash__(self) -> int:
        return 1


def test_keys_that_cannot_be_compared_cost_an_attempt_and_nothing_else() -> None:
    class Odd(Careful):
        said = staticmethod(lambda ban: Touchy())

    cases = Cases(Odd)
    before = cases.known()

    nodes = {cases.decide() for _ in range(4)}

    assert cases.ban.asked == before + 4 and len(nodes) == 4
    assert ("Ban", "skip_key") in cases.runtime.failures.counts


_REMEMBERED: StateKey[str] = StateKey("Ban.remembered")


def test_what_a_plugin_remembers_although_it_skips_is_there_for_each_pod() -> None:
    class Remembering(Careful):
        @hookimpl
        def pre_filter(self, pod: PodInfo, cycle: Cycle) -> Status | None:  # type: ignore[override]
            cycle.write(_REMEMBERED, pod.name)
            return SKIP

        @hookimpl
        def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
            assert cycle.read(_REMEMBERED) == pod.name

    cases = Cases(Remembering)
    cases.known()

    assert len({cases.decide() for _ in range(4)}) == 4


def test_plugins_know_the_feasible_nodes_of_each_pod_after_they_were_scored() -> None:
    class Scoring(Careful):
        seen: tuple[int, ...] = ()

        @hookimpl
        def pre_score(self) -> Status:
            return SKIP

        @hookimpl
        def score(self, nodes: NodeView) -> ScoreColumn:
            raise AssertionError("the score is skipped")

        @hookimpl
        def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> None:
            self.seen += (int(np.count_nonzero(cycle.feasible)),)

    cases = Cases(Scoring)
    before = cases.known()

    assert len({cases.decide() for _ in range(4)}) == 4
    assert cases.ban.asked == before and cases.ban.seen == (4,) * 8


@pytest.mark.parametrize("known", [False, True])
def test_an_attempt_that_fails_is_measured_as_often_whether_or_not_it_repeats_another(known: bool) -> None:
    class Failing(Careful):
        failing = False

        @hookimpl
        def pre_cycle(self) -> None:
            if self.failing:
                raise RuntimeError("no cycle")

    cases = Cases(Failing)
    cases.known()
    if not known:
        cases.runtime.evaluator.repeats.forget()
    before = cases.runtime.seconds["filter"].count

    cases.ban.failing = True

    assert isinstance(cases.outcome(), Rejection)
    assert cases.runtime.seconds["filter"].count == before + 1


def test_an_attempt_that_cannot_be_repeated_any_more_is_not_looked_at_for_each_pod() -> None:
    class Counting(Careful):
        cycles = 0

        @hookimpl
        def pre_cycle(self) -> None:
            self.cycles += 1

    cases = Cases(Counting)
    cases.known()
    cases.ban.banned = "n1"
    cases.decide()
    before = cases.ban.cycles

    for _ in range(4):
        cases.decide()

    assert cases.ban.cycles == before + 4
