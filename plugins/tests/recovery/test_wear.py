"""Failures count against nodes and their GPUs, and less with time."""

from __future__ import annotations

import asyncio

import pytest

from gangline import custom_resources, resources
from gangline.testing import SCHEDULER, FakeHandle, cluster, make_node, make_pod
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.recovery.device_losses import DeviceHealth
from gangline_plugins.recovery.device_wear import DeviceWear
from gangline_plugins.recovery.wear import CORDONED, LOST, NodeWear

from ..gpu.gpu_cases import claim, claim_pod, gpu_cluster, report
from .recovery_cases import LossStory

NONE: frozenset[int] = frozenset()


def test_each_failure_counts_half_as_much_after_each_half_life() -> None:
    nodes = cluster([make_node("a"), make_node("b"), make_node("c")]).nodes.view()
    wear = NodeWear(100.0)
    wear.failed("a", 0.0)
    wear.failed("b", 0.0)
    wear.failed("b", 0.0)
    wear.failed("gone", 0.0)

    assert wear.scores(nodes, 0.0).tolist() == pytest.approx([50.0, 100 / 3, 100.0])
    assert wear.scores(nodes, 100.0).tolist() == pytest.approx([100 / 1.5, 50.0, 100.0])
    assert wear.any(100.0) and not wear.any(5000.0)
    wear.failed("c", 5000.0)
    assert wear.scores(nodes, 5000.0).tolist() == pytest.approx([100.0, 100.0, 50.0])


def test_points_do_not_fade_while_something_is_wrong_with_the_node() -> None:
    nodes = cluster([make_node("a")]).nodes.view()
    wear = NodeWear(100.0)
    wear.failed("a", 0.0)
    wear.hold("a", CORDONED, True, 0.0)
    wear.hold("a", LOST, True, 0.0)
    wear.hold("a", LOST, False, 1000.0)

    assert wear.scores(nodes, 5000.0).tolist() == [50.0]
    wear.hold("a", CORDONED, False, 5000.0)
    assert wear.scores(nodes, 5100.0).tolist() == pytest.approx([100 / 1.5])


def test_a_deleted_node_has_its_points_when_it_returns_and_a_deletion_counts_once() -> None:
    cache = cluster([make_node("a"), make_node("b")])
    wear = NodeWear(100.0)
    wear.failed("b", 0.0)
    wear.hold("b", LOST, True, 0.0)
    for name in ("a", "b"):
        wear.removed(name, 0.0)
        cache.remove_node(name)
    for name in ("b", "a"):
        cache.upsert_node(make_node(name))
        wear.rows_changed()

    assert wear.scores(cache.nodes.view(), 0.0).tolist() == [50.0, 50.0]


def test_columns_of_some_nodes_have_the_points_of_these() -> None:
    nodes = cluster([make_node(name) for name in "abcd"]).nodes.view()
    wear = NodeWear(100.0)
    wear.failed("c", 0.0)

    assert wear.scores(nodes.at(nodes.rows[1:3]), 0.0).tolist() == [100.0, 50.0]


def test_nodes_whose_failures_are_long_ago_are_forgotten() -> None:
    wear = NodeWear(1.0)
    for number in range(5000):
        wear.failed(f"n{number}", float(number))

    assert len(wear) < 200


def test_so_many_nodes_are_remembered_and_no_more() -> None:
    wear = NodeWear(1e9)
    for number in range(20_000):
        wear.failed(f"n{number}", 0.0)

    assert 8000 <= len(wear) <= 16_384
    assert wear.any(0.0)


def test_without_a_half_life_nothing_counts() -> None:
    wear = NodeWear(0.0)
    wear.failed("a", 0.0)
    wear.removed("a", 0.0)

    assert not wear.any(0.0)


def test_a_gpu_that_is_well_again_is_avoided_for_longer_the_more_often_it_failed() -> None:
    handle = FakeHandle(cluster([make_node("a")]))
    node, wear = device_table(handle.state).node_at(0), DeviceWear(handle, 100.0)

    wear.told("a", NONE, frozenset({3}), 0.0)
    wear.told("a", frozenset({3}), frozenset({5}), 10.0)
    wear.told("a", frozenset({5}), NONE, 1000.0)
    assert node.avoided[SCHEDULER] == 1 << 5
    wear.told("a", NONE, frozenset({5}), 1000.0)
    wear.told("a", frozenset({5}), NONE, 1000.0)
    wear.told("a", NONE, frozenset({7}), 1199.0)
    assert node.avoided[SCHEDULER] == 1 << 5 | 1 << 7
    wear.told("a", frozenset({7}), NONE, 1201.0)
    assert node.avoided[SCHEDULER] == 1 << 7


def test_a_node_that_is_forgotten_because_there_are_too_many_has_no_gpus_that_are_avoided() -> None:
    handle = FakeHandle(cluster([make_node("a")]))
    node, wear = device_table(handle.state).node_at(0), DeviceWear(handle, 100.0)

    for name in ("a", *(f"other-{number}" for number in range(4095))):
        wear.told(name, NONE, frozenset({3}), 0.0)
    assert node.avoided[SCHEDULER] == 1 << 3
    wear.told("one-more", NONE, frozenset({3}), 0.0)
    assert node.avoided[SCHEDULER] == 0


def test_the_gpus_that_a_profile_avoids_are_chosen_as_others_are_for_pods_of_other_profiles() -> None:
    cache = gpu_cluster([report("a")], [claim("one", count=1)])
    handle, other = FakeHandle(cache), FakeHandle(cache)
    other.profile = "other"
    wear, of_other = DeviceWear(handle, 100.0), DeviceWear(other, 50.0)

    wear.told("a", NONE, frozenset({0, 1}), 0.0)
    of_other.told("a", NONE, frozenset({0}), 0.0)
    of_other.told("a", frozenset({0}), NONE, 0.0)
    of_other.node_upserted(make_node("a"), 0)
    chosen = {}
    for name in (SCHEDULER, "other", "third"):
        pod = cache.record(claim_pod(name, "one", scheduler_name=name))
        cache.assume(pod, 0)
        allocation = device_table(cache).allocation(pod.uid)
        assert allocation is not None
        chosen[name] = allocation.ids
    assert chosen == {SCHEDULER: (2,), "other": (0,), "third": (1,)}


def small(cluster: LossStory, name: str) -> None:
    """A pod that wants one GPU."""
    containers = [{"name": "main", "image": "main:1", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    cluster.add_replica_set(name, {"app": name}, containers=containers)


def test_a_gpu_that_has_failed_is_the_last_to_be_chosen_for_one_half_life() -> None:
    cluster = LossStory(leaves=1, more="GpuClaim", penaltyHalfLifeSeconds=100)

    async def story() -> None:
        cluster.lose("l0-n1", "l0-n2", "l0-n3")
        cluster.report_gpus("l0-n0", ill=(0,))
        await asyncio.sleep(1.0)
        cluster.report_gpus("l0-n0")
        await asyncio.sleep(1.0)
        small(cluster, "first")
        await cluster.runs("first", 1)
        assert cluster.devices("first") == ["1"]
        for number in range(7):
            small(cluster, f"more-{number}")
        await cluster.runs("more", 7)
        assert sorted(cluster.devices("more")) == ["0", "2", "3", "4", "5", "6", "7"]

    cluster.play(story)


def test_a_gpu_that_failed_long_ago_is_chosen_as_others_are() -> None:
    cluster = LossStory(leaves=1, more="GpuClaim", penaltyHalfLifeSeconds=100)

    async def story() -> None:
        cluster.lose("l0-n1", "l0-n2", "l0-n3")
        cluster.report_gpus("l0-n0", ill=(0,))
        await asyncio.sleep(1.0)
        cluster.report_gpus("l0-n0")
        await asyncio.sleep(101.0)
        small(cluster, "first")
        await cluster.runs("first", 1)
        assert cluster.devices("first") == ["0"]

    cluster.play(story)


def test_gpus_that_become_ill_together_count_once_against_their_node_however_many_pods_they_have() -> None:
    cache = cluster([make_node("a")])
    handle, wear = FakeHandle(cache), NodeWear(100.0)
    health = DeviceHealth(handle, lambda: None, wear, DeviceWear(handle, 100.0))
    pods = [
        make_pod(
            f"p{number}", node="a", annotations={custom_resources.ALLOCATED: "0", custom_resources.CLAIM: "shared"}
        )
        for number in range(5)
    ]
    for pod in pods:
        cache.upsert_pod(cache.record(pod))

    for ill in ({0, 1}, {0, 1}, {0, 1}):
        cache.store(resources.GPU_NODE_STATUSES).upsert(report("a", health=dict.fromkeys(ill, "Unhealthy")))
        health.losses(0.0)
    assert wear.scores(cache.nodes.view(), 0.0).tolist() == [50.0]
    cache.store(resources.GPU_NODE_STATUSES).upsert(report("a", health=dict.fromkeys(range(8), "Unhealthy")))
    assert wear.scores(cache.nodes.view(), 0.0).tolist() == pytest.approx([100 / 3])


def test_a_node_that_was_cordoned_for_long_is_avoided_for_a_while_afterwards() -> None:
    cluster = LossStory(leaves=1, penaltyHalfLifeSeconds=20)

    async def story() -> None:
        cluster.cordon("l0-n0")
        await asyncio.sleep(200.0)
        cluster.cordon("l0-n0", False)
        await asyncio.sleep(1.0)
        cluster.add_pods_of_one_node("small", 3)
        await cluster.runs("small", 3)
        assert "l0-n0" not in cluster.nodes("small")

    cluster.play(story)


def test_a_node_that_was_deleted_and_is_back_is_avoided_for_a_while() -> None:
    cluster = LossStory(leaves=1)

    async def story() -> None:
        await asyncio.sleep(1.0)
        cluster.lose("l0-n0")
        await asyncio.sleep(1.0)
        cluster.create(resources.NODES, cluster.make_node("l0-n0"))
        await asyncio.sleep(1.0)
        cluster.add_pods_of_one_node("small", 3)
        await cluster.runs("small", 3)
        assert "l0-n0" not in cluster.nodes("small")

    cluster.play(story)
