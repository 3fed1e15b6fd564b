"""Devices of claims with taints of the effect NoExecute: a loss for the pods that do not tolerate them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gangline import custom_resources, model, resources

from .recovery_cases import DRIVER, LossStory

AT_ONCE = 5.0
CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
RULES = {"DynamicResources": {"featureGates": {"DRADeviceTaintRules": True}}}


async def start(cluster: LossStory, tolerations: Sequence[model.DeviceToleration] = ()) -> str:
    """A gang of three with a device each; returns the node of one of them."""
    cluster.offer_devices(tolerations)
    cluster.add_job("train", 3, resourceClaims=CLAIMS)
    await cluster.runs("train", 3)
    return cluster.node_of("train", 0)


def test_a_member_whose_device_gets_a_taint_that_ends_pods_is_replaced_at_once() -> None:
    cluster = LossStory(graceSeconds=60)

    async def story() -> None:
        node = await start(cluster)
        before = cluster.uids("train")
        cluster.taint_device(node)
        await cluster.until(lambda: len(before & cluster.uids("train")) == 2, AT_ONCE)
        await cluster.runs("train", 3, AT_ONCE)
        assert node not in cluster.nodes("train") and len(cluster.leaves_of("train")) == 1
        await cluster.told(f"device gpu-0 of pool {node} of {DRIVER} has the taint example.com/broken:NoExecute")

    cluster.play(story)


def test_a_gang_whose_leaf_is_full_moves_as_a_whole_from_a_tainted_device() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.offer_devices()
        cluster.add_job("train", 4, resourceClaims=CLAIMS)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        cluster.taint_device(cluster.node_of("train", 2))
        await cluster.moved("train", 4, leaf, AT_ONCE)

    cluster.play(story)


def test_a_member_on_a_device_that_the_agent_reports_as_unhealthy_is_replaced() -> None:
    cluster = LossStory(graceSeconds=60)

    async def story() -> None:
        node = await start(cluster)
        before = cluster.uids("train")
        cluster.taint_device(node, "NoSchedule", key=custom_resources.UNHEALTHY)
        await cluster.until(lambda: len(before & cluster.uids("train")) == 2, AT_ONCE)
        await cluster.runs("train", 3, AT_ONCE)
        assert node not in cluster.nodes("train")

    cluster.play(story)


@pytest.mark.parametrize("effect", ["NoSchedule", "None"])
def test_a_taint_that_ends_no_pods_is_no_loss(effect: str) -> None:
    cluster = LossStory()

    async def story() -> None:
        node = await start(cluster)
        before = cluster.uids("train")
        cluster.taint_device(node, effect)
        await asyncio.sleep(60.0)
        assert cluster.uids("train") == before

    cluster.play(story)


def test_a_member_that_tolerates_the_taint_stays_for_good() -> None:
    cluster = LossStory()

    async def story() -> None:
        node = await start(cluster, [model.DeviceToleration("example.com/broken", "Exists")])
        before = cluster.uids("train")
        cluster.taint_device(node)
        await asyncio.sleep(60.0)
        assert cluster.uids("train") == before

    cluster.play(story)


TOLERATED = model.DeviceToleration("example.com/broken", "Exists", toleration_seconds=100)


@pytest.mark.parametrize(("ago", "left"), [(0.0, 100.0), (90.0, 10.0), (1000.0, 0.0), (-1000.0, 100.0)])
def test_a_member_that_tolerates_the_taint_for_a_while_stays_for_as_long(ago: float, left: float) -> None:
    cluster = LossStory()

    async def story() -> None:
        node = await start(cluster, [TOLERATED])
        before = cluster.uids("train")
        cluster.taint_device(node, ago=ago)
        await asyncio.sleep(max(0.0, left - 1.0))
        assert cluster.uids("train") == before
        await cluster.until(lambda: len(before & cluster.uids("train")) == 2, 1.0 + AT_ONCE)

    cluster.play(story)


def test_a_taint_that_goes_while_it_is_tolerated_is_no_loss() -> None:
    cluster = LossStory()

    async def story() -> None:
        node = await start(cluster, [TOLERATED])
        before = cluster.uids("train")
        cluster.taint_device(node)
        await asyncio.sleep(50.0)
        cluster.taint_device(node, "")
        await asyncio.sleep(100.0)
        assert cluster.uids("train") == before

    cluster.play(story)


def rule(node: str) -> dict[str, Any]:
    """An administrator says that the device of a node is broken."""
    taint = {"key": "example.com/broken", "effect": "NoExecute"}
    selector = {"driver": DRIVER, "pool": node, "device": "gpu-0"}
    return {"metadata": {"name": "broken"}, "spec": {"deviceSelector": selector, "taint": taint}}


@pytest.mark.parametrize("is_on", [False, True], ids=["without the gate", "with the gate"])
def test_the_taint_of_a_rule_counts_where_the_gate_is_on(is_on: bool) -> None:
    cluster = LossStory(others=RULES if is_on else {})

    async def story() -> None:
        node = await start(cluster)
        before = cluster.uids("train")
        cluster.server.create(resources.DEVICE_TAINT_RULES, rule(node))
        if is_on:
            await cluster.until(lambda: len(before & cluster.uids("train")) == 2, AT_ONCE)
            await cluster.runs("train", 3, AT_ONCE)
            assert node not in cluster.nodes("train")
        else:
            await asyncio.sleep(60.0)
            assert cluster.uids("train") == before

    cluster.play(story)


def test_a_gang_whose_member_kube_controller_manager_deletes_for_the_taint_is_whole_again() -> None:
    cluster = LossStory()

    async def story() -> None:
        cluster.offer_devices()
        cluster.add_job("train", 4, resourceClaims=CLAIMS)
        await cluster.runs("train", 4)
        (leaf,) = cluster.leaves_of("train")
        node = cluster.node_of("train", 2)
        cluster.taint_device(node)
        cluster.delete_pod(next(name for name, on in cluster.bound("train").items() if on == node))
        await cluster.moved("train", 4, leaf, 30.0)
        await asyncio.sleep(30.0)
        assert len(cluster.bound("train")) == 4

    cluster.play(story)
