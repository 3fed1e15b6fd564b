"""A search for a group that is left and gone on with: others change the cluster meanwhile, and it decides rightly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Container
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import Cycle, NodeView, PodInfo, hookimpl, model
from gangline.deadline import Deadline
from gangline.deciding.group_decisions import GroupDecision, GroupRejection
from gangline.deciding.group_search import GroupSearch, LongSearches
from gangline.kube.resources import PODS
from gangline.loop.scheduler import Options, Scheduler
from gangline.queueing.units import Unit
from gangline.simulate import SimulatedClient
from gangline.state.cache import Cache
from gangline.status import CodeColumn, codes
from gangline.testing import make_node, make_pod
from gangline.testing.gang_stories import GangCluster, profile_with
from gangline.testing.gangs import LEAF, REQUIRED, SPINE, Gangs, fabric
from gangline_plugins.counting.inter_pod_affinity import InterPodAffinity
from gangline_plugins.leaf_spine import LeafSpine

from ..test_deadline import state_of

T = TypeVar("T")


def search_for(gangs: Gangs, pods: list[PodInfo], deadline: Deadline | None = None) -> GroupSearch:
    """A search that has not begun."""
    unit = Unit(pods, added=0.0, group=gangs.runtime.group_key(pods[0]))
    return GroupSearch(unit, gangs.runtime, gangs.cache, deadline or Deadline(60.0))


def step(search: GroupSearch) -> GroupDecision | GroupRejection | None:
    """One step, the shortest stretch that there is."""
    return search.go_on({}, 0.0, 0.0)


def to_its_end(
    search: GroupSearch, meanwhile: Callable[[int], None] = lambda number: None
) -> GroupDecision | GroupRejection:
    for number in range(10_000):
        decided = step(search)
        if decided is not None:
            return decided
        meanwhile(number)
    raise AssertionError("the search has no end")


def unlike(gangs: Gangs, size: int, gpus: int = 8, required: str = "") -> list[PodInfo]:
    """Members that are placed one after the other."""
    gangs.define("a", size)
    annotations = {REQUIRED: required} if required else None
    return [gangs.pod("a", i, gpus, annotations, active_deadline_seconds=9999 + i) for i in range(size)]


def held(cache: Cache) -> Counter[str]:
    """GPUs on each node, from the pods that are there."""
    found: Counter[str] = Counter()
    for pod in cache.pods.values():
        found[cache.nodes.names[pod.row]] += pod.cls.requests.real.get("nvidia.com/gpu", 0)
    return found


def test_a_search_in_steps_finds_what_one_at_once_finds() -> None:
    at_once, in_steps = (Gangs(fabric()) for _ in range(2))
    for gangs in (at_once, in_steps):
        gangs.occupy("s0-l0-n0", 4)
    expected = at_once.place(unlike(at_once, 4, required="leaf"))

    decided = to_its_end(search_for(in_steps, unlike(in_steps, 4, required="leaf")))

    assert isinstance(decided, GroupDecision)
    assert {each.pod.name: each.node for each in decided.members} == expected


def test_between_two_steps_nothing_of_the_group_is_there() -> None:
    gangs = Gangs(fabric())
    pods = unlike(gangs, 6)
    before = state_of(gangs.cache)
    seen = []

    def look(number: int) -> None:
        seen.append(state_of(gangs.cache))
        assert all(pod.row < 0 for pod in pods)

    assert isinstance(to_its_end(search_for(gangs, pods), look), GroupDecision)
    assert len(seen) > 6
    assert all(state == before for state in seen)


def test_a_node_that_is_taken_meanwhile_is_not_given_out_again() -> None:
    gangs = Gangs(fabric(spines=1, leaves=1, nodes=5))
    search = search_for(gangs, unlike(gangs, 4))
    taken = iter(["s0-l0-n0"])

    def take(number: int) -> None:
        if number == 6:  # some members had been placed
            gangs.occupy(next(taken), 8)

    decided = to_its_end(search, take)

    assert isinstance(decided, GroupDecision)
    assert max(held(gangs.cache).values()) == 8
    assert sorted(each.node for each in decided.members) == [f"s0-l0-n{n}" for n in (1, 2, 3, 4)]


def test_a_pod_elsewhere_that_keeps_members_away_is_seen_when_the_search_goes_on() -> None:
    gangs = Gangs(fabric(spines=2, leaves=1, nodes=4), InterPodAffinity)
    search = search_for(gangs, unlike(gangs, 3))
    apart = model.PodAffinityTerm(SPINE, model.LabelSelector({"scheduling.x-k8s.io/pod-group": "a"}))
    affinity = model.Affinity(pod_anti_affinity=model.PodAffinity(required=[apart]))

    def settle(number: int) -> None:
        if number == 5:
            gangs.cache.upsert_pod(gangs.cache.record(make_pod("loner", affinity=affinity, node="s0-l0-n3")))

    decided = to_its_end(search, settle)

    assert isinstance(decided, GroupDecision)
    assert {each.node.split("-")[0] for each in decided.members} == {"s1"}


def test_a_search_begins_anew_when_the_topology_changes() -> None:
    gangs = Gangs(fabric(spines=1, leaves=2, nodes=4))
    search = search_for(gangs, unlike(gangs, 4, required="leaf"))

    def rewire(number: int) -> None:
        if number == 6:  # a node of the leaf that is being filled now hangs on another one
            labels = {SPINE: "spine-0", LEAF: "leaf-9"}
            gangs.cache.upsert_node(make_node("s0-l0-n1", gpus=8, cpu=64, memory="512Gi", labels=labels))

    decided = to_its_end(search, rewire)

    assert isinstance(decided, GroupDecision)
    assert {each.node.rsplit("-", 1)[0] for each in decided.members} == {"s0-l1"}


def test_a_rule_on_what_others_use_holds_for_the_cluster_at_the_end() -> None:
    gangs = Gangs(fabric(spines=1, leaves=2, nodes=4), LeafSpine)
    pods = unlike(gangs, 4, gpus=7)

    def settle(number: int) -> None:
        if number == 7:  # some members had been placed in a leaf that nobody else uses, as four nodes have to be
            gangs.occupy("s0-l0-n3", 1)

    decided = to_its_end(search_for(gangs, pods), settle)

    assert isinstance(decided, GroupDecision)
    assert {each.node.rsplit("-", 1)[0] for each in decided.members} == {"s0-l1"}


def stretches(
    size: int, seconds: float, deadline: float, overruns: int = 0
) -> tuple[list[float], GroupDecision | GroupRejection]:
    """How long each stretch took, if a node comes after each, and what is decided; `Slow` alone takes time."""
    gangs, held, decided = Gangs(fabric(), Slow), list[float](), None
    Slow.worked = 0.0
    search = search_for(gangs, unlike(gangs, size), Deadline(deadline, lambda: Slow.worked))
    search.unit.overruns = overruns
    while decided is None:
        start = Slow.worked
        decided = search.go_on({}, 0.0, seconds)
        held.append(Slow.worked - start)
        gangs.cache.upsert_node(make_node(f"new-{len(held)}"))
    return held, decided


def test_what_begins_anew_all_the_time_gets_ever_longer_stretches() -> None:
    held, decided = stretches(12, 0.05, deadline=60.0)

    assert isinstance(decided, GroupDecision)
    assert 1 < len(held) < 6 and held[:-1] == sorted(set(held[:-1]))


def test_no_stretch_holds_others_up_for_long_however_often_the_search_begins_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gangline.deciding.group_search.AT_ONCE_SECONDS", 0.04)

    held, decided = stretches(40, 0.02, deadline=0.7, overruns=5)

    assert isinstance(decided, GroupRejection) and decided.is_late
    assert len(held) > 10 and max(held) < 0.06


def test_all_stretches_together_have_one_deadline() -> None:
    gangs = Gangs(fabric())
    looks = Deadline(40, clock=iter(range(10_000)).__next__)
    unit = Unit(unlike(gangs, 8), added=0.0, group="default/a")
    before = state_of(gangs.cache)

    decided = to_its_end(GroupSearch(unit, gangs.runtime, gangs.cache, looks))

    assert isinstance(decided, GroupRejection) and decided.is_late
    assert state_of(gangs.cache) == before
    with gangs.cache.transaction():  # no other one is left open
        pass


def test_a_search_that_is_given_up_leaves_nothing_behind() -> None:
    gangs = Gangs(fabric())
    before = state_of(gangs.cache)
    for steps in range(1, 12):
        search = search_for(gangs, unlike(gangs, 6))
        for _ in range(steps):
            assert step(search) is None
        search.stop()
        assert state_of(gangs.cache) == before
    assert len(gangs.place(unlike(gangs, 6))) == 6


class Slow:
    """A filter that takes ten milliseconds by a clock of its own."""

    name = "Slow"
    reasons = ()
    worked = 0.0

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Lets everybody pass."""
        Slow.worked += 0.01
        return codes(nodes.full(False))


Meddling = st.tuples(
    st.sampled_from(["pod", "gone", "node", "no node", "member"]), st.integers(0, 15), st.sampled_from([1, 4, 8])
)


@given(
    size=st.integers(2, 8),
    gpus=st.sampled_from([2, 4, 8]),
    required=st.sampled_from(["", "leaf", "spine"]),
    meddling=st.dictionaries(st.integers(0, 30), Meddling, max_size=12),
)
def test_whatever_happens_meanwhile_the_decision_is_right(
    size: int, gpus: int, required: str, meddling: dict[int, tuple[str, int, int]]
) -> None:
    gangs = Gangs(fabric(nodes=2))
    cache = gangs.cache
    names = list(cache.nodes.names)
    pods = unlike(gangs, size, gpus, required)
    unit = Unit(pods, added=0.0, group=gangs.runtime.group_key(pods[0]))
    search = GroupSearch(unit, gangs.runtime, cache, Deadline(60.0))

    def meddle(number: int) -> None:
        kind, which, amount = meddling.get(number, ("", 0, 0))
        name = names[which]
        row = cache.nodes.row_of(name)
        if kind == "pod" and row is not None:
            free = 8 - held(cache)[name]
            if free:
                gangs.occupy(name, min(free, amount))
        elif kind == "gone" and cache.pods:
            cache.remove_pod(next(iter(cache.pods)))
        elif kind == "no node":
            cache.remove_node(name)
        elif kind == "node":
            spine, leaf, _ = name.split("-")
            labels = {SPINE: f"spine-{spine[1:]}", LEAF: f"leaf-{leaf[1:]}"}
            cache.upsert_node(make_node(name, gpus=amount, cpu=64, memory="512Gi", labels=labels))
        elif kind == "member" and len(unit.members) > 2:
            unit.members.pop()

    decided = to_its_end(search, meddle)

    mine = [pod for pod in pods if pod.row >= 0]
    if isinstance(decided, GroupRejection):
        assert not mine
        return
    assert {pod.uid for pod in mine} <= {pod.uid for pod in unit.members}
    for name, used in held(cache).items():
        row = cache.nodes.row_of(name)
        assert row is not None or used == 0 or name not in {each.node for each in decided.members}
        if any(each.node == name for each in decided.members):
            view = cache.nodes.view()
            assert row is not None and used <= int(view.allocatable("nvidia.com/gpu")[row])
    places = {each.node.rsplit("-", 2 if required == "spine" else 1)[0] for each in decided.members}
    assert len(places) == 1 or not required


# One at a time


def test_searches_that_are_left_go_on_in_turn() -> None:
    gangs = Gangs(fabric())
    one, two, three = (search_for(gangs, unlike(gangs, 2)) for _ in range(3))
    long = LongSearches(most=2)

    assert long.due_in(0.0, others=True) is None
    assert long.leave(one, 10.0, 0.5)
    assert long.due_in(10.0, others=True) == pytest.approx(0.5)
    assert long.due_in(10.0, others=False) == pytest.approx(0.1)
    assert long.due_in(11.0, others=True) == 0.0

    assert long.leave(two, 11.0, 0.5)
    assert not long.leave(three, 12.0, 0.5)
    assert long.next is one
    assert long.leave(one, 12.0, 0.5)
    assert long.next is two
    long.over(two)
    assert long.next is one
    long.over(one)
    assert long.next is None


# All of it


class Laborious:
    """A filter that takes two milliseconds of CPU time for each member of the gang "long"."""

    name = "Laborious"
    reasons = ()
    calls = 0

    @hookimpl
    def filter(self, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Lets everybody pass."""
        Laborious.calls += 1
        work = Deadline(0.002)
        while pod.name.startswith("long") and not work.passed:
            pass
        return codes(nodes.full(False))


@pytest.fixture
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stretch ends after ten calls of the filter `Laborious`, as a stretch of half a second does with slower ones."""
    monkeypatch.setattr("gangline.loop.scheduling_cycles.STRETCH_SECONDS", 0.02)


def play_long(size: int, pods: int, then: Callable[[GangCluster, Scheduler], Awaitable[T]]) -> tuple[GangCluster, T]:
    """What happens once a decision on the gang "long" has begun, whose pods may be more than it needs."""
    story = GangCluster()
    story.add_group("long", size)
    for n in range(pods):
        story.add_pods("long", n, annotations={}, active_deadline_seconds=9999 + n)
    Laborious.calls = 0

    async def play() -> T:
        options, client = Options(seed=1, gang_deadline=30.0), SimulatedClient(story.server)
        async with story.scheduling(profile_with("Laborious"), client, plugins=[Laborious], options=options) as made:
            await story.until(lambda: Laborious.calls > 0)
            return await then(story, made)

    return story, story.play(play)


@pytest.mark.usefixtures("short_stretches")
def test_a_pod_that_comes_while_a_long_decision_is_made_is_bound_before_that_ends() -> None:
    async def then(story: GangCluster, scheduler: Scheduler) -> int:
        story.create(PODS, make_pod("healthy", scheduler_name="gangs"))
        await story.until(lambda: bool(story.bound("healthy")))
        placed_before = len(story.bound("long"))
        await story.until(lambda: len(story.bound("long")) == 8)
        return placed_before

    assert play_long(8, 8, then)[1] == 0


@pytest.mark.usefixtures("short_stretches")
def test_a_member_that_goes_while_a_long_decision_is_made_is_not_bound() -> None:
    async def then(story: GangCluster, scheduler: Scheduler) -> None:
        story.server.delete(PODS, "long-0", namespace="default")
        await story.until(lambda: len(story.bound("long")) == 7)

    story, _ = play_long(6, 8, then)

    assert "long-0" not in story.bound()


@pytest.mark.usefixtures("short_stretches")
def test_a_fault_before_a_long_decision_goes_on_harms_that_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def then(story: GangCluster, scheduler: Scheduler) -> None:
        leave, faults = scheduler.queue.leave, [RuntimeError("odd")]

        def fail_once(unit: Unit, uids: Container[str]) -> None:
            if unit.group and faults:
                raise faults.pop()
            leave(unit, uids)

        monkeypatch.setattr(scheduler.queue, "leave", fail_once)
        story.create(PODS, make_pod("healthy", scheduler_name="gangs"))
        await story.until(lambda: bool(story.bound("healthy")) and len(story.bound("long")) == 8)
        assert not faults

    story, _ = play_long(8, 8, then)

    assert "the scheduler failed: RuntimeError: odd" in " ".join(story.notes("long-0"))
