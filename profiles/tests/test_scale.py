"""What 1,250 nodes with 10,000 GPUs cost, in CPU time: a machine that others use too is slow by the clock alone."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Sequence

import msgspec
import pytest

from gangline import config
from gangline.deciding.scheduling import Decision, decide
from gangline.kube.resources import GPU_NODE_STATUSES
from gangline.model import Node
from gangline.overview.topology_metrics import TopologyMetrics
from gangline.profile.assembly import judging_runtimes
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.topology import Topology
from gangline.testing import make_node, make_pod
from gangline.wire.custom_resources import GpuNodeStatus
from gangline_profiles import read

from .placing import LEAF, SPINE, report

NODES, LEAF_SIZE, SPINE_SIZE = 1250, 20, 500
PODS = 150
LEAST_PER_S = 100
LONGEST_UPDATE_S = 0.1


def node(number: int, leaf: str = "") -> Node:
    labels = {SPINE: f"spine-{number // SPINE_SIZE}", LEAF: leaf or f"leaf-{number // LEAF_SIZE}"}
    return make_node(f"node-{number}", cpu=96, memory="1Ti", gpus=8, labels=labels)


def fabric() -> Cache:
    cache = Cache()
    for number in range(NODES):
        cache.store(GPU_NODE_STATUSES).upsert(msgspec.convert(report(f"node-{number}"), GpuNodeStatus))
        cache.upsert_node(node(number))
    return cache


@pytest.mark.parametrize("profile", ["gpu-scheduler", "topology-aware-scheduler"])
def test_more_than_a_hundred_pods_are_decided_on_in_a_second_of_cpu_time(profile: str) -> None:
    cache = fabric()
    runtime = judging_runtimes(config.load(read(profile), profile), cache, ties=random.Random(1))[profile]
    sizes = random.Random(2).choices([1, 2, 4, 8], k=PODS)
    began = time.thread_time()
    outcomes = []
    for number, gpus in enumerate(sizes):
        pod = cache.record(make_pod(f"pod-{number}", cpu=gpus, gpus=gpus, scheduler_name=profile))
        outcomes.append(decide(Unit([pod], 0.0), runtime, cache, {}))
    seconds = time.thread_time() - began

    assert all(isinstance(outcome, Decision) for outcome in outcomes)
    assert PODS / seconds > LEAST_PER_S


def test_a_node_that_changes_its_domain_is_known_there_after_a_tenth_of_a_second_of_cpu_time() -> None:
    cache = fabric()
    topology = Topology(cache.nodes)
    metrics = TopologyMetrics(cache)
    metrics.topology = topology
    metrics.take()

    def moved(number: int) -> float:
        began = time.thread_time()
        cache.upsert_node(node(number, leaf=f"leaf-new-{number}"))
        leaf = topology.find("leaf")
        metrics.take()
        seconds = time.thread_time() - began
        assert leaf is not None and is_alone(leaf.ids.tolist(), number)
        return seconds

    assert statistics.median(moved(number) for number in range(9)) < LONGEST_UPDATE_S
    page = "".join(metrics.lines())
    assert all(f'spine-0/leaf-new-{number}"' in page for number in range(9))


def is_alone(ids: Sequence[int], row: int) -> bool:
    """Whether the node on this row is alone in its domain."""
    return ids.count(ids[row]) == 1
