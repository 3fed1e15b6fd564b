"""Waiting gangs that look alike and are not: what a plugin counts, promises or offers, and events about one of them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from gangline import (
    NODE,
    CodeColumn,
    GroupAttempt,
    NodeView,
    PodInfo,
    Reason,
    Status,
    codes,
    hookimpl,
    model,
    unschedulable,
)
from gangline.groups.keys import KOORDINATOR_GROUP, KOORDINATOR_MIN_AVAILABLE
from gangline.kube.resources import SCHEDULER_PLUGINS_POD_GROUPS
from gangline.loop.watching import StoreHandler
from gangline.model.workloads import PodGroupSpec
from gangline.testing import make_pod
from gangline.testing.gangs import GROUP

from .test_gangs_alike import NAME, Follower, GangWorld, full


class Keyed(Follower):
    """As `Follower`, but it does the same for all groups."""

    name = "Keyed"

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> Status:
        self.asked.append(attempt.group.name)
        return unschedulable("")

    @hookimpl
    def pod_group_key(self) -> Hashable:
        return ()


class KeyedOnce(Keyed):
    """Does something else than the plugin whose promise it inherits."""

    name = "KeyedOnce"

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> Status:
        return super().pod_group_post_filter(attempt)


class Offering:
    """Restricts where groups may be, also when room is made for them, and does not say what that follows from."""

    name = "Offering"

    @hookimpl
    def placement_generate(self) -> None:
        return None


class Licences:
    """Lets every pod on each node: one of them, or as many as an annotation says."""

    name = "Licences"
    reads = NODE
    reasons = (Reason("never"),)

    @hookimpl
    def identity(self, pod: PodInfo) -> Hashable:
        return pod.annotations.get("licences")

    @hookimpl
    def filter(self, nodes: NodeView) -> CodeColumn:
        return codes(nodes.full(False))

    @hookimpl
    def capacity(self, pod: PodInfo, nodes: NodeView) -> Any:
        return nodes.full(True).astype(int) * int(pod.annotations.get("licences", "1"))


def test_a_change_of_a_pod_group_wakes_this_gang_alone_and_asks_about_no_other() -> None:
    world = GangWorld(more="")
    world.node("n-0", 0)
    groups = StoreHandler(world.cluster, SCHEDULER_PLUGINS_POD_GROUPS)
    for number in range(20):
        needs_two = model.PodGroup(model.ObjectMeta(f"g-{number}", "default"), PodGroupSpec(min_member=2))
        groups.upsert(needs_two)
        for member in range(2):
            pod = make_pod(f"g-{number}-{member}", labels={GROUP: f"g-{number}"}, scheduler_name=NAME, cpu=4)
            world.waiting[pod.metadata.name] = pod
            world.handle.upsert(pod)
    world.settle()
    asked: list[int] = []
    is_member = world.scheduler.groups.is_member_hint

    def is_asked(_: object, *args: Any) -> bool:
        asked.append(0)
        return is_member(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(world.scheduler.groups), "is_member_hint", is_asked)
        world.scheduler.use(world.config)
        world.settle()
        before = world.attempts
        asked.clear()

        groups.upsert(model.PodGroup(model.ObjectMeta("g-13", "default"), PodGroupSpec(min_member=1)))
        world.decide()

    assert list(world.bound) == ["g-13-0"]
    assert len(asked) == 1 and world.attempts <= before + 2


@pytest.mark.parametrize(
    ("plugins", "asked"), [((Keyed,), 1), ((KeyedOnce,), 20), ((Keyed, Offering), 20)], ids=lambda each: str(each)
)
def test_a_promise_holds_only_for_what_it_was_made_for(plugins: tuple[Any, ...], asked: int) -> None:
    Follower.asked = []
    world = full(more=", ".join(f"{{name: {each.name}}}" for each in plugins), plugins=plugins)
    Follower.asked.clear()

    world.play(("bound_goes", 0))

    assert len(set(Follower.asked)) == asked


def test_a_gang_starts_of_which_more_members_fit_on_a_node_though_its_pods_are_of_the_same_class() -> None:
    world = GangWorld(more="{name: Licences}", plugins=(Licences,))
    world.gang(4, 4, cpu=1)
    world.gang(4, 4, {"licences": "4"}, cpu=1)
    world.settle()

    world.play(("node", "n-0", 0))

    assert sorted(world.bound) == [f"g-002-{member}" for member in range(4)]


class Hostile(Keyed):
    """Answers whatever the test says."""

    name = "Hostile"
    key: Any = None

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> Status:
        self.asked.append(attempt.group.name)
        return unschedulable("")

    @hookimpl
    def pod_group_key(self) -> Hashable:
        if isinstance(self.key, BaseException):
            raise self.key
        key: Hashable = self.key
        return key


class NeverEqual:
    """Its like cannot be compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    def __hash__(self) -> int:
        return 1


@pytest.mark.parametrize(
    "key",
    [None, [], float("nan"), KeyError("no"), SystemExit(1), NeverEqual()],
    ids=["none", "unhashable", "nan", "raised", "exit", "not comparable"],
)
def test_an_answer_that_is_no_key_promises_nothing(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hostile, "key", key)
    Follower.asked = []
    world = full(more="{name: Hostile}", plugins=(Hostile,))
    Follower.asked.clear()

    world.play(("bound_goes", 0))

    assert len(set(Follower.asked)) == 20


@pytest.mark.parametrize("parts", ["12", "21"])
def test_a_gang_starts_when_the_pod_comes_that_one_of_its_members_needs_by_its_labels(parts: str) -> None:
    server = model.LabelSelector({"app": "server"})
    term = model.PodAffinityTerm("zone", server, match_label_keys=["part"])
    near = model.Affinity(pod_affinity=model.PodAffinity([term]))
    world = GangWorld(more="")
    world.node("n-0", 1)
    world.handle.upsert(make_pod("server-2", node="n-0", labels={"app": "server", "part": "2"}))
    note = {KOORDINATOR_GROUP: "g", KOORDINATOR_MIN_AVAILABLE: "2"}
    for part in parts:
        pod = make_pod(f"g-{part}", labels={"part": part}, annotations=note, scheduler_name=NAME, affinity=near)
        world.waiting[pod.metadata.name] = pod
        world.handle.upsert(pod)
    world.settle()
    assert not world.bound

    world.handle.upsert(make_pod("server-1", node="n-0", labels={"app": "server", "part": "1"}))
    world.settle()

    assert sorted(world.bound) == ["g-1", "g-2"]
