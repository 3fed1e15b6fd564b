"""Plugins that ignore requests are asked once about pods that differ in their requests alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gangline import (
    NODE,
    SKIP,
    SKIP_CLASS,
    CodeColumn,
    Cycle,
    Narrow,
    NodeView,
    PodInfo,
    Reason,
    ScoreColumn,
    Status,
    default_normalize,
    hookimpl,
    model,
    unschedulable,
)
from gangline.api.cycle_state import StateKey
from gangline.deadline import NO_DEADLINE
from gangline.errors import PluginError
from gangline.profile.common import Common
from gangline.testing import cluster, make_node, make_pod, make_runtime

ASKED = StateKey[str]("asked")
OTHERS: dict[str, dict[str, Any]] = {
    "tolerations": {"tolerations": [model.Toleration(operator="Exists")]},
    "node_selector": {"node_selector": {"rack": "a"}},
    "namespace": {"namespace": "other"},
    "image": {"containers": [model.Container(name="main", image="other:1")]},
    "port": {"containers": [model.Container(name="main", ports=[model.ContainerPort(host_port=80)])]},
}
"""Fields in which a pod differs from `plain` in more than its requests."""
plain: dict[str, Any] = {"containers": [model.Container(name="main")]}


class Purple:
    """Only nodes in rack a, scored by name; counts how often it is asked, and remembers something."""

    name = "Purple"
    reads = NODE
    ignores_requests = True
    reasons = (Reason("node(s) were not purple"),)

    def __init__(self) -> None:
        self.calls: list[str] = []

    @hookimpl
    def pre_filter(self, cycle: Cycle, pod: PodInfo) -> None:
        self.calls.append("pre_filter")
        cycle.write(ASKED, pod.namespace)

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        self.calls.append("filter")
        assert cycle.read(ASKED) == pod.namespace
        return (~nodes.label("rack").equals("a")).astype(np.uint8)

    @hookimpl
    def pre_score(self, cycle: Cycle, pod: PodInfo) -> None:
        self.calls.append("pre_score")
        assert cycle.read(ASKED) == pod.namespace

    @hookimpl
    def score(self, nodes: NodeView) -> ScoreColumn:
        self.calls.append("score")
        return np.where(nodes.label("zone").exists, 10.0, 0.0)

    @hookimpl
    def normalize_score(self, scores: ScoreColumn) -> ScoreColumn:
        return default_normalize(scores)


class Forgetful(Purple):
    """Promises nothing."""

    name = "Forgetful"
    ignores_requests = False


class World:
    def __init__(self, *plugins: type[Any]) -> None:
        self.cache = cluster(
            [make_node("a", labels={"rack": "a"}), make_node("b"), make_node("c", labels={"rack": "a"})]
        )
        self.runtime = make_runtime(self.cache, *plugins)
        self.numbers: Iterator[int] = iter(range(100))

    def ask(self, milli: int = 0, **fields: Any) -> list[bool]:
        """The feasible nodes of a pod that requests so much."""
        number = next(self.numbers)
        pod = make_pod(f"p{number}", **{**plain, **fields})
        pod.spec.containers = [
            model.Container(each.name, each.image, model.ResourceRequirements({"cpu": f"{milli}m"}), each.ports)
            for each in pod.spec.containers
        ]
        filtered = self.runtime.filter(self.cache.record(pod))
        if filtered.feasible.any():
            self.runtime.choose(filtered)
        return filtered.feasible.tolist()

    def calls(self, name: str) -> list[str]:
        return self.runtime.profile.plugins[name].calls


def test_pods_that_differ_in_their_requests_share_the_answers_of_a_plugin_that_ignores_requests() -> None:
    world = World(Purple, Forgetful)

    assert all(world.ask(milli) == [True, False, True] for milli in (1, 2, 3))

    assert world.calls("Purple") == ["pre_filter", "filter", "pre_score", "score"]
    assert sorted(world.calls("Forgetful")) == sorted(["pre_filter", "filter", "pre_score", "score"] * 3)


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_pods_that_differ_in_anything_else_do_not_share_them(other: dict[str, Any]) -> None:
    world = World(Purple)
    world.ask(1)
    asked = len(world.calls("Purple"))

    world.ask(1, **other)

    assert len(world.calls("Purple")) == 2 * asked


def test_the_answers_are_asked_for_again_after_a_change_of_a_node_and_not_after_one_of_its_pods() -> None:
    world = World(Purple)
    world.ask(1)
    world.cache.upsert_pod(world.cache.record(make_pod("placed", node="a")))
    world.ask(2)
    assert world.calls("Purple") == ["pre_filter", "filter", "pre_score", "score"]

    world.cache.upsert_node(make_node("b", labels={"rack": "a"}))
    world.cache.upsert_node(make_node("d", labels={"rack": "a"}))
    world.cache.remove_node("a")

    assert world.ask(3) == [False, True, True, True]


def test_after_a_change_of_a_node_plugins_are_asked_about_this_node_alone() -> None:
    class Counts(Purple):
        name = "Counts"

        @hookimpl
        def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
            self.calls.extend(nodes.names)
            return (~nodes.label("rack").equals("a")).astype(np.uint8)

        @hookimpl
        def score(self, nodes: NodeView) -> ScoreColumn:
            self.calls.extend(nodes.names)
            return np.where(nodes.label("zone").exists, 10.0, 0.0)

    world = World(Counts)
    world.ask(1)
    world.calls("Counts").clear()
    world.cache.upsert_node(make_node("b", labels={"rack": "a"}))

    assert world.ask(2) == [True, True, True]
    assert world.calls("Counts") == ["b", "b"]


def test_a_score_that_is_equal_on_all_nodes_but_one_decides_while_that_node_has_another_one() -> None:
    world = World(Purple)
    chosen = []
    for number, labels in enumerate(({}, {"zone": "z"}, {})):
        world.cache.upsert_node(make_node("c", labels={"rack": "a", **labels}))
        filtered = world.runtime.filter(world.cache.record(make_pod("p", cpu=number + 1)))
        row = world.runtime.choose(filtered)
        chosen.append((world.cache.nodes.names[row], world.runtime.evaluator.scores_at(filtered, row)[1]))

    assert chosen == [("a", []), ("c", [100.0]), ("a", [])]


def test_one_entry_does_not_change_the_answers_that_others_share() -> None:
    world = World(Purple)
    first = world.cache.record(make_pod("first", cpu=1, **plain))
    world.runtime.choose(world.runtime.filter(first))
    world.cache.upsert_node(make_node("a"))
    assert world.runtime.filter(first).feasible.tolist() == [False, False, True]
    world.cache.upsert_node(make_node("a", labels={"rack": "a"}))

    assert world.ask(2) == [True, False, True]
    assert world.runtime.filter(first).feasible.tolist() == [True, False, True]


def test_a_dynamic_plugin_that_ignores_requests_says_once_that_it_concerns_no_such_pod() -> None:
    class Idle:
        name = "Idle"
        ignores_requests = True
        reasons = (Reason("idle"),)
        calls: list[str] = []  # noqa: RUF012  # of the one instance

        @hookimpl
        def pre_filter(self, pod: PodInfo) -> Status | None:
            self.calls.append("pre_filter")
            return None if pod.spec.tolerations else SKIP_CLASS

        @hookimpl
        def filter(self, nodes: NodeView) -> CodeColumn:
            return np.ones(len(nodes), dtype=np.uint8)

    world = World(Idle)

    assert [world.ask(milli) for milli in (1, 2)] == [[True] * 3] * 2 and len(world.calls("Idle")) == 1
    assert world.ask(3, **OTHERS["tolerations"]) == [False] * 3 and len(world.calls("Idle")) == 2


def test_the_first_rejection_counts_whoever_gives_it_and_narrowings_add_up() -> None:
    def saying(called: str, ignores: bool, answer: Status | Narrow) -> type[Any]:
        class Says:
            name = called
            reads = NODE
            ignores_requests = ignores

            @hookimpl
            def pre_filter(self) -> Status | Narrow:
                return answer

        return Says

    no, skip = unschedulable("no"), saying("Skips", True, SKIP)
    for ignores in (True, False):
        world = World(skip, saying("First", ignores, no), saying("Second", not ignores, unschedulable("never")))
        status = world.runtime.filter(world.cache.record(make_pod("p"))).status
        assert status is not None and (status.plugin, status.message) == ("First", "no")
    one, other = Narrow(frozenset({"a", "b"})), Narrow(frozenset({"b", "c"}))
    world = World(saying("One", True, one), saying("Other", False, other))

    assert world.ask(1) == [False, True, False]


def test_where_a_plugin_wraps_a_hook_every_class_is_asked_about() -> None:
    class Wraps:
        name = "Wraps"

        @hookimpl(wrapper=True)
        def filter(self, pod: PodInfo) -> Any:
            (codes,) = yield
            return [codes if pod.cls.requests.real.get("cpu", 0) < 2 else np.ones_like(codes)]

    world = World(Purple, Wraps)

    assert world.ask(1) == [True, False, True] and world.ask(2) == [False] * 3


def test_answers_for_kinds_of_pods_that_come_in_turn_stay() -> None:
    cache = cluster([make_node(f"n{number}") for number in range(200)])
    runtime = make_runtime(cache, Purple)
    common = Common(runtime.profile, cache.nodes, most_bytes=1)
    asked = runtime.profile.plugins["Purple"].calls

    def ask() -> int:
        """How often the plugin is asked about pods of 10 namespaces in turn."""
        asked.clear()
        for number in range(10):
            pod = cache.record(make_pod(f"p{number}", namespace=f"team-{number}"))
            common.answers(common.key(pod.cls, ()), pod, NO_DEADLINE)
        return len(asked)

    assert [ask() for _ in range(6)][::5] == [20, 0]


def test_a_fault_is_not_kept() -> None:
    class Faulty(Purple):
        name = "Faulty"
        is_broken = True

        @hookimpl
        def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
            if self.is_broken:
                raise ValueError("broken")
            return np.zeros(len(nodes), dtype=np.uint8)

    world = World(Faulty)
    with pytest.raises(PluginError, match="plugin Faulty at filter: ValueError: broken"):
        world.ask(1)

    world.runtime.profile.plugins["Faulty"].is_broken = False

    assert world.ask(2) == [True] * 3
