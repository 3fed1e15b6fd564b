"""Where LeafSpine lets a gang go, by how many nodes it needs."""

from __future__ import annotations

import numpy as np
import pytest

from gangline import Placement, SubGroup, TopologyConstraint
from gangline.testing import make_node, make_pod
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs
from gangline_plugins.leaf_spine.documents import Domain, TopologyConstraints

from .leaf_cases import Bench, attempt, busy, fabric, role, whole


def limited(**limits: int | bool) -> LeafSpineArgs:
    return LeafSpineArgs(topology_constraints=TopologyConstraints(**limits))  # type: ignore[arg-type]  # by name


def test_a_gang_of_one_node_is_offered_the_fullest_node_of_each_leaf() -> None:
    bench = Bench(fabric(1, 2), busy({"s0-l0-n1": 4, "s0-l0-n2": 6, "s0-l1-n3": 2}))
    group = bench.gang(1, gpus=4)

    assert [bench.nodes(placement) for placement in bench.offered(group)] == [["s0-l0-n1"], ["s0-l1-n3"]]


def test_a_gang_of_one_node_goes_to_the_node_that_it_fills_rather_than_to_the_fuller_leaf() -> None:
    taken = {"s0-l0-n0": 8, "s0-l0-n1": 8, "s0-l0-n2": 8, "s0-l1-n0": 4}
    bench = Bench(fabric(1, 2), busy(taken))
    group = bench.gang(4, gpus=1)

    assert bench.nodes(bench.offered(group)[0]) == ["s0-l1-n0"]


def test_a_gang_of_one_node_may_go_to_a_node_in_no_leaf() -> None:
    bench = Bench([*fabric(1, 1), make_node("loose")], busy(whole("s0-l0")))

    assert bench.names(bench.gang(8, gpus=1)) == ["a node in no leaf"]


def test_a_gang_of_two_nodes_goes_to_one_leaf_the_fullest_that_holds_it() -> None:
    bench = Bench(
        fabric(1, 3), busy({"s0-l0-n0": 8, "s0-l1-n0": 8, "s0-l1-n1": 8, "s0-l2-n0": 8, "s0-l2-n1": 1, "s0-l2-n2": 8})
    )
    group = bench.gang(2)

    assert bench.names(group) == ["leaf spine-0/leaf-0", "leaf spine-0/leaf-1"]
    assert bench.best(group) == "leaf spine-0/leaf-1"


def test_a_gang_that_half_a_leaf_holds_may_use_all_of_its_nodes() -> None:
    bench = Bench(fabric(1, 1))

    (placement,) = bench.offered(bench.gang(2))

    assert bench.nodes(placement) == [f"s0-l0-n{n}" for n in range(4)]


def test_a_gang_of_as_many_nodes_as_a_leaf_has_gets_a_complete_leaf() -> None:
    bench = Bench(fabric(1, 3), busy({"s0-l0-n0": 3, "s0-l2-n3": 1}))

    assert bench.names(bench.gang(4, gpus=5)) == ["leaf spine-0/leaf-1"]


def test_a_gang_of_a_leafs_size_waits_while_no_leaf_is_complete() -> None:
    bench = Bench(fabric(1, 2), busy({"s0-l0-n0": 1, "s0-l1-n0": 1}))

    assert bench.refusal(bench.gang(4, gpus=5)) == "no complete leaf of 4 nodes is free"


def test_without_strict_rules_a_leaf_that_is_not_complete_will_do_after_those_that_are() -> None:
    bench = Bench(fabric(1, 2), busy({"s0-l0-n0": 1}), LeafSpineArgs(strict=False))
    group = bench.gang(4, gpus=5)

    offered = bench.offered(group)

    assert [(placement.name, placement.tier) for placement in offered[:3]] == [
        ("leaf spine-0/leaf-1", 0),
        ("leaf spine-0/leaf-0", 1),
        ("leaf spine-0/leaf-1", 1),
    ]


def test_a_gang_without_gpus_is_left_to_others() -> None:
    bench = Bench(fabric(1, 2))
    group = attempt([role(bench.cache, 4, 0, cpu="100")])

    assert bench.generate(group) is None
    assert bench.score(group, Placement("anywhere", np.arange(8))) == 0.0


def test_a_leader_without_gpus_counts_for_nothing_beside_its_workers() -> None:
    bench = Bench(fabric(1, 2))
    group = attempt([role(bench.cache, 1, 0, "leader", cpu="8"), role(bench.cache, 4, 8, "workers")])

    assert bench.names(group) == ["leaf spine-0/leaf-0", "leaf spine-0/leaf-1"]


def test_gpus_of_other_makers_count_as_well() -> None:
    amd = "amd.com/gpu"
    labels = [{"topology.gangline.dev/leaf": f"leaf-{n // 2}"} for n in range(4)]
    nodes = [make_node(f"n{n}", gpus=0, resources={amd: 8}, labels=each) for n, each in enumerate(labels)]
    bench = Bench(nodes, [make_pod("busy", resources={amd: 1}, node="n0")])
    group = attempt([role(bench.cache, 2, 0, resources={amd: 4})])
    group.roles[0].capacity[:] = 1

    assert bench.names(group) == ["leaf leaf-1"]


@pytest.mark.parametrize(("nodes", "leaves"), [(5, 2), (8, 2), (9, 3), (12, 3), (16, 4)])
def test_larger_gangs_get_the_fewest_adjacent_leaves(nodes: int, leaves: int) -> None:
    bench = Bench(fabric(2, 5))

    offered = bench.offered(bench.gang(nodes))

    assert {len({name.rpartition("-n")[0] for name in bench.nodes(placement)}) for placement in offered} == {leaves}
    assert len(offered) == 2 * (5 - leaves + 1)


def test_leaves_of_different_spines_are_not_adjacent() -> None:
    bench = Bench(fabric(2, 2), busy(whole("s0-l0", "s1-l1")))

    assert bench.refusal(bench.gang(8)) == "no 2 adjacent leaves hold a gang of 8 nodes"


def test_leaves_with_a_gap_between_their_positions_are_not_adjacent() -> None:
    nodes = [node for node in fabric(1, 3) if "-l1-" not in node.metadata.name]
    bench = Bench(nodes)

    assert bench.names(bench.gang(8)) == ["spine spine-0", "leaves of several spines"]


def test_a_gang_waits_rather_than_taking_more_leaves_than_the_fewest() -> None:
    bench = Bench(fabric(1, 3), busy({"s0-l0-n0": 8, "s0-l1-n0": 8, "s0-l2-n0": 8}))

    assert bench.refusal(bench.gang(7)) == "no 2 adjacent leaves hold a gang of 7 nodes"


def test_without_strict_rules_more_adjacent_leaves_then_a_spine_then_several_follow() -> None:
    taken = {f"s0-l{leaf}-n0": 8 for leaf in range(3)} | whole("s1-l0")
    bench = Bench(fabric(2, 3), busy(taken), LeafSpineArgs(strict=False))
    group = bench.gang(9)

    assert [(p.name, p.tier) for p in bench.offered(group)] == [
        ("leaves spine-0/leaf-0 to leaf-2", 0),
        ("spine spine-0", 1),
        ("leaves of several spines", 2),
    ]


def test_a_gang_larger_than_any_run_gets_one_spine_before_several() -> None:
    nodes = [node for node in fabric(2, 5, 2) if "s0-l2-" not in node.metadata.name]
    bench = Bench([node for node in nodes if "s1-l1-" not in node.metadata.name])
    group = bench.gang(8)

    assert [(p.name, p.tier) for p in bench.offered(group)] == [
        ("spine spine-0", 0),
        ("spine spine-1", 0),
        ("leaves of several spines", 1),
    ]


def test_a_gang_larger_than_any_run_waits_where_scheduling_across_domains_is_not_allowed() -> None:
    bench = Bench(fabric(2, 2), args=limited(allow_cross_domain_scheduling=False))

    assert bench.refusal(bench.gang(12)) == "no spine has adjacent leaves for a gang of 12 nodes"


def test_a_gang_that_needs_nodes_outside_of_all_leaves_waits() -> None:
    bench = Bench([*fabric(1, 2), make_node("loose")])

    assert bench.refusal(bench.gang(9)) == "all leaves together do not hold a gang of 9 nodes"


def test_a_leaf_of_which_a_node_is_missing_is_not_complete() -> None:
    bench = Bench([*fabric(1, 3), make_node("extra", labels={"topology.gangline.dev/leaf": "leaf-9"})])
    bench.cache.remove_node("s0-l1-n2")

    assert bench.names(bench.gang(4)) == ["leaf spine-0/leaf-0", "leaf spine-0/leaf-2"]


def test_the_nodes_that_a_group_may_use_of_a_leaf_are_limited() -> None:
    bench = Bench(fabric(1, 3), busy({"s0-l1-n0": 8}), limited(max_nodes_per_leaf=2))

    offered = bench.offered(bench.gang(4))

    assert sorted(placement.name for placement in offered) == [
        "leaves spine-0/leaf-0 to leaf-1",
        "leaves spine-0/leaf-1 to leaf-2",
    ]
    assert all(len(placement.rows) == 4 for placement in offered)


def test_the_gpus_that_a_group_may_use_of_a_leaf_are_limited() -> None:
    bench = Bench(fabric(1, 2), args=limited(max_gpus_per_leaf=20))

    (placement,) = bench.offered(bench.gang(4))

    assert placement.name == "leaves spine-0/leaf-0 to leaf-1"
    assert len(placement.rows) == 4


def test_a_leafs_own_limit_counts_where_it_is_smaller() -> None:
    bench = Bench(fabric(1, 2), args=LeafSpineArgs(domains=[Domain(name="leaf-0", type="leaf", max_nodes=1)]))

    assert bench.names(bench.gang(2)) == ["leaf spine-0/leaf-1"]


def test_the_leaves_of_one_spine_that_a_group_may_use_are_limited() -> None:
    bench = Bench(fabric(2, 3), args=limited(max_domains_per_spine=2))

    (placement,) = bench.offered(bench.gang(12))

    assert len(placement.rows) == 16


def test_a_spine_with_too_few_leaves_takes_no_part_in_placements_on_several() -> None:
    small = [node for node in fabric(2, 3) if not node.metadata.name.startswith(("s1-l1", "s1-l2"))]
    bench = Bench([*small], args=limited(min_domains_per_spine=4))

    assert bench.refusal(bench.gang(8)) == "no 2 adjacent leaves hold a gang of 8 nodes"


def test_small_members_count_by_the_nodes_that_they_need() -> None:
    bench = Bench(fabric(1, 3))

    assert len(bench.offered(bench.gang(16, gpus=4))) == 2  # eight nodes


def test_a_leader_beside_its_workers_counts_too() -> None:
    bench = Bench(fabric(1, 3))
    group = attempt([role(bench.cache, 1, 1, "leader"), role(bench.cache, 4, 8, "workers")])

    assert bench.names(group) == ["leaves spine-0/leaf-0 to leaf-1", "leaves spine-0/leaf-1 to leaf-2"]


def test_an_elastic_gang_is_offered_room_for_all_before_room_for_those_needed() -> None:
    bench = Bench(fabric(1, 2), busy(whole("s0-l1")))
    group = attempt([role(bench.cache, 4)], needed=2)
    growing = attempt([role(bench.cache, 8)], needed=3)

    assert [(p.name, p.tier) for p in bench.offered(group)] == [("leaf spine-0/leaf-0", 0), ("leaf spine-0/leaf-0", 1)]
    assert bench.names(growing) == ["leaf spine-0/leaf-0"]


def test_a_gang_grows_in_the_leaf_of_its_members_then_next_to_it_then_in_its_spine() -> None:
    bench = Bench(fabric(2, 4), [*busy({"s0-l1-n0": 8}), *busy(whole("s0-l0"))])
    near = attempt([role(bench.cache, 3)], placed=["busy-s0-l1-n0"], cache=bench.cache)
    wider = attempt([role(bench.cache, 4)], placed=["busy-s0-l1-n0"], cache=bench.cache)

    assert [p.name for p in bench.offered(near)][:2] == ["leaf spine-0/leaf-1", "the spines of the gang"]
    assert [p.name for p in bench.offered(wider)][:2] == ["leaves spine-0/leaf-1 to leaf-2", "the spines of the gang"]


def test_a_group_that_says_itself_where_it_goes_is_left_to_others() -> None:
    bench = Bench(fabric())
    own = attempt([role(bench.cache, 2)], topology=TopologyConstraint(required="spine"))
    part = attempt([role(bench.cache, 2)], subgroups=(SubGroup("", 2, TopologyConstraint(preferred="leaf")),))

    assert bench.generate(own) is None
    assert bench.generate(part) is None


def test_a_group_that_is_to_be_distributed_is_left_to_others() -> None:
    bench = Bench(fabric())

    assert bench.generate(bench.gang(2, annotations={"topology.scheduler/placement-strategy": "distributed"})) is None


def test_a_group_that_the_whole_cluster_does_not_hold_is_left_to_the_cycle() -> None:
    bench = Bench(fabric(1, 1))

    assert bench.generate(bench.gang(5)) is None


def test_without_leaves_there_is_nothing_to_say() -> None:
    bench = Bench([make_node("a"), make_node("b")])

    assert bench.generate(bench.gang(2)) is None


def test_without_spines_no_leaves_are_adjacent() -> None:
    bench = Bench([make_node(f"n{n}", labels={"topology.gangline.dev/leaf": f"leaf-{n // 2}"}) for n in range(6)])

    assert bench.names(bench.gang(4)) == ["leaves of several spines"]


def test_other_levels_may_be_leaf_and_spine() -> None:
    labels = [{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/rack": f"r{n // 2}"} for n in range(4)]
    nodes = [make_node(f"n{n}", labels=each) for n, each in enumerate(labels)]

    assert Bench(nodes).names(Bench(nodes).gang(2)) == ["leaf z/r0", "leaf z/r1"]
    named = Bench(nodes, args=LeafSpineArgs(leaf_level="rack", spine_level="zone"))
    assert named.names(named.gang(4)) == ["leaves z/r0 to r1"]
