"""Domains that are begun come first, whatever the order in which pods have come and gone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import resources
from gangline.testing import Cache, cluster, make_node, make_pod
from gangline.testing.gangs import LEAF, SPINE, Gangs, fabric
from gangline_plugins.anti_fragmentation import AntiFragmentation
from gangline_plugins.anti_fragmentation.arguments import AntiFragmentationArgs, TypicalPod

from ..gpu.gpu_cases import report

NODES = [f"s{s}-l{leaf}-n{n}" for s in range(2) for leaf in range(2) for n in range(2)]
Scores = Callable[[], dict[str, float]]


def scoring(cache: Cache, args: AntiFragmentationArgs | None = None) -> tuple[Gangs, Scores]:
    gangs = Gangs(cache, AntiFragmentation, args={"AntiFragmentation": args or AntiFragmentationArgs()})

    def scores() -> dict[str, float]:
        filtered = gangs.runtime.evaluator.filter(cache.record(make_pod("new", gpus=1)))
        found = gangs.runtime.evaluator.scores(filtered)["AntiFragmentation"]
        rows = np.flatnonzero(filtered.feasible).tolist()
        return {cache.nodes.names[row]: float(score) for row, score in zip(rows, found, strict=True)}

    return gangs, scores


def order_of(name: str, used: dict[str, int]) -> tuple[bool, bool]:
    """Whether the leaf, and whether the spine of a node is begun."""
    leaf, spine = name.rsplit("-", 1)[0], name.split("-")[0]
    in_use = [other for other, gpus in used.items() if gpus]
    return any(other.startswith(leaf) for other in in_use), any(other.startswith(spine) for other in in_use)


@given(st.lists(st.tuples(st.sampled_from(NODES), st.booleans()), max_size=12))
def test_a_node_of_a_begun_leaf_scores_more_and_then_one_of_a_begun_spine(steps: list[tuple[str, bool]]) -> None:
    gangs, scores = scoring(fabric(spines=2, leaves=2, nodes=2))
    used = dict.fromkeys(NODES, 0)
    scores()
    for number, (node, comes) in enumerate(steps):
        if comes and used[node] < 7:
            gangs.cache.upsert_pod(gangs.cache.record(make_pod(f"busy-{number}", gpus=1, node=node)))
            used[node] += 1
        elif not comes and used[node]:
            pod = next(p for p in gangs.cache.pods.values() if gangs.cache.nodes.names[p.row] == node)
            gangs.cache.remove_pod(pod.uid)
            used[node] -= 1

        found = scores()

        for one in NODES:
            for other in NODES:
                if order_of(one, used) > order_of(other, used):
                    assert found[one] > found[other]


@given(st.lists(st.tuples(st.sampled_from([*NODES, "out"]), st.integers(0, 8)), max_size=12))
def test_scores_are_those_of_a_plugin_that_has_just_begun(steps: list[tuple[str, int]]) -> None:
    cache = fabric(spines=2, leaves=2, nodes=2)
    for name, labels in (("out", {}), ("spine only", {SPINE: "s0"})):
        cache.upsert_node(make_node(name, gpus=8, cpu=64, labels=labels))
    for name in ("s0-l0-n0", "s1-l0-n1", "out"):
        cache.store(resources.GPU_NODE_STATUSES).upsert(report(name))
    args = AntiFragmentationArgs(typical_pods=[TypicalPod(0.7, cpu=8, gpus=1), TypicalPod(0.3, cpu=16, gpus=4)])
    _, scores = scoring(cache, args)
    for number, (node, gpus) in enumerate(steps):
        if gpus:
            cache.upsert_pod(cache.record(make_pod(f"busy-{number}", gpus=gpus, node=node)))
        elif found := next((p for p in cache.pods.values() if cache.nodes.names[p.row] == node), None):
            cache.remove_pod(found.uid)

        assert scores() == scoring(cache, args)[1]()


def test_of_nodes_that_are_alike_the_one_in_the_fullest_leaf_comes_first() -> None:
    gangs, scores = scoring(fabric(spines=1, leaves=2, nodes=4))
    for node in ("s0-l0-n0", "s0-l1-n0", "s0-l1-n1"):
        gangs.occupy(node, 8)

    found = scores()

    assert max(found, key=found.__getitem__).startswith("s0-l1")


def test_a_node_in_no_leaf_is_a_leaf_of_its_own() -> None:
    labels = [{SPINE: "s", LEAF: "a"}, {SPINE: "s", LEAF: "a"}, {}, {}]
    gangs, scores = scoring(cluster(make_node(f"n{i}", cpu=64, labels=each) for i, each in enumerate(labels)))
    gangs.occupy("n2", 1)

    found = scores()

    assert max(found, key=found.__getitem__) == "n2"


def test_without_domains_scores_are_what_they_were() -> None:
    gangs, scores = scoring(cluster(make_node(f"n{i}", cpu=64) for i in range(3)))
    gangs.occupy("n1", 1)
    plugin = gangs.runtime.profile.plugins["AntiFragmentation"]

    found = scores()

    asked = plugin._asked(gangs.cache.record(make_pod("new", gpus=1)))
    assert list(found.values()) == pytest.approx(plugin._rating.scores(asked, gangs.cache.nodes.view()).tolist())
