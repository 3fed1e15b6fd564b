"""Members of a gang are alike where they are of one class and plugins read the same of them beyond that."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import pytest

from gangline import SKIP, Narrow, PodInfo, Status, hookimpl, model
from gangline.deciding.group_decisions import GroupRejection
from gangline.queueing.units import Unit
from gangline.testing import make_pod
from gangline.testing.gangs import GROUP, Gangs, fabric
from gangline.wire.custom_resources import CLAIM
from gangline_plugins.counting.inter_pod_affinity import Args, InterPodAffinity

NODE = "example.com/node"
NODES = [f"s0-l0-n{number}" for number in range(4)]


class Named:
    """Sends a pod to the node that its annotation names, and has something to do afterwards."""

    name = "Named"

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | Narrow | None:
        return Narrow(frozenset((pod.annotations[NODE],))) if NODE in pod.annotations else SKIP

    @hookimpl
    def reserve(self, pod: PodInfo) -> None:
        return None


class Telling(Named):
    """The same; it says what it reads."""

    name = "Telling"

    @hookimpl
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        return annotations.get(NODE)


class Counting(Telling):
    """The same; it notes which pods it is asked about."""

    name = "Counting"
    begun: list[str]
    asked: list[str]

    @hookimpl
    def pre_cycle(self, pod: PodInfo) -> None:
        self.begun.append(pod.name)

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | Narrow | None:
        self.asked.append(pod.name)
        return super().pre_filter(pod)


class CountingAll(Counting):
    """The same; it is told of many pods in one call."""

    name = "CountingAll"
    calls: list[list[str]]

    @hookimpl
    def pre_cycle(self, pod: PodInfo) -> None:
        self.begun.append(pod.name)

    @hookimpl
    def pre_cycle_all(self, pods: Sequence[PodInfo]) -> None:
        self.calls.append([pod.name for pod in pods])


class TellingAll(Telling):
    """The same; it is asked about many pods in one call."""

    name = "TellingAll"
    answers: Any = None

    @hookimpl
    def identity(self, pod: PodInfo, annotations: Mapping[str, str]) -> Hashable:
        return annotations.get(NODE)

    @hookimpl
    def identity_all(self, annotations: Sequence[Mapping[str, str]]) -> Any:
        return self.answers or [each.get(NODE) for each in annotations]


class Beginning:
    """Counts the attempts that begin, without regard to the pod."""

    name = "Beginning"
    rounds = 0

    @hookimpl
    def pre_cycle(self) -> None:
        Beginning.rounds += 1


def narrowed(gangs: Gangs) -> list[PodInfo]:
    gangs.define("a", 4)
    return [gangs.pod("a", i, gpus=1, annotations={NODE: name}) for i, name in enumerate(NODES)]


class Unhashable(Named):
    name = "Unhashable"

    @hookimpl
    def identity(self, pod: PodInfo) -> Any:
        return [pod.name]


def test_members_of_which_a_plugin_says_different_things_are_placed_each_on_its_own() -> None:
    gangs = Gangs(fabric(), Telling)

    assert gangs.place(narrowed(gangs)) == {f"a-{i}": name for i, name in enumerate(NODES)}


def test_members_of_which_a_plugin_says_different_things_at_once_are_placed_each_on_its_own() -> None:
    gangs = Gangs(fabric(), TellingAll)

    assert gangs.place(narrowed(gangs)) == {f"a-{i}": name for i, name in enumerate(NODES)}


@pytest.mark.parametrize("answers", [["one"], "four", 4], ids=["too few", "a text", "no list"])
def test_a_plugin_that_answers_something_else_for_many_members_fails_the_gang_by_name(answers: Any) -> None:
    gangs = Gangs(fabric(), type("Odd", (TellingAll,), {"name": "Odd", "answers": answers}))

    decided = gangs.decide(narrowed(gangs))

    assert isinstance(decided, GroupRejection) and decided.is_error
    assert decided.message.startswith("plugin Odd at identity_all: must return 4 values in a list or None, not ")


def test_no_member_goes_where_a_plugin_does_not_let_it_though_the_plugin_took_all_for_alike() -> None:
    gangs = Gangs(fabric(), Named)

    assert gangs.place(narrowed(gangs)) == {f"a-{i}": name for i, name in enumerate(NODES)}


def test_a_plugin_that_took_all_for_alike_is_asked_about_each_member_also_where_it_skipped_the_first() -> None:
    gangs = Gangs(fabric(), Named)
    gangs.define("a", 2)
    pods = [gangs.pod("a", 0, gpus=1), gangs.pod("a", 1, gpus=1, annotations={NODE: NODES[3]})]

    decided = gangs.decide(pods)

    assert isinstance(decided, GroupRejection) or NODES[3] in [
        member.node for member in decided.members if member.pod.name == "a-1"
    ]


def test_a_plugin_that_says_what_it_reads_is_not_asked_again_about_members_like_one_that_it_skipped() -> None:
    gangs = Gangs(fabric(), Counting)
    Counting.asked, Counting.begun = [], []

    gangs.place(gangs.gang("a", 4, gpus=8))

    assert set(Counting.asked) == {"a-0"}


def test_a_plugin_may_be_told_of_many_members_that_are_placed_like_another_in_one_call() -> None:
    gangs = Gangs(fabric(), CountingAll)
    CountingAll.begun, CountingAll.asked, CountingAll.calls = [], [], []

    gangs.place(gangs.gang("a", 4, gpus=8))

    assert set(CountingAll.begun) == {"a-0"}  # which was filtered
    assert CountingAll.calls == [["a-0"], ["a-1", "a-2", "a-3"]]


def test_before_a_member_is_placed_like_another_a_plugin_is_told_of_the_pod_if_it_takes_the_pod() -> None:
    gangs = Gangs(fabric(), Counting, Beginning)
    Counting.asked, Counting.begun, Beginning.rounds = [], [], 0

    gangs.place(gangs.gang("a", 4, gpus=8))

    assert set(Counting.begun) == {f"a-{number}" for number in range(4)}
    assert Beginning.rounds == Counting.begun.count("a-0") - 1


def test_a_plugin_whose_identity_makes_no_sense_fails_the_gang_and_is_named() -> None:
    gangs = Gangs(fabric(), Unhashable)

    decided = gangs.decide(gangs.gang("a", 2))

    assert isinstance(decided, GroupRejection) and decided.is_error
    assert decided.message.startswith("plugin Unhashable at identity: TypeError")


def test_members_that_a_placed_pod_keeps_away_by_their_labels_stay_away_and_others_need_not() -> None:
    gangs = Gangs(fabric(spines=1, leaves=1), InterPodAffinity, args={"InterPodAffinity": Args()})
    selector = model.LabelSelector(match_labels={"role": "server"})
    term = model.PodAffinityTerm(label_selector=selector, topology_key="kubernetes.io/hostname")
    lonely = model.Affinity(pod_anti_affinity=model.PodAffinity(required=[term]))
    guard = make_pod("guard", node="s0-l0-n0", affinity=lonely)
    gangs.cache.upsert_pod(gangs.cache.record(guard))
    gangs.define("a", 4)
    roles = ["worker", "server", "server", "server"]
    pods = [
        gangs.cache.record(make_pod(f"a-{i}", gpus=8, labels={GROUP: "a", "role": role}))
        for i, role in enumerate(roles)
    ]

    placed = gangs.place(pods)

    assert placed["a-0"] == "s0-l0-n0" and set(placed.values()) == set(NODES)


def test_of_members_with_different_claims_each_is_asked_for_hints() -> None:
    gangs = Gangs(fabric())
    pods = [gangs.pod("a", i, annotations={CLAIM: f"claim-{i % 2}"}) for i in range(4)]

    assert [pod.name for pod in Unit(pods, added=0.0).kinds()] == ["a-2", "a-3"]
