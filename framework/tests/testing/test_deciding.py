"""Whole scheduling cycles, gangs that wait, and configured profiles, as tests of plugins use them."""

from __future__ import annotations

from gangline import PodInfo, hookimpl, model, per_node
from gangline.testing import FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline.testing.configured import load_cluster, make_profiles
from gangline.testing.deciding import Decision, Rejection, WaitingGangs, answers, decide
from gangline.testing.gangs import Gangs, fabric

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: mine, plugins: {multiPoint: {enabled: [{name: OnlyA}]}}}]
"""


class OnlyA:
    """Lets pods run on the node "a" alone."""

    name = "OnlyA"

    @hookimpl
    @per_node
    def filter(self, pod: PodInfo, node: model.Node) -> str | None:
        return None if node.metadata.name == "a" else "node(s) were not the node a"


def test_a_pod_is_decided_and_its_room_is_taken() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    runtime = make_runtime(cache, OnlyA)

    decided = decide(runtime, cache.record(make_pod("p", gpus=8)))

    assert isinstance(decided, Decision) and decided.node == "a"
    assert cache.pods["pod-default-p"].node_name == "a"


def test_a_pod_without_a_node_is_rejected() -> None:
    cache = cluster([make_node("b")])

    assert isinstance(decide(make_runtime(cache, OnlyA), cache.record(make_pod("p"))), Rejection)


def test_plugins_may_ask_for_the_places_of_gangs_that_wait() -> None:
    cache = fabric(spines=1, leaves=1)
    waiting = WaitingGangs(cache, now=1000.0)
    gangs = Gangs(cache, pending=waiting)
    waiting.serve(gangs.runtime)
    pods = gangs.gang("train", 4)

    key = waiting.add(gangs.runtime, pods, waited=30.0)
    attempt = gangs.handle.attempt(key)

    assert gangs.handle.is_queued(key) and len(gangs.handle.queued_members(key)) == 4
    assert attempt is not None and attempt.waited == 30.0
    assert not cache.pods


def test_profiles_of_a_configuration_work_on_the_fakes_of_a_handle() -> None:
    cache = load_cluster(
        {"nodes": [{"metadata": {"name": name}, "status": {"allocatable": {"pods": 9}}} for name in "ab"]}
    )
    handle = FakeHandle(cache)

    runtime = make_profiles(PROFILE, handle, [OnlyA])["mine"]

    assert runtime.handle.clock is handle.fake_clock
    assert answers(runtime, cache.record(make_pod("p")))["feasible"] == [True, False]
