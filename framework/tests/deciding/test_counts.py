"""Counts of pods per node: as few domains as will do, or as many as there are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.deciding.counts import apart, together
from gangline.state.topology import Domains, Topology
from gangline.testing import cluster, make_node
from gangline.testing.gangs import LEAF, SPINE

SPINES, LEAVES, NODES = 2, 3, 4
SIZE = SPINES * LEAVES * NODES
ROWS = np.arange(SIZE)


def levels(unlabelled: int = 0) -> list[Domains]:
    """Spines and leaves; the last `unlabelled` nodes are in none."""
    nodes = []
    for i in range(SIZE):
        labels = {SPINE: f"spine-{i // (LEAVES * NODES)}", LEAF: f"leaf-{i // NODES}"}
        nodes.append(make_node(f"n{i:02}", labels=labels if i < SIZE - unlabelled else {}))
    return Topology(cluster(nodes).nodes).switches()


LEVELS = levels()
CAPACITIES = st.lists(st.integers(0, 4), min_size=SIZE, max_size=SIZE).map(lambda each: np.array(each, dtype=np.int64))


@given(CAPACITIES, st.integers(1, 40))
def test_all_pods_are_counted_once_where_there_is_room(capacity: np.ndarray, wanted: int) -> None:
    for counts in (together(ROWS, capacity, wanted, LEVELS), apart(ROWS, capacity, wanted, LEVELS[-1])):
        assert counts.sum() == min(wanted, capacity.sum())
        assert (counts <= capacity).all() and (counts >= 0).all()


@given(CAPACITIES, st.integers(1, 16))
def test_one_domain_is_taken_whenever_one_holds_all(capacity: np.ndarray, wanted: int) -> None:
    counts = together(ROWS, capacity, wanted, LEVELS)

    spine, leaf = LEVELS
    used = np.flatnonzero(counts)
    if (spine.sums(capacity) >= wanted).any():
        assert len(set(spine.ids[used].tolist())) == 1
        inside = leaf.sums(np.where(spine.ids == spine.ids[used[0]], capacity, 0))
        if (inside >= wanted).any():
            assert len(set(leaf.ids[used].tolist())) == 1


@given(CAPACITIES, st.integers(1, 40))
def test_no_fewer_leaves_of_a_spine_would_do(capacity: np.ndarray, wanted: int) -> None:
    counts = together(ROWS, capacity, wanted, LEVELS[1:])

    sums = np.sort(LEVELS[1].sums(capacity))[::-1]
    fewest = int(np.searchsorted(np.cumsum(sums), min(wanted, sums.sum()))) + 1
    assert len(set(LEVELS[1].ids[np.flatnonzero(counts)].tolist())) <= fewest


def test_among_as_many_leaves_neighbours_are_taken() -> None:
    capacity = np.ones(SIZE, dtype=np.int64)
    capacity[[0, 1, 13]] = 0

    counts = together(ROWS, capacity, 7, LEVELS[1:])

    assert sorted({int(i) // NODES for i in np.flatnonzero(counts)}) in ([1, 2], [4, 5], [2, 3])


def test_a_node_without_labels_is_close_to_nothing() -> None:
    capacity = np.ones(SIZE, dtype=np.int64)
    capacity[: SIZE - 8] = 0
    capacity[2:4] = 1

    counts = together(ROWS, capacity, 2, levels(unlabelled=8))

    assert np.flatnonzero(counts).tolist() == [2, 3]


def test_scores_decide_among_the_nodes_of_the_last_domain() -> None:
    capacity = np.full(SIZE, 4, dtype=np.int64)
    scores = np.arange(SIZE, dtype=np.float64)

    counts = together(ROWS[:NODES], capacity, 2, LEVELS, scores)

    assert np.flatnonzero(counts).tolist() == [3]


def test_apart_takes_every_domain_in_turn_and_no_node_twice_before_all_have_one() -> None:
    capacity = np.full(SIZE, 4, dtype=np.int64)

    few, many = (apart(ROWS, capacity, n, LEVELS[-1]) for n in (6, SIZE + 2))

    assert len(set(LEVELS[-1].ids[np.flatnonzero(few)].tolist())) == 6
    assert many.min() == 1 and many.max() == 2
