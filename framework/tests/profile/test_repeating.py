"""A pod like the one before is decided without asking the plugins that would say the same again, and not otherwise."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pytest

from gangline import SKIP, SPECS, CodeColumn, NodeView, PodInfo, Reason, ScoreColumn, Status, codes, hookimpl
from gangline.deciding.scheduling import Decision, decide
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

    def __init__(self, ban: type[Ban]) -> None:
        self.cache: Cache = cluster([make_node(f"n{i}", cpu=16) for i in range(4)])
        self.runtime: Runtime = make_runtime(self.cache, ban, NodeResourcesFit, Emptiest)
        self.ban: Any = self.runtime.profile.plugins["Ban"]
        self._number = 0

    def decide(self, **fields: Any) -> str:
        self._number += 1
        pod = self.cache.record(make_pod(f"p{self._number}", cpu=1, **fields))
        outcome = decide(Unit([pod], added=0.0), self.runtime, self.cache, {})
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
