"""What is kept of the GPUs in use is what a count of everything finds; only what has changed is counted again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gangline import model
from gangline.kube.resources import GPU_NODE_STATUSES, RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.overview.gpu_counts import GpuCounts
from gangline.overview.gpu_use import catch_up, counted, gather, gpu_use
from gangline.state.cache import Cache
from gangline.state.node_view import NodeView
from gangline.state.pods import PodInfo
from gangline.testing import cluster, make_node, make_pod
from gangline.wire.custom_resources import ALLOCATED

from .test_gpu_use import report, resource_claim

NAMES, NUMBERS = st.sampled_from(["a", "b", "c"]), st.integers(0, 4)
IDS = st.sampled_from(["", "0", "1,2", "2,3,3", "x"])
STEPS = st.one_of(
    st.tuples(st.just("node"), NAMES, st.sampled_from([0, 2, 8])),
    st.tuples(st.just("no node"), NAMES),
    st.tuples(st.just("pod"), NUMBERS, NAMES, IDS, st.integers(0, 2)),
    st.tuples(st.just("no pod"), NUMBERS),
    st.tuples(st.just("claim"), NUMBERS, NAMES, st.sampled_from(["gpu.nvidia.com", "dra.net"]), IDS),
    st.tuples(st.just("no claim"), NUMBERS),
    st.tuples(st.just("slice"), NUMBERS, NAMES, st.lists(st.integers(0, 9), max_size=3)),
    st.tuples(st.just("no slice"), NUMBERS),
    st.tuples(st.just("report"), NAMES, st.integers(0, 9)),
    st.tuples(st.just("no report"), NAMES),
    st.tuples(st.just("count")),
    st.tuples(st.just("count one node")),
)


def slice_of(number: int, node: str, devices: list[int]) -> model.ResourceSlice:
    found = {"driver": "gpu.nvidia.com", "nodeName": node, "devices": [{"name": f"gpu-{id}"} for id in devices]}
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    data: dict[str, Any] = {"metadata": {"name": f"s{number}"}, "spec": {**found, "pool": pool}}
    return msgspec.convert(data, model.ResourceSlice)


def play(cache: Cache, step: tuple[Any, ...]) -> None:
    """One change of the cluster, or a count."""
    match step:
        case ("node", name, gpus):
            cache.upsert_node(make_node(name, gpus=gpus))
        case ("no node", name):
            cache.remove_node(name)
        case ("pod", number, node, ids, gpus):
            annotations = {ALLOCATED: ids} if ids else {}
            cache.upsert_pod(cache.record(make_pod(f"p{number}", gpus=gpus, node=node, annotations=annotations)))
        case ("no pod", number):
            cache.remove_pod(make_pod(f"p{number}").metadata.uid)
        case ("claim", number, node, driver, ids):
            devices = [f"gpu-{id}" for id in ids.split(",")]
            cache.store(RESOURCE_CLAIMS).upsert(resource_claim(f"c{number}", *devices, node=node, driver=driver))
        case ("no claim", number):
            cache.store(RESOURCE_CLAIMS).remove("default", f"c{number}")
        case ("slice", number, node, devices):
            cache.store(RESOURCE_SLICES).upsert(slice_of(number, node, devices))
        case ("no slice", number):
            cache.store(RESOURCE_SLICES).remove("", f"s{number}")
        case ("report", name, devices):
            cache.store(GPU_NODE_STATUSES).upsert(report(name, devices))
        case ("no report", name):
            cache.store(GPU_NODE_STATUSES).remove("", name)
        case ("count one node",):
            next(catch_up(cache, most=1), None)
        case _:
            gpu_use(cache)


@given(st.lists(STEPS, max_size=30))
def test_after_any_history_the_counts_are_those_of_a_count_of_everything(steps: list[tuple[Any, ...]]) -> None:
    cache = cluster([make_node("a"), make_node("b")])
    kept = cache.shared(GpuCounts, cache)
    kept.update(cache.nodes.view())
    for step in steps:
        play(cache, step)

    nodes, anew = cache.nodes.view(), GpuCounts(cache)
    kept.update(nodes)
    anew.update(nodes)

    assert kept.beyond.tolist() == anew.beyond.tolist() and kept.reported.tolist() == anew.reported.tolist()
    assert kept.ids(nodes) == anew.ids(nodes)


class Watched(NodeView):
    """Nodes that note whose pods are looked at."""

    looked_at: list[int]

    def pods(self, i: int) -> Mapping[str, PodInfo]:
        self.looked_at.append(i)
        return super().pods(i)


def watched(cache: Cache) -> Watched:
    nodes = Watched(cache.nodes, cache.nodes.everything)
    nodes.looked_at = []
    return nodes


def test_only_nodes_that_have_changed_are_looked_at() -> None:
    cache = cluster(make_node(f"n{i}") for i in range(50))
    gather(watched(cache), cache)
    cache.upsert_pod(cache.record(make_pod("p", node="n7", annotations={ALLOCATED: "1"})))
    cache.store(RESOURCE_CLAIMS).upsert(resource_claim("c", "gpu-2", "gpu-3", node="n9"))
    cache.store(GPU_NODE_STATUSES).upsert(report("n11", 4))

    nodes = watched(cache)
    use = counted(gather(nodes, cache))

    assert sorted(nodes.looked_at) == [7, 9, 11]
    assert use.used[[7, 9, 11]].tolist() == [1, 2, 0]


def test_catching_up_looks_at_a_slice_of_the_nodes_at_each_step_and_leaves_nothing_to_count() -> None:
    names = [f"n{i}" for i in range(10)]
    cache = cluster([make_node(name) for name in names])
    for name in names:
        cache.store(GPU_NODE_STATUSES).upsert(report(name, 1))
    counts = cache.shared(GpuCounts, cache)

    counted_after_steps = [int(counts.reported.sum()) for _ in catch_up(cache, most=4)]
    nodes = watched(cache)
    gather(nodes, cache)

    assert counted_after_steps == [4, 8] and counts.reported.tolist() == [1] * 10
    assert not nodes.looked_at


class WithoutNames(NodeView):
    """All nodes; to read all names would cost each step as much as there are nodes."""

    @property
    def names(self) -> list[str]:
        raise AssertionError("all names were read for a step")


def test_a_step_costs_no_more_on_a_large_cluster() -> None:
    cache = cluster([make_node(f"n{i}") for i in range(4)])
    cache.store(GPU_NODE_STATUSES).upsert(report("n1", 2))
    counts = cache.shared(GpuCounts, cache)

    while not counts.update(WithoutNames(cache.nodes, cache.nodes.everything), most=1):
        pass

    assert counts.reported.tolist() == [0, 2, 0, 0]


def test_a_node_that_changes_between_two_steps_is_counted_once_more() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    steps = catch_up(cache, most=1)
    next(steps)
    for name in ("a", "b"):
        cache.store(GPU_NODE_STATUSES).upsert(report(name, 3))

    assert len(list(steps)) <= 2

    assert cache.shared(GpuCounts, cache).reported.tolist() == [3, 3]


def test_catching_up_ends_although_more_nodes_change_between_two_steps_than_a_step_looks_at() -> None:
    names = [f"n{i}" for i in range(8)]
    cache = cluster([make_node(name) for name in names])
    steps = 0
    for _ in islice(catch_up(cache, most=2), 100):
        steps += 1
        for name in names:
            cache.store(GPU_NODE_STATUSES).upsert(report(name, steps))

    assert steps == 8

    gather(cache.nodes.view(), cache)
    assert cache.shared(GpuCounts, cache).reported.tolist() == [steps] * 8
