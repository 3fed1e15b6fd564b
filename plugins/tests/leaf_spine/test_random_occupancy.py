"""Whatever is in use, LeafSpine's placements obey the rules."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline_plugins.leaf_spine.arguments import LeafSpineArgs
from gangline_plugins.leaf_spine.documents import TopologyConstraints

from .leaf_cases import Bench, busy, fabric

NODES = [node.metadata.name for node in fabric(2, 4, 4)]
OCCUPANCY = st.dictionaries(st.sampled_from(NODES), st.sampled_from([1, 4, 8]), max_size=24)


def place_of(node: str) -> tuple[int, int]:
    """Spine and position of the leaf."""
    spine, leaf, _ = node.split("-")
    return int(spine[1:]), int(leaf[1:])


@given(taken=OCCUPANCY, nodes=st.integers(2, 16), cap=st.sampled_from([None, 2, 3]))
def test_placements_are_in_one_spine_on_the_fewest_consecutive_leaves_and_hold_the_gang(
    taken: dict[str, int], nodes: int, cap: int | None
) -> None:
    size = cap or 4
    args = LeafSpineArgs(topology_constraints=TopologyConstraints(max_nodes_per_leaf=cap))
    bench = Bench(fabric(2, 4, 4), busy(taken), args)
    nodes = min(nodes, 4 * size)
    group = bench.gang(nodes)

    for placement in bench.offered(group):
        names = bench.nodes(placement)
        leaves = sorted({place_of(name) for name in names})
        positions = [position for _, position in leaves]
        assert len({spine for spine, _ in leaves}) == 1
        assert positions == list(range(positions[0], positions[0] + len(positions)))
        assert len(leaves) <= -(-nodes // size)
        assert group.roles[0].capacity[placement.rows].sum() >= nodes
        assert max(np.bincount([position for _, position in map(place_of, names)])) <= size
        if nodes == 4 and cap is None:
            assert not set(names) & set(taken)


@given(taken=OCCUPANCY, nodes=st.integers(1, 16))
def test_a_gang_waits_only_where_no_adjacent_leaves_hold_it(taken: dict[str, int], nodes: int) -> None:
    bench = Bench(fabric(2, 4, 4), busy(taken))
    group = bench.gang(nodes)
    free: dict[tuple[int, int], int] = {place_of(name): 0 for name in NODES}
    for name in NODES:
        free[place_of(name)] += name not in taken
    width = -(-nodes // 4)
    runs = [sum(free[spine, at + i] for i in range(width)) for spine in range(2) for at in range(4 - width + 1)]

    assert bool(bench.offered(group)) == any(held >= nodes for held in runs)


@given(taken=OCCUPANCY, nodes=st.integers(1, 16))
def test_scores_lie_between_0_and_100(taken: dict[str, int], nodes: int) -> None:
    bench = Bench(fabric(2, 4, 4), busy(taken))
    group = bench.gang(nodes)

    assert all(0.0 <= bench.score(group, placement) <= 100.0001 for placement in bench.offered(group))
