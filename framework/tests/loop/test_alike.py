"""Units that are woken one by one end where they would if each of them was tried, and none is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gangline import SUCCESS, PodInfo, model, unschedulable
from gangline.config import load
from gangline.deciding.scheduling import Decision, decide, find_feasible
from gangline.profile.registry import Catalog
from gangline.queueing.units import Place
from gangline.simulate import VirtualClock
from gangline.testing import make_pod

from .played_world import PlayedWorld, nth

CONFIG = load('{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}', "")
PROFILE = "default-scheduler"
SPREAD = model.TopologySpreadConstraint(1, "zone", "DoNotSchedule", model.LabelSelector({"app": "spread"}))
ENEMY = model.PodAffinityTerm("zone", model.LabelSelector({"app": "b"}))
SHAPES: tuple[dict[str, Any], ...] = (
    {"cpu": 1},
    {"cpu": 2, "labels": {"app": "a"}},
    {"cpu": 3, "priority": 5, "preemption_policy": "Never"},
    {"cpu": 1, "node_selector": {"zone": "x"}},
    {"cpu": 1, "tolerations": [model.Toleration(key="t", operator="Exists")]},
    {"gpus": 1, "labels": {"app": "b"}},
    {"cpu": 1, "labels": {"app": "spread"}, "topology_spread_constraints": [SPREAD]},
    {"cpu": 1, "affinity": model.Affinity(pod_anti_affinity=model.PodAffinity([ENEMY]))},
)
NODES: tuple[dict[str, Any], ...] = (
    {"cpu": 3, "labels": {"zone": "x"}},
    {"cpu": 4, "gpus": 2, "labels": {"zone": "y"}},
    {"cpu": 8, "gpus": 1},
    {"cpu": 4, "labels": {"zone": "x"}, "taints": ["t:NoSchedule"]},
)
NAMES = st.sampled_from([f"n-{n}" for n in range(4)])
STEPS = st.one_of(
    st.tuples(st.just("pods"), st.integers(0, len(SHAPES) - 1), st.integers(1, 6)),
    st.tuples(st.just("node"), NAMES, st.integers(0, len(NODES) - 1)),
    st.tuples(st.just("node_goes"), NAMES),
    st.tuples(st.just("bound_goes"), st.integers(0, 40)),
    st.tuples(st.just("waiting_goes"), st.integers(0, 40)),
    st.tuples(st.just("annotated"), st.integers(0, 40)),
    st.tuples(st.just("labelled"), st.integers(0, 40)),
    st.tuples(st.sampled_from(["reload", "flush"])),
)

TROUBLES = st.one_of(
    st.tuples(st.just("nominated"), st.integers(0, 40), NAMES),
    st.tuples(st.just("bindings_from_now"), st.sampled_from(["succeed", "take long", "fail"])),
)
"""Steps that let events come while units are tried: whoever was tried in vain just before backs off."""


@dataclass
class World(PlayedWorld):
    """A scheduler that decides when it is told to; without `knows_kinds` it tries each unit that an event may help."""

    SHAPES_OF_NODES = NODES

    knows_kinds: bool
    clock: VirtualClock = field(default_factory=VirtualClock)
    waiting: dict[str, model.Pod] = field(default_factory=dict)
    bound: dict[str, model.Pod] = field(default_factory=dict)
    held: list[Decision] = field(default_factory=list)
    """What was decided and is not bound yet."""
    bindings: str = "succeed"
    attempts: int = 0
    created: int = 0

    def __post_init__(self) -> None:
        self.start(CONFIG, Catalog.discover())

    def play(self, step: tuple[Any, ...], seconds: float) -> None:
        getattr(self, step[0])(*step[1:])
        self.finish()
        self.decide()
        self.clock._elapsed += seconds
        self.decide()

    def decide(self) -> None:
        queue, runtime = self.scheduler.queue, self.scheduler.runtimes[PROFILE]
        while (unit := queue.pop(self.clock.monotonic())) is not None or queue.has_active:
            if unit is None:
                continue
            self.attempts += 1
            outcome = decide(unit, runtime, self.cluster.cache, self.scheduler._cycles.nominated())
            if isinstance(outcome, Decision):
                self.held.append(outcome)
                if self.bindings != "take long":
                    self.finish()
            else:
                known = outcome if self.knows_kinds else replace(outcome, kind=None)
                self.scheduler.outcomes.rejected(known, PROFILE)
                self._written(unit.pod)

    def finish(self) -> None:
        """Bindings that have begun end."""
        while self.held:
            decision = self.held.pop(0)
            pod = self.waiting.get(decision.pod.name)
            if pod is None or self.bindings == "fail" or self.cluster.cache.has_lost_node(decision.pod.uid):
                self.scheduler.outcomes.finished(decision, unschedulable("refused").by("Binder"))
                self._written(decision.unit.pod)
                continue
            self.scheduler.outcomes.finished(decision, SUCCESS)
            self.bound[pod.metadata.name] = self.waiting.pop(pod.metadata.name)
            pod.spec = msgspec.structs.replace(pod.spec, node_name=decision.node)
            self.handle.upsert(pod)

    def _written(self, record: PodInfo) -> None:
        """The nomination that a rejection has ended is written to the status of the pod, and the watch tells."""
        pod = self.waiting.get(record.name)
        if pod is not None and pod.status.nominated_node_name != record.nominated_node_name:
            pod.status = msgspec.structs.replace(pod.status, nominated_node_name=record.nominated_node_name)
            self.handle.upsert(pod)

    def bindings_from_now(self, bindings: str) -> None:
        self.bindings = bindings

    def pods(self, shape: int, number: int) -> None:
        for _ in range(number):
            self.created += 1
            pod = make_pod(f"p-{self.created:03}", **SHAPES[shape])
            self.waiting[pod.metadata.name] = pod
            self.handle.upsert(pod)

    def annotated(self, number: int) -> None:
        if (pod := nth(self.waiting, number)) is not None:
            pod.metadata = msgspec.structs.replace(pod.metadata, annotations={"note": str(number)})
            self.handle.upsert(pod)

    def overlooked(self) -> set[str]:
        """The waiting pods that would fit now."""
        runtime, found = self.scheduler.runtimes[PROFILE], set()
        units = [unit for unit in self.scheduler.queue if unit.place is not Place.ACTIVE]
        assert len(units) == len(self.waiting)
        for unit in units:
            filtered = find_feasible(unit.pod, runtime, self.cluster.cache, self.scheduler._cycles.nominated())
            if filtered.feasible.any():
                found.add(unit.pod.name)
        return found


def history(steps: Sequence[tuple[Any, ...]], seconds: Sequence[float], knows_kinds: bool) -> World:
    world = World(knows_kinds)
    for step, pause in zip(steps, seconds, strict=False):
        world.play(step, pause)
    world.bindings = "succeed"
    for _ in range(3):  # all backoffs end, and nobody has waited for five minutes
        world.clock._elapsed += 15.0
        world.finish()
        world.decide()
    return world


@given(st.lists(STEPS, min_size=5, max_size=30))
def test_the_same_pods_get_the_same_nodes_as_if_each_was_tried(steps: list[tuple[Any, ...]]) -> None:
    pauses = [15.0] * len(steps)  # or a pod that was tried in vain backs off, and another one comes first
    kinds, each = (history(steps, pauses, knows_kinds) for knows_kinds in (True, False))

    assert kinds.places() == each.places()
    assert kinds.overlooked() == each.overlooked() == set()
    assert kinds.attempts <= each.attempts


@given(st.lists(st.tuples(STEPS | TROUBLES, st.sampled_from([0.0, 0.3, 2.0, 15.0])), min_size=5, max_size=30))
def test_no_pod_waits_that_would_fit(played: list[tuple[tuple[Any, ...], float]]) -> None:
    world = history([step for step, _ in played], [pause for _, pause in played], knows_kinds=True)

    assert world.overlooked() == set()
    assert sum(world.scheduler.queue.counts().values()) == len(world.waiting)


def test_of_many_pods_alike_only_those_are_tried_for_which_there_is_room() -> None:
    world = World(knows_kinds=True)
    world.node("n-0", 0)
    world.play(("pods", 0, 100), 15.0)
    before = world.attempts

    world.play(("bound_goes", 0), 15.0)

    assert len(world.bound) == 3 and world.attempts == before + 2
