"""How placements went is remembered for each leaf, across restarts."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

import msgspec
import pytest

from gangline import Unavailable, model, resources
from gangline.simulate import Faults, InMemoryServer, SimulatedClient, VirtualClock, no_faults, run
from gangline.testing import Cache, make_pod
from gangline_plugins.leaf_spine.history import DomainHistory, Observer
from gangline_plugins.leaf_spine.remembering import HISTORY, Keeper, memory_of

from .leaf_cases import Bench, fabric

LEAF = "spine-0/leaf-0"


def member(cache: Cache, name: str, phase: str = "Pending") -> model.Pod:
    """A pod on the first leaf, as the cache has it and as it is on the API server."""
    pod = make_pod(name, gpus=8, node="s0-l0-n0")
    pod.status.phase = phase
    cache.upsert_pod(cache.record(pod))
    return pod


class Story:
    """A cluster on the in-memory API server with one scheduler."""

    def __init__(self, server: InMemoryServer | None = None, faults: Faults = no_faults) -> None:
        self.clock = VirtualClock()
        self.server = server or InMemoryServer(self.clock)
        self.bench = Bench(fabric(1, 2), client=SimulatedClient(self.server, faults=faults))
        self.cache = self.bench.cache
        self.memory = memory_of(self.cache, self.bench.handle.profile)
        self.keeper = Keeper(self.bench.handle, self.memory, "kube-system")

    def place(self, *names: str, phase: str = "Pending") -> None:
        """Pods of one gang were bound to the first leaf."""
        for name in names:
            pod = member(self.cache, name, phase)
            self.server.create(resources.PODS, msgspec.to_builtins(pod))
            self.memory.observer.placed("gang", LEAF, self.cache.pods[pod.metadata.uid])

    def becomes(self, name: str, phase: str) -> None:
        """What the kubelet says of a pod; the cache forgets those that have ended."""
        self.server.patch(resources.PODS, name, {"status": {"phase": phase}}, subresource="status")
        if phase == "Running":
            member(self.cache, name, phase)
        else:
            self.cache.remove_pod(f"pod-default-{name}")

    def step(self) -> float:
        """One look; returns what is known of the leaf then."""
        run(self.keeper.step(), self.clock)
        return self.memory.history.of(LEAF)

    def written(self) -> dict[str, str]:
        """The ConfigMap."""
        data: dict[str, str] = self.server.get(resources.CONFIG_MAPS, HISTORY, namespace="kube-system").data["data"]
        return data


def test_the_newest_placement_counts_a_fifth() -> None:
    history = DomainHistory()
    history.observe(LEAF, ran=False)
    after_failure = history.of(LEAF)
    history.observe(LEAF, ran=True)

    assert after_failure == pytest.approx(0.8)
    assert history.of(LEAF) == pytest.approx(0.84)
    assert history.of("elsewhere") == 1.0


def test_what_is_written_is_what_is_read_and_leaves_without_a_failure_are_left_out() -> None:
    history, later = DomainHistory(), DomainHistory()
    history.observe(LEAF, ran=False)
    history.observe("spine-0/leaf-1", ran=True)

    assert later.load(history.dump())
    assert later.dump() == history.dump() == '{"spine-0/leaf-0":0.8}'


@pytest.mark.parametrize("text", ["", "[]", '{"leaf": "good"}', '{"leaf": 2}'])
def test_a_text_that_is_no_history_is_refused(text: str) -> None:
    assert not DomainHistory().load(text)


def test_a_gang_counts_as_run_once_all_of_its_pods_on_the_leaf_run() -> None:
    story = Story()
    story.memory.history.observe(LEAF, ran=False)
    story.place("a", "b")
    story.becomes("a", "Running")
    half = story.step()
    story.becomes("b", "Running")

    assert half == pytest.approx(0.8)
    assert story.step() == pytest.approx(0.84)
    assert story.step() == pytest.approx(0.84)


def test_a_gang_counts_as_failed_once_however_many_of_its_pods_fail() -> None:
    story = Story()
    story.place("a", "b")
    story.becomes("a", "Failed")
    story.becomes("b", "Failed")

    assert story.step() == pytest.approx(0.8)
    assert len(story.memory.observer) == 0


def test_a_gang_that_ran_and_failed_later_counts_as_both() -> None:
    story = Story()
    story.place("a", phase="Running")
    story.step()
    story.becomes("a", "Failed")

    assert story.step() == pytest.approx(0.8)


def test_a_short_gang_that_ended_well_between_two_looks_counts_as_run() -> None:
    story = Story()
    story.memory.history.observe(LEAF, ran=False)
    story.place("a")
    story.becomes("a", "Succeeded")

    assert story.step() == pytest.approx(0.84)


def test_pods_that_were_deleted_before_they_ran_count_for_nothing() -> None:
    story = Story()
    story.place("a")
    story.cache.remove_pod("pod-default-a")
    story.server.delete(resources.PODS, "a")

    assert story.step() == 1.0
    assert len(story.memory.observer) == 0


def test_the_history_outlives_the_scheduler() -> None:
    story = Story()
    story.place("a")
    story.becomes("a", "Failed")
    story.step()

    successor = Story(story.server)

    assert story.written() == {"default-scheduler": '{"spine-0/leaf-0":0.8}'}
    assert successor.step() == pytest.approx(0.8)


def test_nothing_is_written_while_nothing_is_new() -> None:
    story = Story()
    story.place("a")
    story.becomes("a", "Failed")
    story.step()
    version = story.server.get(resources.CONFIG_MAPS, HISTORY, namespace="kube-system").version
    story.step()

    assert story.server.get(resources.CONFIG_MAPS, HISTORY, namespace="kube-system").version == version


def test_two_profiles_keep_theirs_in_one_config_map() -> None:
    story = Story()
    story.place("a")
    story.becomes("a", "Failed")
    story.step()
    other = Story(story.server)
    other.bench.handle.profile = "other"
    other.memory.history.observe("spine-0/leaf-1", ran=False)
    other.step()

    assert set(story.written()) == {"default-scheduler", "other"}


def test_a_config_map_that_makes_no_sense_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    text = {"metadata": {"name": HISTORY, "namespace": "kube-system"}, "data": {"default-scheduler": "good"}}
    story.server.create(resources.CONFIG_MAPS, text)

    with caplog.at_level(logging.WARNING):
        assert story.step() == 1.0
    assert [r.message for r in caplog.records] == [
        "ConfigMap kube-system/gangline-domain-history: default-scheduler is no history and is replaced"
    ]


def test_an_api_server_that_does_not_answer_is_asked_again() -> None:
    broken = [True]

    def faults(verb: str, resource: object, name: str) -> Exception | None:
        return Unavailable(0, "Down", "no answer") if broken[0] else None

    story = Story(faults=faults)
    story.place("a")
    story.becomes("a", "Failed")
    with pytest.raises(Unavailable):
        story.step()
    broken[0] = False

    assert story.step() == pytest.approx(0.8)


def test_looks_go_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[str] = []

    def faults(verb: str, resource: object, name: str) -> Exception | None:
        asked.append(verb)
        return Unavailable(0, "Down", "no answer") if len(asked) == 1 else None

    story = Story(faults=faults)

    async def for_a_minute() -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(45):
                await story.keeper.run()

    run(for_a_minute(), story.clock)

    assert asked == ["get", "get"]
    assert "cannot keep the history of domains now: no answer" in caplog.text


async def test_bound_members_of_a_gang_are_followed_on_their_leaf() -> None:
    story = Story()
    group = story.bench.gang(2)
    story.bench.generate(group)

    await story.bench.plugin.post_bind(group.first, "s0-l1-n0")
    await story.bench.plugin.post_bind(story.cache.record(make_pod("alone")), "s0-l1-n0")

    assert len(story.memory.observer) == 1


def test_an_observer_forgets_a_gang_that_has_ended() -> None:
    observer = Observer(DomainHistory())
    pod = Cache().record(make_pod("a"))
    observer.placed("gang", LEAF, pod)

    assert observer.look({}) == {"default"}
    observer.ended("default", {pod.uid: "Failed"}, {})
    assert observer.look({}) == set()
