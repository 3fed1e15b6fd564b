"""Pods that follow each other are decided as if nothing were kept of the decisions before."""

from __future__ import annotations

import random
from typing import Any

import pytest
from framework.tests.profile import histories
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline import model
from gangline.deciding.scheduling import Decision, decide
from gangline.groups import Groups
from gangline.kube.resources import SERVICES
from gangline.profile.assembly import judging_runtimes
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.testing import FakeClock, make_node, make_pod
from gangline.testing import random_clusters as some
from gangline.wire.custom_resources import CLAIM
from gangline_profiles import names

from .placing import LEAF, SPINE, loaded

APP = model.LabelSelector(match_labels={"app": "x"})
_NEAR = model.PodAffinityTerm("rack", APP)
_RACK_A = model.NodeSelectorTerm(match_expressions=[model.Requirement("rack", "In", ["a"])])
_PORT = model.Container(name="main", ports=[model.ContainerPort(host_port=80)])
LIKE: dict[str, dict[str, Any]] = {
    "small": {"cpu": "100m", "memory": "1Gi"},
    "nothing": {},
    "one gpu": {"gpus": 1, "cpu": 1},
    "four gpus": {"gpus": 4},
    "claim": {"annotations": {CLAIM: "c0"}},
    "port": {"containers": [_PORT]},
    "image": {"containers": [model.Container(name="main", image="app:1")]},
    "labelled": {"labels": {"app": "x"}, "cpu": 1},
    "spread": {
        "labels": {"app": "x"},
        "topology_spread_constraints": [model.TopologySpreadConstraint(1, "rack", "DoNotSchedule", APP)],
    },
    "softly spread": {
        "labels": {"app": "x"},
        "cpu": 1,
        "topology_spread_constraints": [model.TopologySpreadConstraint(1, "zone", "ScheduleAnyway", APP)],
    },
    "company": {
        "labels": {"app": "x"},
        "affinity": model.Affinity(
            pod_affinity=model.PodAffinity(preferred=[model.WeightedPodAffinityTerm(5, _NEAR)]),
            node_affinity=model.NodeAffinity(preferred=[model.PreferredSchedulingTerm(10, _RACK_A)]),
        ),
    },
    "alone": {
        "labels": {"app": "x"},
        "affinity": model.Affinity(pod_anti_affinity=model.PodAffinity(required=[_NEAR])),
    },
}
"""Fields of the pods of one identity."""


class World:
    """A cluster with one of the packaged profiles."""

    def __init__(self, profile: str, nodes: list[model.Node], keeps: bool) -> None:
        self.keeps = keeps
        self.fake_clock = FakeClock()
        self.cache = histories.begun(nodes)
        made = judging_runtimes(
            loaded(profile), self.cache, clock=self.fake_clock, ties=random.Random(7), grouping=Groups(self.cache)
        )
        (self.runtime,) = made.values()
        self.nominations: dict[str, dict[str, Any]] = {}

    def take(self, step: Any) -> None:
        step(self.cache, self)

    def nominate(self, number: int, node: str, priority: int) -> None:
        pod = self.cache.record(make_pod(f"nominated-{number}", gpus=2, cpu=2, priority=priority))
        self.nominations.setdefault(node, {})[pod.uid] = pod

    def decide(self, pod: model.Pod) -> tuple[Any, ...]:
        if not self.keeps:
            self.runtime.evaluator.kept.entries.clear()
            self.runtime.evaluator.kept.common.clear()
            self.runtime.evaluator.repeats.forget()
        record = self.cache.record(pod)
        outcome = decide(Unit([record], added=0.0), self.runtime, self.cache, self.nominations)
        if isinstance(outcome, Decision):
            return outcome.node, outcome.feasible, outcome.scores, outcome.cycle.annotations
        return outcome.message, outcome.plugins, outcome.nominated_node_name


def labelled(nodes: list[model.Node]) -> list[model.Node]:
    """The nodes under leaves of one spine."""
    for number, node in enumerate(nodes):
        node.metadata.labels = {**(node.metadata.labels or {}), SPINE: "s0", LEAF: f"l{number % 2}"}
    return nodes


def _serve(cache: Cache, handle: Any) -> None:
    """A service selects pods: default constraints spread them from now on."""
    cache.store(SERVICES).upsert(model.Service(model.ObjectMeta("s", "default"), model.ServiceSpec({"app": "x"})))


def _serve_no_more(cache: Cache, handle: Any) -> None:
    cache.store(SERVICES).remove("default", "s")


def _repels(cache: Cache, handle: Any) -> None:
    """Somebody else has put a pod on a node that lets no pod with the label into its rack."""
    cache.upsert_pod(cache.record(make_pod("repelling", node="n1", **{**LIKE["alone"], "labels": {"app": "y"}})))


def _repels_no_more(cache: Cache, handle: Any) -> None:
    cache.remove_pod(make_pod("repelling").metadata.uid)


NODES = st.one_of(
    st.lists(some.nodes, max_size=4).map(lambda nodes: [make_node("n4", gpus=8, pods=110), *nodes]),
    st.integers(2, 5).map(lambda count: [make_node(name, gpus=8, cpu=16) for name in some.NODES[:count]]),
).map(labelled)
STEPS = st.one_of(
    st.tuples(st.just("decide"), st.sampled_from(list(LIKE)), st.integers(1, 5)),
    st.tuples(st.just("decide"), st.sampled_from(["small", "one gpu", "image", "labelled"]), st.integers(3, 9)),
    st.tuples(st.just("change"), histories.steps()),
    st.tuples(st.just("change"), st.sampled_from([_serve, _serve_no_more, _repels, _repels_no_more])),
    st.tuples(st.just("nominate"), st.sampled_from(some.NODES), st.integers(0, 9)),
)


@pytest.mark.parametrize("profile", names())
@settings(max_examples=settings().max_examples * 3 // 5)
@given(nodes=NODES, steps=st.lists(STEPS, min_size=1, max_size=8))
def test_like_pods_get_the_nodes_and_scores_that_they_get_where_nothing_is_kept(
    profile: str, nodes: list[model.Node], steps: list[tuple[Any, ...]]
) -> None:
    check(profile, nodes, steps)


def check(profile: str, nodes: list[model.Node], steps: list[tuple[Any, ...]]) -> None:
    keeping, anew = World(profile, nodes, keeps=True), World(profile, nodes, keeps=False)
    for number, (kind, *what) in enumerate(steps):
        if kind == "change":
            keeping.take(what[0])
            anew.take(what[0])
        elif kind == "nominate":
            keeping.nominate(number, *what)
            anew.nominate(number, *what)
        else:
            for one in range(what[1]):
                pod = make_pod(f"w{number}-{one}", **LIKE[what[0]])
                assert keeping.decide(pod) == anew.decide(pod)


def _with_image(cache: Cache, handle: Any) -> None:
    cache.upsert_node(make_node("n2", gpus=8, cpu=16, images={"app:1": 900 * 2**20}, labels=ZONED[2]))


def _avoided(cache: Cache, handle: Any) -> None:
    """A node is to be avoided for a while."""
    cache.upsert_node(make_node("n2", gpus=8, cpu=16, labels=ZONED[2], taints=["old:PreferNoSchedule"]))


def _avoided_no_more(cache: Cache, handle: Any) -> None:
    cache.upsert_node(make_node("n2", gpus=8, cpu=16, labels=ZONED[2]))


ZONED = [{"rack": "ab"[number % 2], "topology.kubernetes.io/zone": f"z{number}"} for number in range(4)]
LABELLED, IMAGE = ("decide", "labelled", 5), ("decide", "image", 5)


@pytest.mark.parametrize(
    "steps",
    [
        [LABELLED, ("change", _serve), LABELLED, ("change", _serve_no_more), LABELLED],
        [IMAGE, ("change", _with_image), IMAGE],
        [LABELLED, ("decide", "company", 1), LABELLED],
        [LABELLED, ("change", _repels), LABELLED, ("change", _repels_no_more), LABELLED],
        [LABELLED, ("change", _avoided), LABELLED, ("change", _avoided_no_more), LABELLED],
    ],
    ids=["a service", "an image", "an affinity", "an anti-affinity", "a taint that goes"],
)
def test_what_begins_to_matter_between_like_pods_is_seen(steps: list[tuple[Any, ...]]) -> None:
    nodes = [make_node(f"n{number}", gpus=8, cpu=16, labels=labels) for number, labels in enumerate(ZONED)]
    check("default", nodes, steps)
