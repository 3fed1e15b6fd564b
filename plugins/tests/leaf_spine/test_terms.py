"""The terms of LeafSpine's score mean what is said of them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from gangline import Placement
from gangline.testing import make_node
from gangline_plugins.leaf_spine.arguments import LeafSpineArgs
from gangline_plugins.leaf_spine.documents import ScoringWeights
from gangline_plugins.leaf_spine.terms import (
    DomainOffers,
    domain_utilization,
    resource_availability,
    score,
    topology_alignment,
)

from .leaf_cases import Bench, busy, fabric, whole


def offers(
    total: int = 32,
    used: int = 0,
    untouched: int | None = None,
    span: int = 1,
    spines: int = 1,
    history: float = 1.0,
    node: DomainOffers | None = None,
) -> DomainOffers:
    untouched = (0 if used else total) if untouched is None else untouched
    one = np.ones(1, dtype=np.int64)
    return DomainOffers(one * total, one * used, one * untouched, one * span, one * spines, np.array([history]), node)


def only(**weight: float) -> LeafSpineArgs:
    """Arguments by which one term alone counts."""
    none = {"resourceAvailability": 0, "topologyAlignment": 0, "domainUtilization": 0, "historicalPerformance": 0}
    return LeafSpineArgs(scoring_weights=msgspec.convert({**none, **weight}, ScoringWeights))


def score_of(bench: Bench, gang: int, leaf: int, gpus: int = 8) -> float:
    group = bench.gang(gang, gpus=gpus)
    (found,) = [p for p in bench.offered(group) if p.name == f"leaf spine-0/leaf-{leaf}"]
    return bench.score(group, found)


def test_a_leaf_that_is_in_use_already_loses_no_availability() -> None:
    assert resource_availability(offers(used=8), 16) == 1.0


def test_an_untouched_leaf_loses_what_is_left_over_of_it() -> None:
    assert resource_availability(offers(), 16) == 0.5
    assert resource_availability(offers(), 32) == 1.0


def test_used_leaves_are_filled_before_untouched_ones_are_broken_up() -> None:
    beside = offers(total=64, used=16, untouched=32)

    assert resource_availability(beside, 16) == 1.0
    assert resource_availability(beside, 24) == 1.0 - 24 / 64


def test_breaking_up_a_node_counts_where_one_node_is_enough() -> None:
    assert resource_availability(offers(used=24, node=offers(total=8)), 4) == 0.5
    assert resource_availability(offers(used=24, node=offers(total=8, used=4)), 4) == 1.0


def test_the_fewest_leaves_side_by_side_are_in_line() -> None:
    assert topology_alignment(offers(span=2), 2) == 1.0


@pytest.mark.parametrize(
    ("span", "spines", "expected"), [(4, 1, 0.5), (2, 2, 0.5), (1, 1, 1.0)], ids=["gaps", "two spines", "fewer"]
)
def test_more_leaves_gaps_and_spines_are_out_of_line(span: int, spines: int, expected: float) -> None:
    assert topology_alignment(offers(span=span, spines=spines), 2) == expected


def test_utilization_is_what_is_in_use_with_the_group() -> None:
    assert domain_utilization(offers(used=8), 16) == 0.75


def test_utilization_of_one_node_is_the_mean_of_node_and_leaf() -> None:
    assert domain_utilization(offers(used=12, node=offers(total=8, used=4)), 4) == (0.5 + 1.0) / 2


def test_nearly_full_leaves_are_filled_first() -> None:
    bench = Bench(fabric(1, 2), busy({"s0-l1-n0": 8, "s0-l0-n0": 1}), only(domainUtilization=1))

    assert score_of(bench, 2, leaf=1) == pytest.approx(75.0)
    assert score_of(bench, 2, leaf=0) == pytest.approx(100 * 17 / 32)


def test_the_history_of_a_leaf_counts() -> None:
    bench = Bench(fabric(1, 2), args=only(historicalPerformance=1))
    bench.plugin._memory.history.observe("spine-0/leaf-1", ran=False)

    assert score_of(bench, 2, leaf=0) == pytest.approx(100.0)
    assert score_of(bench, 2, leaf=1) == pytest.approx(80.0)


def test_the_score_is_a_hundred_times_the_weighted_sum() -> None:
    found = score(offers(span=2, history=0.5), 16, 1, ScoringWeights(0.1, 0.2, 0.3, 0.4))

    assert found == pytest.approx(100 * (0.1 * 0.5 + 0.2 * 0.5 + 0.3 * 0.5 + 0.4 * 0.5))


def test_the_default_weights_are_those_of_the_readme() -> None:
    assert ScoringWeights().values == (0.4, 0.3, 0.2, 0.1)


def test_placements_of_others_are_scored_by_the_leaves_that_the_gang_would_take() -> None:
    bench = Bench(fabric(2, 2), busy(whole("s1-l0", nodes=2)))
    group, layout = bench.gang(8), bench.cache.nodes

    def anywhere(*leaves: str) -> float:
        rows = [row for row, name in enumerate(layout.names) if name.rpartition("-n")[0] in leaves]
        return bench.score(group, Placement("rack", np.array(rows)))

    assert anywhere("s0-l0", "s0-l1") == pytest.approx(100.0)
    assert anywhere("s0-l0", "s1-l1") < anywhere("s0-l0", "s0-l1")


def test_a_placement_in_no_leaf_scores_less_than_one_in_a_leaf() -> None:
    bench = Bench([*fabric(1, 1), *(make_node(f"loose-{n}") for n in range(4))])
    group = bench.gang(4)

    in_leaf = bench.score(group, Placement("leaf", np.arange(4)))
    nowhere = bench.score(group, Placement("nowhere", np.arange(4, 8)))

    assert nowhere < in_leaf - 20
