"""Waiting gangs of one kind are woken one by one; none is forgotten that could start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import SUCCESS, Diagnosis, EventHint, GroupAttempt, PodInfo, Status, hookimpl, model, unschedulable
from gangline.config import load
from gangline.deadline import GANG_SECONDS, Deadline
from gangline.deciding.group_decisions import GroupDecision
from gangline.deciding.group_room import RoomCount
from gangline.deciding.group_search import decide_group
from gangline.groups.keys import KOORDINATOR_GROUP, KOORDINATOR_MIN_AVAILABLE
from gangline.profile.entries import Filtered
from gangline.profile.registry import Catalog
from gangline.queueing.units import Place, Unit
from gangline.simulate import VirtualClock
from gangline.testing import make_pod
from gangline.testing.gang_stories import PROFILE

from .played_world import PlayedWorld, nth

ENABLED = "{name: GangPermit}, {name: TopologyPlacement}"
MORE = "{name: GangPreemption}, {name: Reservation}, {name: Recovery}"
NAME = "gangs"
ENEMY = model.PodAffinityTerm("zone", model.LabelSelector({"app": "b"}))
AVOIDS = model.Affinity(pod_anti_affinity=model.PodAffinity([ENEMY]))
SHAPES: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (2, 2, {"cpu": 4}),
    (2, 2, {"cpu": 1}),
    (3, 2, {"cpu": 2, "labels": {"app": "b"}}),
    (4, 4, {"cpu": 1, "priority": 5, "preemption_policy": "Never"}),
    (2, 2, {"cpu": 1, "node_selector": {"zone": "x"}}),
    (2, 2, {"gpus": 1}),
    (2, 2, {"cpu": 1, "affinity": AVOIDS}),
    (1, 1, {"cpu": 1}),
    (2, 2, {"cpu": 2, "priority": 5}),
)
"""Members, how many of them are needed, and the pods."""
NODES: tuple[dict[str, Any], ...] = (
    {"cpu": 4, "labels": {"zone": "x"}},
    {"cpu": 8, "gpus": 2, "labels": {"zone": "y"}},
    {"cpu": 2, "gpus": 1, "labels": {"zone": "x"}, "taints": ["t:NoSchedule"]},
    {"cpu": 4, "labels": {"zone": "x"}, "taints": ["t:NoSchedule"]},
)
NAMES = st.sampled_from([f"n-{n}" for n in range(5)])
STEPS = st.one_of(
    st.tuples(st.just("gangs"), st.integers(0, len(SHAPES) - 1), st.integers(1, 4)),
    st.tuples(st.just("node"), NAMES, st.integers(0, len(NODES) - 1)),
    st.tuples(st.just("node_goes"), NAMES),
    st.tuples(st.just("bound_goes"), st.integers(0, 40)),
    st.tuples(st.just("waiting_goes"), st.integers(0, 40)),
    st.tuples(st.just("needs"), st.integers(0, 40), st.integers(1, 4)),
    st.tuples(st.just("labelled"), st.integers(0, 40)),
    st.tuples(st.just("nominated"), st.integers(0, 40), NAMES),
    st.tuples(st.sampled_from(["reload", "flush"])),
)


class Follower:
    """A plugin that may help a gang, and does not say what that follows from."""

    name = "Follower"
    asked: list[str] = []  # noqa: RUF012  # the test looks at it

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        return ()

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> Status:
        self.asked.append(attempt.group.name)
        return unschedulable("")


class Listener:
    """A plugin that looks at rejections."""

    name = "Listener"
    told: list[tuple[str, str]] = []  # noqa: RUF012  # the test looks at it

    @hookimpl
    def post_reject(self, pod: PodInfo, diagnosis: Diagnosis) -> None:
        self.told.append((pod.uid, diagnosis.pod.uid))


@dataclass
class GangWorld(PlayedWorld):
    """A scheduler that decides when it is told to; without `knows_kinds` it tries each unit that an event may help.

    Without `counts_room` it tries one unit of a kind even if the whole cluster has too little room for it. Worlds that
    are compared do not back off: who is tried more often would wait longer after an attempt than the other, for which
    reason another gang comes first.
    """

    SHAPES_OF_NODES = NODES

    knows_kinds: bool = True
    more: str = MORE
    plugins: tuple[Any, ...] = ()
    counts_room: bool = True
    backs_off: bool = True

    def __post_init__(self) -> None:
        self.clock = VirtualClock()
        self.waiting: dict[str, model.Pod] = {}
        self.bound: dict[str, model.Pod] = {}
        self.attempts = self.created = 0
        config = load(PROFILE.replace(ENABLED, f"{ENABLED}, {self.more}" if self.more else ENABLED), "")
        if not self.backs_off:
            config = msgspec.structs.replace(config, pod_initial_backoff_seconds=0, pod_max_backoff_seconds=0)
        catalog = Catalog({each.name: each for each in self.plugins}, Catalog.discover()._entries)
        self.start(config, catalog)

    def play(self, step: tuple[Any, ...], seconds: float = 15.0) -> None:
        getattr(self, step[0])(*step[1:])
        self.decide()
        self.clock._elapsed += seconds
        self.decide()

    def decide(self) -> None:
        queue = self.scheduler.queue
        while (unit := queue.pop(self.clock.monotonic())) is not None or queue.has_active:
            if unit is not None:
                self.attempts += 1
                self._decided(unit)

    def _decided(self, unit: Unit) -> None:
        outcome = self.outcome(unit)
        if not isinstance(outcome, GroupDecision):
            known = outcome if self.knows_kinds else msgspec.structs.replace(outcome, kind=None)
            known = known if self.counts_room else msgspec.structs.replace(known, lack=None)
            self.scheduler.outcomes.group_rejected(known, NAME)
            return
        self.scheduler.outcomes.group_finished(outcome, [SUCCESS for _ in outcome.members], bound=True)
        for member in outcome.members:
            pod = self.waiting.pop(member.pod.name)
            pod.spec = msgspec.structs.replace(pod.spec, node_name=member.node)
            self.bound[pod.metadata.name] = pod
            self.handle.upsert(pod)

    def outcome(self, unit: Unit) -> Any:
        runtime, nominated = self.scheduler.runtimes[NAME], self.scheduler._cycles.nominated()
        return decide_group(unit, runtime, self.cluster.cache, nominated, self.clock.monotonic())

    def room(self) -> RoomCount:
        """The room now."""
        runtime, nominated = self.scheduler.runtimes[NAME], self.scheduler._cycles.nominated()
        return RoomCount(runtime, self.cluster.cache, nominated, self.clock.monotonic(), Deadline(GANG_SECONDS))

    def gangs(self, shape: int, number: int) -> None:
        count, needed, pod = SHAPES[shape]
        for _ in range(number):
            self.gang(count, needed, **pod)

    def gang(self, count: int, needed: int, more: Mapping[str, str] | None = None, **pod: Any) -> None:
        self.created += 1
        name = f"g-{self.created:03}"
        note = {KOORDINATOR_GROUP: name, KOORDINATOR_MIN_AVAILABLE: str(needed), **(more or {})}
        for member in range(count):
            made = make_pod(f"{name}-{member}", annotations=note, scheduler_name=NAME, **pod)
            self.waiting[made.metadata.name] = made
            self.handle.upsert(made)

    def needs(self, number: int, needed: int) -> None:
        """The gang of a waiting pod needs so many members from now on."""
        if (one := nth(self.waiting, number)) is not None:
            gang = (one.metadata.annotations or {})[KOORDINATOR_GROUP]
            for pod in [each for each in self.waiting.values() if gang in (each.metadata.annotations or {}).values()]:
                note = {KOORDINATOR_GROUP: gang, KOORDINATOR_MIN_AVAILABLE: str(needed)}
                pod.metadata = msgspec.structs.replace(pod.metadata, annotations=note)
                self.handle.upsert(pod)

    def settle(self) -> None:
        """All backoffs end, and nobody has waited for five minutes."""
        for _ in range(3):
            self.clock._elapsed += 15.0
            self.decide()

    def overlooked(self) -> list[str]:
        """A gang that would fit now."""
        for unit in self.scheduler.queue:
            if unit.place is Place.UNSCHEDULABLE and isinstance(self.outcome(unit), GroupDecision):
                return [unit.group]
        return []


def full(**world: Any) -> GangWorld:
    """Eight nodes of one gang of eight, and twenty gangs of one kind that wait."""
    made = GangWorld(**world)
    for number in range(2):
        made.node(f"n-{number}", 0)
    made.play(("gangs", 0, 21))
    made.settle()
    return made


@pytest.mark.parametrize("more", ["", MORE], ids=["plain", "with helping plugins"])
@given(st.lists(STEPS, min_size=5, max_size=25))
def test_the_same_gangs_start_as_if_each_was_tried(more: str, steps: list[tuple[Any, ...]]) -> None:
    worlds = [GangWorld(knows_kinds, more, backs_off=False) for knows_kinds in (True, False)]
    for world in worlds:
        for step in steps:
            world.play(step)
        world.settle()
    kinds, each = worlds

    assert kinds.places() == each.places()
    assert kinds.attempts <= each.attempts
    assert kinds.overlooked() == []


@given(st.lists(STEPS, min_size=10, max_size=40))
def test_the_same_gangs_start_as_if_room_was_never_counted_before_an_attempt(steps: list[tuple[Any, ...]]) -> None:
    worlds = [GangWorld(counts_room=counts_room, backs_off=False) for counts_room in (True, False)]
    for world in worlds:
        world.node("n-0", 0)
        world.node("n-1", 1)
        world.play(("gangs", 0, 4))
        for step in steps:
            world.play(step)
        world.settle()
    counting, trying = worlds

    assert counting.places() == trying.places()
    assert counting.attempts <= trying.attempts
    assert counting.overlooked() == []


@given(st.lists(STEPS, min_size=5, max_size=25))
def test_what_is_found_for_like_members_of_other_gangs_changes_no_count(steps: list[tuple[Any, ...]]) -> None:
    world = GangWorld()
    for number in range(2):
        world.node(f"n-{number}", number)
    world.play(("gangs", 0, 4))
    world.play(("gangs", 6, 3))
    for step in steps:
        world.play(step)
        waiting = [unit for unit in world.scheduler.queue if unit.lack is not None]
        together = world.room()

        assert [together.still_lacks(unit) for unit in waiting] == [world.room().still_lacks(unit) for unit in waiting]


def test_the_filters_are_asked_once_about_like_members_of_gangs_of_several_kinds() -> None:
    world = full()
    world.play(("needs", len(world.waiting) - 1, 1))  # of the last gang: it is of another kind now
    world.settle()
    waiting = [unit for unit in world.scheduler.queue if unit.lack is not None]
    together, seconds = world.room(), world.scheduler.runtimes[NAME].seconds["filter"]
    before = seconds.count

    assert len({unit.kind for unit in waiting}) == 2
    assert [unit.group for unit in waiting if not together.still_lacks(unit)] == []
    assert seconds.count == before + 1


def test_like_members_of_many_gangs_are_diagnosed_once_and_each_gang_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    world = full(plugins=(Listener,), more=f"{MORE}, {{name: Listener}}")
    waiting = [unit for unit in world.scheduler.queue if unit.lack is not None]
    together, evaluator, asked = world.room(), world.scheduler.runtimes[NAME].evaluator, list[str]()
    diagnose, Listener.told = evaluator.diagnose, []

    def noted(filtered: Filtered) -> Diagnosis:
        asked.append(filtered.pod.uid)
        return diagnose(filtered)

    monkeypatch.setattr(evaluator, "diagnose", noted)

    assert len(waiting) == 20
    assert all(map(together.still_lacks, waiting))
    assert len(asked) == 1
    assert Listener.told == [(unit.pod.uid, unit.pod.uid) for unit in waiting]


@given(st.lists(st.tuples(STEPS, st.sampled_from([0.0, 0.3, 2.0, 15.0])), min_size=5, max_size=25))
def test_no_gang_waits_that_would_fit(played: list[tuple[tuple[Any, ...], float]]) -> None:
    world = GangWorld()
    for step, pause in played:
        world.play(step, pause)
    world.settle()

    assert world.overlooked() == []
    assert sum(world.scheduler.queue.counts().values()) == len(world.waiting)


def test_others_start_in_room_that_a_gang_was_meant_for_until_it_was_rejected_again() -> None:
    world = GangWorld()
    world.node("n-0", 1)
    world.play(("gangs", 0, 2))
    world.play(("nominated", 0, "n-0"))
    world.play(("gangs", 1, 1))
    assert [name for name in world.waiting if name.startswith("g-003")]

    world.play(("bound_goes", 0))
    world.settle()

    assert [name for name in world.bound if name.startswith("g-003")] == ["g-003-0", "g-003-1"]


def test_of_many_gangs_alike_one_is_tried_when_there_is_too_little_room() -> None:
    world = full(counts_room=False)
    before = world.attempts

    world.play(("bound_goes", 0))  # one of the two nodes that a gang needs

    assert world.attempts == before + 1 and len(world.bound) == 1


def test_no_gang_is_tried_while_the_whole_cluster_has_too_little_room_for_it() -> None:
    world = full()
    before = world.attempts
    world.play(("bound_goes", 0))

    assert world.attempts == before and len(world.bound) == 1

    world.play(("bound_goes", 0))

    assert world.attempts == before + 1 and len(world.bound) == 2


def test_a_gang_that_waits_untried_starts_when_a_node_may_be_used_again() -> None:
    world = full()
    world.node("n-0", 3)  # tainted
    world.play(("bound_goes", 0))
    world.play(("bound_goes", 0))
    assert len(world.bound) == 0

    world.play(("node", "n-0", 0))

    assert len(world.bound) == 2


def test_a_gang_that_waits_untried_makes_room_when_it_can() -> None:
    world = GangWorld(counts_room=True)
    world.node("n-0", 0)
    world.handle.upsert(make_pod("first", node="n-0", cpu=2, priority=5))
    world.handle.upsert(make_pod("second", node="n-0", cpu=1, priority=5))
    world.play(("gangs", 8, 1))  # two members of 2 CPUs, with a priority of 5
    world.handle.upsert(make_pod("low", node="n-0", cpu=1))
    world.handle.remove("default", "first", "pod-default-first")
    world.settle()

    assert world.overlooked() == []
    before = world.attempts
    world.handle.remove("default", "second", "pod-default-second")
    world.decide()

    assert world.attempts == before + 1  # the low one may be removed


def test_of_many_gangs_alike_those_start_for_which_there_is_room() -> None:
    world = full()
    before = world.attempts
    for number in (2, 3, 4, 5):
        world.node(f"n-{number}", 0)
    world.decide()

    assert len(world.bound) == 6 and world.attempts == before + 3


def test_a_gang_that_needs_fewer_members_now_starts_though_others_of_its_kind_come_before() -> None:
    world = full()
    world.play(("bound_goes", 0))

    world.play(("needs", len(world.waiting) - 1, 1))

    assert [name for name in world.bound if name.startswith("g-021")] == ["g-021-0"]


def test_a_plugin_that_promises_nothing_is_asked_about_each_gang() -> None:
    Follower.asked = []
    world = full(more="{name: Follower}", plugins=(Follower,))
    Follower.asked.clear()

    world.play(("bound_goes", 0))

    assert len(set(Follower.asked)) == 20


def test_gangs_wait_alone_while_pods_are_known_to_end() -> None:
    world = full()
    world.handle.upsert(make_pod("ending", node="n-0", active_deadline_seconds=600))
    before = world.attempts

    world.play(("bound_goes", 0))

    assert world.attempts >= before + 20
