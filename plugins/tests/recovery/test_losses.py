"""What counts as a loss, and when: nodes that are deleted, ill GPUs, and who is heard of by whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from gangline import Handle, PodInfo, resources
from gangline.testing import FakeHandle, cluster, make_node, make_pod
from gangline_plugins.recovery import rounds
from gangline_plugins.recovery.down import DownDomains
from gangline_plugins.recovery.losses import Affected, Loss, NodeHealth, affected, pods_on
from gangline_plugins.recovery.wear import NodeWear

from .recovery_cases import LossStory

GRACE = 60.0
AT_ONCE = 5.0
"""What pods take to end and to start."""
ALL = [f"l{leaf}-n{number}" for leaf in range(2) for number in range(4)]


def test_a_deleted_node_needs_no_grace() -> None:
    cluster = LossStory(graceSeconds=GRACE)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.lose(cluster.node_of("train", 2))
        await cluster.moved("train", 4, leaf, AT_ONCE)

    cluster.play(story)


def test_a_grace_that_ends_while_a_round_goes_on_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, takes = LossStory(graceSeconds=GRACE), 0.01

    def slowly(handle: Handle, lost: Iterable[tuple[PodInfo, Loss]]) -> list[Affected]:
        cluster.clock.move_to(cluster.clock.monotonic() + takes)
        return affected(handle, lost)

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        (leaf,) = cluster.leaves_of("train")
        lost = cluster.node_of("train", 2)
        cluster.fail(lost)
        await asyncio.sleep(GRACE - takes / 2)
        (other,) = {f"l{number}" for number in range(2)} - {leaf}
        monkeypatch.setattr(rounds, "affected", slowly)
        cluster.lose(f"{other}-n0")  # which begins a round
        await cluster.until(lambda: lost not in cluster.nodes("train"), AT_ONCE)
        await cluster.runs("train", 3, AT_ONCE)

    cluster.play(story)


def test_a_node_out_of_service_needs_no_grace() -> None:
    cluster = LossStory(graceSeconds=GRACE)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        taint = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
        cluster.server.patch(resources.NODES, cluster.node_of("train", 2), {"spec": {"taints": [taint]}})
        await cluster.moved("train", 4, leaf, AT_ONCE)

    cluster.play(story)


def test_an_ill_gpu_needs_no_grace() -> None:
    cluster = LossStory(more="GpuClaim", graceSeconds=GRACE)

    async def story() -> None:
        cluster.report_gpus(*ALL)
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before, node = cluster.uids("train"), cluster.node_of("train", 0)
        cluster.report_gpus(node, ill=(3,))
        await cluster.until(lambda: len(before & cluster.uids("train")) == 2, AT_ONCE)
        await cluster.runs("train", 3, AT_ONCE)
        assert node not in cluster.nodes("train")

    cluster.play(story)


def test_a_member_on_a_node_whose_fabric_is_broken_is_replaced_and_the_node_is_counted_once() -> None:
    cluster = LossStory(more="GpuClaim", graceSeconds=GRACE)

    async def story() -> None:
        cluster.report_gpus(*ALL)
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before, node = cluster.uids("train"), cluster.node_of("train", 0)
        cluster.report_gpus(node, ill=range(8), reason="NVLink fabric of the node is broken")
        await cluster.until(lambda: len(before & cluster.uids("train")) == 2, AT_ONCE)
        await cluster.told(f"GPU 0 of node {node} is unhealthy (NVLink fabric of the node is broken)")

    cluster.play(story)


def test_a_node_that_was_deleted_before_the_scheduler_began_is_lost_after_the_grace() -> None:
    cluster = LossStory(graceSeconds=10)

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        await cluster.stop()
        cluster.lose(cluster.node_of("train", 2))
        await cluster.restart()
        await cluster.moved("train", 4, leaf, 10.0 + AT_ONCE)

    cluster.play(story)


def make_health(handle: FakeHandle, grace: float = 10.0) -> NodeHealth:
    health = NodeHealth(handle, grace, lambda: None, NodeWear(0.0), DownDomains(handle, ()))
    handle.state.follow_nodes(health)
    return health


def test_nodes_that_go_without_pods_are_not_remembered() -> None:
    cache = cluster([make_node(f"n{number}") for number in range(300)])
    health = make_health(FakeHandle(cache))

    for number in range(300):
        cache.remove_node(f"n{number}")

    assert not health.all


def test_nodes_whose_pods_have_gone_are_forgotten_also_by_who_makes_no_rounds() -> None:
    names = [f"n{number}" for number in range(300)]
    cache = cluster([make_node(name) for name in names], [make_pod(f"p-{name}", node=name) for name in names])
    health = make_health(FakeHandle(cache))

    for name in names:
        cache.remove_node(name)
        (uid,) = cache.homeless[name]
        cache.remove_pod(uid)

    assert len(health.all) <= 64
    health.look()
    assert not health.all


def test_a_node_that_nobody_has_told_of_is_not_dead_and_has_its_grace() -> None:
    cache = cluster([], [make_pod("p", node="unknown")])
    handle = FakeHandle(cache)
    health = make_health(handle)

    health.look()

    ((pod, loss),) = pods_on(handle, health.all)
    assert (pod.name, loss.is_dead, loss.due - loss.since) == ("p", False, 10.0)
    cache.upsert_node(make_node("unknown"))
    assert not health.all


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_a_node_that_is_not_ready_has_its_grace(status: str) -> None:
    cluster = LossStory(graceSeconds=GRACE)

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before, node = cluster.uids("train"), cluster.node_of("train", 0)
        cluster.fail(node, status=status)
        await asyncio.sleep(GRACE - 1.0)
        assert cluster.uids("train") == before
        await cluster.until(lambda: cluster.uids("train") != before, 1.0 + AT_ONCE)

    cluster.play(story)
