"""Domains that an administrator marks as down: their nodes are lost at once, and new pods keep away."""

from __future__ import annotations

import asyncio
import logging

import pytest

from gangline import model
from gangline.testing import FakeHandle, cluster, make_node, make_pod
from gangline_plugins.recovery.arguments import DownArgs
from gangline_plugins.recovery.down import DownDomains
from gangline_plugins.recovery.losses import NodeHealth
from gangline_plugins.recovery.wear import NodeWear

from .recovery_cases import LossStory

DOWN = [{"level": "leaf", "name": "leaf-0"}]
AT_ONCE = 5.0


def test_new_pods_keep_away_from_a_domain_that_is_down() -> None:
    cluster = LossStory(down=DOWN)

    async def story() -> None:
        cluster.add_job("train", 4, priority=9)
        cluster.add_pods_of_one_node("other", 1)
        await cluster.runs("train", 4)
        await cluster.told("node(s) were in a domain that is marked as down")
        assert cluster.leaves_of("train") == {"l1"} and not cluster.bound("other")

    cluster.play(story)


@pytest.mark.parametrize("name", ["leaf-0", "spine-0/leaf-0"])
def test_gangs_leave_a_domain_that_is_marked_as_down_at_once(name: str) -> None:
    cluster = LossStory(graceSeconds=60)

    async def story() -> None:
        cluster.cordon_leaf("l1")
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)
        cluster.cordon_leaf("l1", False)
        cluster.configure(graceSeconds=60, down=[{"level": "leaf", "name": name}])
        cluster.reload()
        await cluster.moved("train", 4, "l0", AT_ONCE)
        await cluster.told(f"leaf {name} of node l0-n")

    cluster.play(story)


def test_a_domain_that_is_marked_as_down_counts_although_it_has_most_nodes() -> None:
    cluster = LossStory(leaves=3)

    async def story() -> None:
        cluster.cordon_leaf("l2")
        cluster.add_job("one", 4)
        cluster.add_job("two", 4)
        await cluster.runs("one", 4)
        await cluster.runs("two", 4)
        cluster.cordon_leaf("l2", False)
        cluster.configure(down=[{"level": "leaf", "name": f"leaf-{number}"} for number in range(2)])
        cluster.reload()
        await cluster.until(lambda: "l2" in cluster.leaves_of("one") | cluster.leaves_of("two"), AT_ONCE)
        await cluster.told("there is no room for them beside the others, nor for all elsewhere")

    cluster.play(story)


def test_nodes_that_nobody_hears_of_are_still_judged_by_the_others_when_a_domain_is_down() -> None:
    cluster = LossStory(leaves=3, down=DOWN)

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        before = cluster.uids("train")
        cluster.fail(*(f"l{leaf}-n{number}" for leaf in (1, 2) for number in range(3)))  # 6 of 8, and 6 of 12 in all
        await asyncio.sleep(60.0)
        assert cluster.uids("train") == before

    cluster.play(story)


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_node_in_a_domain_that_is_down_is_dead_only_if_it_is_gone(is_gone: bool) -> None:
    labels = {"topology.kubernetes.io/zone": "z"}
    cache = cluster([make_node("a", labels=labels)], [make_pod("p", node="a")])
    handle = FakeHandle(cache)
    down = DownDomains(handle, [DownArgs("zone", "z")])
    health = NodeHealth(handle, 10.0, lambda: None, NodeWear(0.0), down)
    handle.state.follow_nodes(health)
    if is_gone:
        cache.remove_node("a")

    (loss,) = health.all.values()
    assert (loss.is_certain, loss.is_dead, loss.is_silent) == (True, is_gone, False)


def test_a_silent_node_in_a_domain_that_is_down_is_lost_at_once_and_still_silent() -> None:
    labels = {"topology.kubernetes.io/zone": "z"}
    node = make_node("a", labels=labels)
    node.status.conditions = [model.PodCondition("Ready", "Unknown")]
    handle = FakeHandle(cluster([node]))
    down = DownDomains(handle, [DownArgs("zone", "z")])
    health = NodeHealth(handle, 10.0, lambda: None, NodeWear(0.0), down)
    handle.state.follow_nodes(health)

    (loss,) = health.all.values()
    assert (loss.is_certain, loss.is_silent, loss.due - loss.since) == (True, True, 0.0)
    assert not health.is_blind(0.55)


@pytest.mark.parametrize("which", [{"level": "rack", "name": "a"}, {"level": "leaf", "name": "leaf-9"}])
def test_a_domain_that_does_not_exist_is_told_in_the_log(
    which: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = LossStory(down=[which])

    async def story() -> None:
        cluster.add_job("train", 4)
        await cluster.runs("train", 4)

    with caplog.at_level(logging.WARNING):
        cluster.play(story)

    told = [each.message for each in caplog.records if "marked as down" in each.message]
    assert told == [f"Recovery: no node is in the {which['level']} {which['name']}, which is marked as down"]
