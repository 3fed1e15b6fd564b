"""Domains that an administrator marks as down: their nodes are lost at once, and new pods keep away."""

from __future__ import annotations

import asyncio
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import PatchKind, model, resources
from gangline.testing import Cache, FakeHandle, cluster, make_node, make_pod
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


def relabel(cluster: LossStory, node: str, leaf: str) -> None:
    """The node is in another leaf from now on."""
    patch = {"metadata": {"labels": {"topology.gangline.dev/leaf": leaf}}}
    cluster.server.patch(resources.NODES, node, patch, kind=PatchKind.MERGE)


def test_a_node_that_is_relabelled_into_a_domain_that_is_down_is_lost_at_once() -> None:
    cluster = LossStory(down=[{"level": "leaf", "name": "leaf-9"}])

    async def story() -> None:
        cluster.add_job("train", 3)
        await cluster.runs("train", 3)
        await asyncio.sleep(60.0)
        moved = cluster.node_of("train", 1)
        relabel(cluster, moved, "leaf-9")
        await cluster.until(lambda: len(cluster.bound("train")) == 3 and moved not in cluster.nodes("train"), AT_ONCE)

    cluster.play(story)


def test_pods_come_to_a_node_as_soon_as_it_is_relabelled_out_of_a_domain_that_is_down() -> None:
    cluster = LossStory(leaves=1, down=DOWN)

    async def story() -> None:
        cluster.add_pods_of_one_node("other", 1)
        await cluster.told("node(s) were in a domain that is marked as down")
        relabel(cluster, "l0-n2", "leaf-1")
        await cluster.until(lambda: cluster.nodes("other") == ["l0-n2"], AT_ONCE)

    cluster.play(story)


def leaves(*names: str) -> Cache:
    """One node in each of these leaves, which are given with their spines."""
    labels = [dict(zip(("spine", "leaf"), name.split("/"), strict=True)) for name in names]
    nodes = [
        make_node(f"n{number}", labels={f"topology.gangline.dev/{level}": value for level, value in each.items()})
        for number, each in enumerate(labels)
    ]
    return cluster(nodes)


def test_the_domains_that_are_down_are_looked_up_once_for_each_change_of_labels(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache = leaves("s0/a", "s0/b", "s1/a", "s1/b")
    down = DownDomains(FakeHandle(cache), [DownArgs("leaf", "s1/a"), DownArgs("leaf", "b"), DownArgs("leaf", "s1/b")])

    before = down.rows()
    assert before.tolist() == [False, True, True, True] and down.rows() is before
    assert list(down.nodes().values()) == [
        "leaf b of node n1 is marked as down",
        "leaf s1/a of node n2 is marked as down",
        "leaf b of node n3 is marked as down",
    ]
    cache.upsert_node(make_node("n0", labels={"topology.gangline.dev/spine": "s1", "topology.gangline.dev/leaf": "a"}))
    assert down.rows().tolist() == [True] * 4 and not caplog.records


@given(
    st.lists(st.tuples(st.sampled_from("st"), st.sampled_from("abc")), min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "s/a", "t/b", "b", "s/c", "x"]), max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from("st"), st.sampled_from("abc")), max_size=4),
)
def test_nodes_are_in_the_first_domain_whose_name_or_path_they_have(
    nodes: list[tuple[str, str]], named: list[str], changes: list[tuple[int, str, str]]
) -> None:
    cache = leaves(*("/".join(each) for each in nodes))
    down = DownDomains(FakeHandle(cache), [DownArgs("leaf", name) for name in named])

    for number, spine, leaf in [(0, *nodes[0]), *changes]:
        if number < len(nodes):
            nodes[number] = spine, leaf
            labels = {"topology.gangline.dev/spine": spine, "topology.gangline.dev/leaf": leaf}
            cache.upsert_node(make_node(f"n{number}", labels=labels))
        first = {
            f"n{n}": next((name for name in named if name in (leaf, f"{spine}/{leaf}")), None)
            for n, (spine, leaf) in enumerate(nodes)
        }
        expected = {node: f"leaf {name} of node {node} is marked as down" for node, name in first.items() if name}
        assert down.nodes() == expected
