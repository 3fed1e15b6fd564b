"""What the scheduler remembers of its decisions, within bounds."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gangline import config
from gangline.api.cycle_state import Cycle
from gangline.deciding.scheduling import Decision, decide
from gangline.explain.report import explain
from gangline.kube.resources import NODES, PODS
from gangline.loop.decisions import Decisions
from gangline.profile.assembly import judging_runtimes
from gangline.queueing.units import Unit
from gangline.simulate import SimulatedCluster
from gangline.testing import FakeClock, cluster, make_node, make_pod
from gangline.testing.gang_stories import PROFILE, GangCluster
from gangline.wire.custom_resources import ALLOCATED

DEFAULT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def decided(number: int, devices: str = "") -> Decision:
    cycle = Cycle()
    if devices:
        cycle.annotations[ALLOCATED] = devices
    pod: Any = SimpleNamespace(uid=f"uid-{number}", key=f"default/p{number}")
    unit: Any = SimpleNamespace()
    runtime: Any = SimpleNamespace(name="test")
    return Decision(unit, pod, "a", cycle, runtime, {})


def test_the_scores_that_are_kept_are_those_that_decided() -> None:
    cache = cluster([make_node("a", cpu=8), make_node("b", cpu=64)])
    runtime = judging_runtimes(config.load(DEFAULT, "test"), cache)["default-scheduler"]
    pod = cache.record(make_pod("p", cpu=1))
    expected = explain(runtime, pod).node("b")
    decisions = Decisions(FakeClock())

    outcome = decide(Unit([pod], added=0.0), runtime, cache, {})
    assert isinstance(outcome, Decision) and expected is not None
    decisions.note(outcome)

    found = decisions.of(pod.uid)
    assert found is not None and (found["node"], found["feasibleNodes"], found["profile"]) == (
        "b",
        2,
        "default-scheduler",
    )
    scores = {score["plugin"]: score["score"] for score in found["scores"]}
    assert scores == {plugin: expected.scores[plugin] for plugin in scores}
    assert {"NodeResourcesFit", "NodeResourcesBalancedAllocation"} <= scores.keys()


def test_the_oldest_go_when_there_are_too_many() -> None:
    decisions = Decisions(FakeClock(), most=3)

    for number in range(5):
        decisions.note(decided(number))

    assert [decisions.of(f"uid-{number}") is None for number in range(5)] == [True, True, False, False, False]


def test_the_oldest_go_when_they_are_too_large() -> None:
    decisions = Decisions(FakeClock(), most_bytes=20_000)

    for number in range(20):
        decisions.note(decided(number, devices="0," * 4000))

    assert 1 <= len(decisions) <= 2 and decisions.of("uid-19") is not None


def test_a_later_decision_replaces_an_earlier_one() -> None:
    decisions = Decisions(FakeClock(), most=2)

    decisions.note(decided(1))
    decisions.note(decided(1, devices="0,1"))

    found = decisions.of("uid-1")
    assert len(decisions) == 1 and found is not None and found["devices"] == "0,1"


def test_the_members_of_a_gang_know_their_placement() -> None:
    gangs = GangCluster()
    gangs.add_gang("train", 4)

    async def story() -> list[Any]:
        async with gangs.scheduling(PROFILE) as scheduler:
            await gangs.until(lambda: len(gangs.bound()) == 4)
            return [scheduler.decisions.of(pod.metadata.uid) for pod in gangs.list(PODS)]

    found = gangs.play(story)

    assert [each["gang"]["name"] for each in found] == ["default/train"] * 4
    assert {each["gang"]["placement"] for each in found} in ({"leaf spine-0/leaf-0"}, {"leaf spine-0/leaf-1"})
    assert {each["gang"]["members"] for each in found} == {4}


def test_a_pod_that_is_bound_was_decided_on() -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("a"), make_node("b"))
    plain.create(PODS, make_pod("p", gpus=1))

    async def story() -> Any:
        async with plain.scheduling(DEFAULT) as scheduler:
            await plain.until(lambda: bool(plain.bound()))
            return scheduler.decisions.of(plain.get(PODS, "p", "default").metadata.uid)

    found = plain.play(story)

    assert found["node"] == plain.bound()["p"] and found["feasibleNodes"] == 2 and found["scores"]
