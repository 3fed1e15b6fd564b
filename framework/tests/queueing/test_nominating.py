"""Each nomination that kept room and does so no longer, or elsewhere, or for less, is told of once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.api.hints import Action, on
from gangline.queueing.nominating import Nominations
from gangline.queueing.queue import TOLD_AT_ONCE, SchedulingQueue
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.status import SUCCESS, Status, unschedulable
from gangline.testing import SCHEDULER, make_node, make_pod

NODES = ("a", "b", "c")
PODS = st.integers(0, 2)
MEANT = st.sampled_from(["", *NODES])
GANGS = st.sampled_from(["", "g", "g", "h"])
OPERATIONS = st.one_of(
    st.tuples(st.just("upsert"), PODS, GANGS, MEANT, st.integers(1, 2)),
    st.tuples(st.just("gang"), st.sampled_from(NODES), MEANT),
    st.tuples(st.just("reject"), st.booleans()),
    st.tuples(st.just("remove"), PODS),
    st.tuples(st.just("nominate"), PODS, MEANT),
    st.tuples(st.just("expect"), st.sampled_from(["g", "h"]), st.lists(st.tuples(PODS, st.sampled_from(NODES)))),
    st.tuples(st.just("assume"), PODS, st.integers(0, 2)),
    st.tuples(st.just("forget"), PODS),
    st.tuples(st.just("bound"), PODS, st.sampled_from(NODES)),
    st.tuples(st.just("gone"), PODS),
    st.tuples(st.just("requeue"), st.booleans()),
    st.tuples(st.just("leave"), PODS),
    st.tuples(st.just("hold"), st.booleans()),
    st.tuples(st.sampled_from(["pop", "start_over", "look"])),
)


class NominatedWorld:
    """A queue and a cache that follow each other; gangs need two members. The test takes what the queue would tell."""

    def __init__(self) -> None:
        self.cache, self.queue = Cache(), SchedulingQueue()
        self.woken = self.is_held = False
        self.now = 0.0
        self.taken: list[Unit] = []
        self.freed: list[PodInfo] = []
        self.queue.nominations.follow(self.cache.pods, self.wake)
        self.cache.heed_places(self.queue.nominations.touch)
        for name in NODES:
            self.cache.upsert_node(make_node(name))
        self.queue.serve(SCHEDULER, lambda pod, since: (since,), self.gate, {}, lambda pod: pod.labels.get("gang", ""))
        self.seen = self.kept()

    def wake(self) -> None:
        self.woken = True

    def gate(self, pods: Sequence[PodInfo]) -> Status:
        if "gang" not in pods[0].labels or len(pods) >= 2:
            return SUCCESS if not self.is_held else unschedulable("held").by("Gate")
        return unschedulable("too few").by("PodGroups")

    def play(self, operation: str, *given: Any) -> None:
        """One operation; those that make no sense now are left out."""
        self.now += 10.0
        step: Callable[..., None] = getattr(self, operation)
        step(*given)

    def record(self, number: int) -> PodInfo | None:
        uid = f"pod-default-{number}"
        unit = self.queue.get(uid)
        return unit.member(uid) if unit is not None else None

    def upsert(self, number: int, gang: str, node: str, cpu: int) -> None:
        made = make_pod(str(number), cpu=cpu, labels={"gang": gang} if gang else None)
        made.status.nominated_node_name = node
        if f"pod-default-{number}" not in self.cache.pods:
            self.queue.update(self.cache.record(made), self.now)

    def gang(self, *nodes: str) -> None:
        """A gang with enough members for these nodes."""
        for number, node in enumerate(nodes):
            self.upsert(number, "g", node, 1)

    def remove(self, number: int) -> None:
        self.queue.remove(f"pod-default-{number}")

    def nominate(self, number: int, node: str) -> None:
        if (pod := self.record(number)) is not None:
            self.queue.nominations.nominate(pod, node)

    def expect(self, gang: str, places: list[tuple[int, str]]) -> None:
        anew = [(self.cache.record(make_pod(f"{gang}-{number}")).anew(), node) for number, node in dict(places).items()]
        self.queue.nominations.expect(gang, anew)

    def assume(self, number: int, row: int) -> None:
        pod = self.record(number)
        if pod is not None and pod.uid not in self.cache.pods:
            self.cache.assume(pod, row)

    def forget(self, number: int) -> None:
        if (pod := self.cache.pods.get(f"pod-default-{number}")) is not None:
            self.cache.forget(pod)

    def bound(self, number: int, node: str) -> None:
        self.cache.upsert_pod(self.cache.record(make_pod(str(number), node=node)))

    def gone(self, number: int) -> None:
        self.queue.remove(f"pod-default-{number}")
        self.cache.remove_pod(f"pod-default-{number}")

    def pop(self) -> None:
        self.freed += self.queue.nominations.take_freed()
        if (unit := self.queue.pop(self.now)) is not None:
            self.taken.append(unit)

    def requeue(self, is_incomplete: bool) -> None:
        if self.taken:
            self.queue.requeue(self.taken.pop(), ["Fit"], "no room", self.now, is_incomplete=is_incomplete)

    def reject(self, is_incomplete: bool) -> None:
        """The next unit is tried in vain."""
        self.pop()
        self.requeue(is_incomplete)

    def leave(self, number: int) -> None:
        if self.taken:
            self.queue.leave(self.taken[-1], {f"pod-default-{number}"})

    def hold(self, is_held: bool) -> None:
        self.is_held = is_held

    def start_over(self) -> None:
        self.queue.start_over(self.now)

    def look(self) -> None:
        """Nothing but what follows each operation."""

    def kept(self) -> dict[str, tuple[str, PodInfo]]:
        """Each nomination that keeps room, from the facts alone."""
        waiting = {pod.uid for unit in self.queue for pod in unit.everybody()}
        lacking = {pod.uid for unit in self.queue if unit.lacks_members for pod in unit.everybody()}
        return {
            uid: (node, pod)
            for uid, (pod, node) in self.queue.nominations._meant.items()
            if (pod.is_anew or uid in waiting) and uid not in self.cache.pods and uid not in lacking
        }

    def lost(self, after: dict[str, tuple[str, PodInfo]]) -> list[PodInfo]:
        """What was kept when somebody last looked, and others may have now."""
        return [
            pod
            for uid, (node, pod) in self.seen.items()
            if not ((new := after.get(uid)) and new[0] == node and pod.counts_as(new[1]))
            and not ((placed := self.cache.pods.get(uid)) and placed.node_name == node)
        ]


def by_node(kept: dict[str, tuple[str, PodInfo]]) -> Nominations:
    found: dict[str, dict[str, PodInfo]] = {}
    for uid, (node, pod) in kept.items():
        found.setdefault(node, {})[uid] = pod
    return found


@pytest.mark.parametrize("looks", [True, False], ids=["somebody looks all the time", "somebody looks now and then"])
@given(operations=st.lists(OPERATIONS, min_size=30, max_size=80))
def test_who_keeps_room_no_longer_is_told_of_once(looks: bool, operations: list[tuple[Any, ...]]) -> None:
    world = NominatedWorld()
    for operation in [*operations, ("look",)]:
        if operation[0] in ("pop", "reject") and not looks:
            operation = ("look",)  # the queue would look
        world.play(*operation)
        after = world.kept()
        lost = world.lost(after)
        assert not lost or world.woken
        if not looks and operation[0] != "look":
            continue
        world.woken = False

        assert by_node(after) == world.queue.nominations.by_node
        world.freed += world.queue.nominations.take_freed()
        assert sorted(map(id, world.freed)) == sorted(map(id, lost))
        assert not world.queue.nominations.has_news
        world.freed.clear()
        world.seen = after


def test_others_hear_of_much_room_in_slices_between_which_other_work_is_done() -> None:
    heard: list[str] = []
    queue, cache, number = SchedulingQueue(), Cache(), 2 * TOLD_AT_ONCE + 1

    def hears(pod: PodInfo, old: PodInfo, new: PodInfo | None) -> bool:
        heard.append(old.uid)
        return False

    queue.serve(
        SCHEDULER, lambda pod, since: (since,), lambda pods: SUCCESS, {"Fit": (on("pods", Action.DELETE, hears),)}
    )
    queue.add(cache.record(make_pod("waits")), 0.0)
    unit = queue.pop(0.0)
    assert unit is not None
    queue.requeue(unit, ["Fit"], "no room", 0.0, backoff=0.0)
    pods = [cache.record(make_pod(str(number))).anew() for number in range(number)]
    queue.nominations.expect("g", [(pod, "a") for pod in pods])
    assert queue.pop(0.0) is None and not queue.has_active

    queue.nominations.expect("g", [])
    told: list[int] = []
    while queue.has_active:
        assert queue.pop(0.0) is None
        told.append(len(heard))

    assert told == [TOLD_AT_ONCE, 2 * TOLD_AT_ONCE, number] and heard == [pod.uid for pod in pods]
