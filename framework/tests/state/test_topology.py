"""Levels and domains follow the labels of nodes."""

from __future__ import annotations

import numpy as np
import pytest

from gangline.state.topology import NO_DOMAIN, Level, Named, Topology, natural
from gangline.testing import cluster, make_node
from gangline.testing.gangs import LEAF, SPINE, fabric


def test_well_known_labels_that_nodes_have_are_the_levels_widest_first() -> None:
    topology = Topology(fabric().nodes)

    assert [level.name for level in topology.levels] == ["spine", "leaf", "host"]


def test_of_two_words_for_one_network_the_one_of_most_nodes_counts() -> None:
    topograph = {"network.topology.nvidia.com/spine": "s", "network.topology.nvidia.com/leaf": "x"}
    nodes = [make_node(f"n{i}", labels={SPINE: "s", LEAF: f"l{i}", **(topograph if i == 0 else {})}) for i in range(3)]

    topology = Topology(cluster(nodes).nodes)

    leaf = topology.find("leaf")
    assert [level.label for level in topology.levels[:2]] == [SPINE, LEAF]
    assert leaf is not None and leaf.values == ("l0", "l1", "l2")
    other = topology.find("network.topology.nvidia.com/leaf")
    assert other is not None and other.values == ("x",)


def test_a_level_of_another_family_is_found_by_its_name_too() -> None:
    labels = {SPINE: "s", LEAF: "l", "topology.kubernetes.io/rack": "r"}
    topology = Topology(cluster([make_node("a", labels=labels)]).nodes)

    rack = topology.find("rack")

    assert rack is not None and rack.values == ("r",) and "rack" not in topology.names()


def test_equal_names_under_different_wider_domains_are_different_domains() -> None:
    topology = Topology(fabric(spines=2, leaves=3).nodes)

    leaf = topology.find("leaf")

    assert leaf is not None and len(leaf) == 6
    assert {leaf.path(domain) for domain in range(6)} == {f"spine-{s}/leaf-{n}" for s in (0, 1) for n in (0, 1, 2)}


def test_a_level_is_found_by_name_by_label_and_by_any_label_that_nodes_have() -> None:
    cache = cluster([make_node("a", labels={LEAF: "leaf-1", "example.com/row": "r1"}), make_node("b")])
    topology = Topology(cache.nodes)

    assert topology.find("leaf") is topology.find(LEAF)
    row = topology.find("example.com/row")
    assert row is not None and row.ids.tolist() == [0, NO_DOMAIN]
    assert topology.find("example.com/other") is None and topology.find("rack") is None


def test_a_node_without_the_label_is_in_no_domain() -> None:
    cache = cluster([make_node("a", labels={SPINE: "s", LEAF: "l"}), make_node("b", labels={SPINE: "s"})])

    leaf = Topology(cache.nodes).find("leaf")

    assert leaf is not None and leaf.ids.tolist() == [0, NO_DOMAIN]


def test_a_change_of_labels_shows_at_once_and_a_heartbeat_changes_nothing() -> None:
    cache = fabric(spines=1, leaves=2, nodes=1)
    topology = Topology(cache.nodes)
    before = topology.find("leaf")

    cache.upsert_node(make_node("s0-l0-n0", gpus=8, cpu=64, memory="512Gi", labels={SPINE: "spine-0", LEAF: "leaf-0"}))
    assert topology.find("leaf") is before

    cache.upsert_node(make_node("s0-l0-n0", labels={SPINE: "spine-0", LEAF: "leaf-1"}))
    after = topology.find("leaf")
    assert after is not None and len(after) == 1 and after.ids.tolist() == [0, 0]


def test_a_node_that_goes_leaves_its_domain() -> None:
    cache = fabric(spines=1, leaves=2, nodes=1)
    topology = Topology(cache.nodes)

    cache.remove_node("s0-l1-n0")

    leaf = topology.find("leaf")
    assert leaf is not None and len(leaf) == 1 and leaf.ids.tolist() == [0, NO_DOMAIN]


@pytest.mark.parametrize(
    ("names", "positions"),
    [
        (["leaf-2", "leaf-10", "leaf-1"], [2, 10, 1]),
        (["red", "blue", "green"], [2, 0, 1]),
        (["a-1", "b-1", "c-2"], [0, 1, 2]),
    ],
    ids=["last numbers", "names without numbers", "the same number twice"],
)
def test_neighbours_are_told_by_the_last_number_or_by_rank(names: list[str], positions: list[int]) -> None:
    cache = cluster(make_node(f"n{i}", labels={LEAF: name}) for i, name in enumerate(names))

    leaf = Topology(cache.nodes).find("leaf")

    assert leaf is not None
    assert [int(leaf.positions[leaf.ids[row]]) for row in range(len(names))] == positions


def test_described_domains_take_the_nodes_with_their_labels() -> None:
    cache = cluster([make_node("a", labels={"row": "1"}), make_node("b", labels={"row": "2"}), make_node("c")])
    levels = [Level("leaf", domains=(Named("leaf-1", {"row": "1"}), Named("leaf-2", {"row": "2"})))]

    leaf = Topology(cache.nodes, levels).find("leaf")

    assert leaf is not None and leaf.values == ("leaf-1", "leaf-2") and leaf.ids.tolist() == [0, 1, NO_DOMAIN]


def test_sums_and_ancestors_follow_the_domains() -> None:
    topology = Topology(fabric(spines=2, leaves=2, nodes=3).nodes)
    spine, leaf = topology.find("spine"), topology.find("leaf")
    assert spine is not None and leaf is not None

    ones = np.ones(12, dtype=np.int64)

    assert leaf.sums(ones).tolist() == [3] * 4 and spine.sums(ones).tolist() == [6, 6]
    assert leaf.ancestors(spine).tolist() == [0, 0, 1, 1]


def test_names_are_sorted_as_people_count() -> None:
    assert sorted(["leaf-10", "leaf-2", "leaf-1"], key=natural) == ["leaf-1", "leaf-2", "leaf-10"]
