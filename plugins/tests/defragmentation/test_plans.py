"""What is moved, where to, and what stays; nothing is changed by planning."""

from __future__ import annotations

import numpy as np
import pytest

from gangline import InvalidObject
from gangline_plugins.defragmentation.costs import Costs

from .moving_cases import HOUR, Fragmented, moved


def two_leaves() -> Fragmented:
    """Leaf 0 with one pod on a node, leaf 1 with one on each node: a whole leaf is not to be had."""
    cluster = Fragmented()
    cluster.occupy("lonely", "s0-l0-n1")
    for n in range(4):
        cluster.occupy(f"busy-{n}", f"s0-l1-n{n}")
    return cluster


def test_the_cheapest_leaf_is_freed_for_a_gang_that_waits() -> None:
    plan = two_leaves().wants(4)

    assert moved(plan) == {"lonely": "s0-l1"}
    assert plan.frees == [f"s0-l0-n{n}" for n in range(4)]
    assert plan.cost == pytest.approx(HOUR + 60.0)
    assert plan.worth == 32 * 3600.0


def test_planning_changes_nothing() -> None:
    cluster = two_leaves()
    before = cluster.cache.nodes.requested.copy()

    cluster.wants(4)

    assert np.array_equal(before, cluster.cache.nodes.requested)
    assert {pod.node_name for pod in cluster.cache.pods.values()} == {"s0-l0-n1", *(f"s0-l1-n{n}" for n in range(4))}


def test_no_move_is_planned_where_none_is_needed() -> None:
    cluster = Fragmented()
    cluster.occupy("lonely", "s0-l0-n1")

    plan = cluster.wants(4)

    assert plan.is_met and not plan.moves
    assert plan.message == "no move is needed: the group fits as things are"


def test_a_leaf_with_recent_checkpoints_is_cheaper_than_one_without() -> None:
    cluster = Fragmented(leaves=3)
    notes = {"gangline.dev/checkpoint-interval": "50m"}
    for n in range(4):
        cluster.occupy(f"plain-{n}", f"s0-l0-n{n}")
        cluster.occupy(f"saved-{n}", f"s0-l1-n{n}", annotations=notes)
        cluster.occupy(f"other-{n}", f"s0-l2-n{n}")

    plan = cluster.wants(4)

    assert set(moved(plan)) == {f"saved-{n}" for n in range(4)}
    assert plan.cost == pytest.approx(4 * (600.0 + 60.0))


def test_the_last_checkpoint_counts_before_the_interval() -> None:
    cluster = Fragmented()
    for n in range(4):
        cluster.occupy(f"busy-{n}", f"s0-l1-n{n}")
    notes = {"gangline.dev/checkpoint-interval": "7m", "gangline.dev/last-checkpoint": "2027-01-15T07:59:00Z"}
    cluster.occupy("saved", "s0-l0-n0", annotations=notes)

    assert cluster.wants(4).cost == pytest.approx(60.0 + 60.0)


def test_pods_of_higher_priority_cost_more() -> None:
    cluster = Fragmented()
    cluster.occupy("important", "s0-l0-n0", priority=10)
    cluster.occupy("usual", "s0-l1-n0")

    assert set(moved(cluster.wants(4, priority=10))) == {"usual"}


def test_a_gang_moves_as_a_whole() -> None:
    cluster = Fragmented(leaves=3)
    for leaf in (1, 2):
        for n in range(4):
            cluster.occupy(f"held-{leaf}-{n}", f"s0-l{leaf}-n{n}", annotations={"gangline.dev/never-move": "true"})
    cluster.run_gang("small", ["s0-l0-n0", "s0-l1-n0"], gpus=4)

    plan = cluster.wants(4)

    assert set(moved(plan)) == {"small-0", "small-1"}
    assert [move.name for move in plan.moves] == ["gang default/small"]
    assert not {step.destination for step in plan.steps} & set(plan.frees)


def test_an_elastic_gang_lends_the_members_that_it_can_do_without() -> None:
    cluster = Fragmented()
    for n in range(4):
        cluster.occupy(f"held-{n}", f"s0-l1-n{n}", annotations={"gangline.dev/never-move": "true"})
    cluster.run_gang("small", ["s0-l0-n0", "s0-l1-n0", "s0-l1-n1"], min_member=2)

    assert set(moved(cluster.wants(4))) == {"small-0"}


@pytest.mark.parametrize(
    ("annotations", "more", "why"),
    [
        pytest.param({"gangline.dev/never-move": "true"}, {}, "gangline.dev/never-move is set", id="never-move"),
        pytest.param(
            {"gangline.dev/min-runtime": "2h"}, {}, "younger than its gangline.dev/min-runtime", id="min-runtime"
        ),
        pytest.param({}, {"owner": ""}, "no controller would make it anew", id="nobody's"),
        pytest.param({}, {"kind": "DaemonSet"}, "belongs to its node (DaemonSet)", id="daemon"),
        pytest.param({}, {"scheduler_name": "other"}, "placed by another scheduler, other", id="other-scheduler"),
        pytest.param({}, {"priority": 5}, "of higher priority than what waits", id="priority"),
    ],
)
def test_protected_pods_stay_and_it_is_said_why(annotations: dict[str, str], more: dict[str, object], why: str) -> None:
    cluster = two_leaves()
    cluster.occupy("held", "s0-l0-n0", annotations=annotations, **more)  # type: ignore[arg-type]  # cases name fields

    plan = cluster.wants(4)

    assert set(moved(plan)) == {f"busy-{n}" for n in range(4)}
    assert plan.frees == [f"s0-l1-n{n}" for n in range(4)]
    alone = Fragmented(leaves=1)
    alone.occupy("held", "s0-l0-n0", annotations=annotations, **more)  # type: ignore[arg-type]  # cases name fields
    refused = alone.wants(4)
    assert refused.message == "no moves make room for the group"
    assert [(each.pod, each.why) for each in refused.protected] == [("default/held", why)]


def test_a_disruption_budget_that_allows_nothing_keeps_its_pods() -> None:
    cluster = two_leaves()
    cluster.occupy("kept", "s0-l0-n0", labels={"app": "kept"})
    cluster.budget(0, app="kept")

    assert set(moved(cluster.wants(4))) == {f"busy-{n}" for n in range(4)}


def test_a_budget_is_spread_over_batches() -> None:
    cluster = Fragmented()
    for n in range(3):
        cluster.occupy(f"kept-{n}", f"s0-l0-n{n}", labels={"app": "kept"})
    for n in range(4):
        cluster.occupy(f"held-{n}", f"s0-l1-n{n}", annotations={"gangline.dev/never-move": "true"})
    cluster.budget(1, app="kept")

    plan = cluster.wants(4)

    assert [len(batch) for batch in plan.batches] == [1, 1, 1]


def test_at_most_so_many_move_at_once() -> None:
    cluster = Fragmented(most_moves=3)
    for n in range(4):
        cluster.occupy(f"busy-{n}", f"s0-l0-n{n}")
        cluster.occupy(f"held-{n}", f"s0-l1-n{n}", annotations={"gangline.dev/never-move": "true"})

    assert [len(batch) for batch in cluster.wants(4).batches] == [3, 1]


def test_a_plan_that_is_not_worth_its_cost_is_not_proposed() -> None:
    cluster = Fragmented(worth_seconds=200.0)
    for leaf in range(2):
        for n in range(4):
            cluster.occupy(f"busy-{leaf}-{n}", f"s0-l{leaf}-n{n}")

    plan = cluster.wants(4)

    assert not plan.moves
    assert plan.message == "not worth it: 14,640 GPU-seconds would be done again for 6,400, which is not 2 times it"


def test_nothing_is_planned_where_the_rest_has_no_room() -> None:
    cluster = Fragmented()
    for leaf in range(2):
        for n in range(4):
            cluster.occupy(f"busy-{leaf}-{n}", f"s0-l{leaf}-n{n}", gpus=8)

    assert cluster.wants(4).message == "no moves make room for the group"


def test_a_gang_that_does_not_care_where_gets_whole_nodes() -> None:
    cluster = Fragmented(leaves=1)
    for n in range(4):
        cluster.occupy(f"busy-{n}", f"s0-l0-n{n}", gpus=2)

    plan = cluster.wants(3, required="")

    assert len(plan.steps) == 3 and len(plan.frees) == 3
    assert {step.source for step in plan.steps} == set(plan.frees)


def test_so_many_leaves_are_freed() -> None:
    cluster = Fragmented(leaves=4)
    for leaf, pods in enumerate((3, 1, 2, 4)):
        for n in range(pods):
            cluster.occupy(f"busy-{leaf}-{n}", f"s0-l{leaf}-n{n}")

    plan = cluster.planner.for_domains("leaf", 2)

    assert set(moved(plan)) == {"busy-1-0", "busy-2-0", "busy-2-1"}
    assert set(moved(plan).values()) <= {"s0-l0", "s0-l3"}


def test_no_leaf_is_freed_where_enough_are_complete() -> None:
    cluster = Fragmented(leaves=3)
    cluster.occupy("busy", "s0-l0-n0")

    plan = cluster.planner.for_domains("leaf", 2)

    assert plan.is_met and plan.message == "no move is needed: 2 are complete"


def test_a_level_that_there_is_not_is_named() -> None:
    with pytest.raises(InvalidObject, match="level: 'row': is no level of the topology; there are spine, leaf, host"):
        Fragmented().planner.for_domains("row", 1)


@pytest.mark.parametrize(
    ("annotation", "value", "said"),
    [
        pytest.param("checkpoint-interval", "-5m", "expected a duration", id="negative"),
        pytest.param("checkpoint-interval", "often", "expected a duration", id="no-duration"),
        pytest.param("checkpoint-interval", "0s", "has to be longer than nothing", id="zero"),
        pytest.param("last-checkpoint", "yesterday", "expected a time", id="no-time"),
        pytest.param("last-checkpoint", "2026-01-01T00:00:00", "expected a time", id="no-zone"),
        pytest.param("never-move", "yes", 'expected "true" or "false"', id="no-flag"),
        pytest.param("min-runtime", "-1h", "expected a duration", id="negative-runtime"),
    ],
)
def test_a_pod_with_an_annotation_that_cannot_be_read_stays_and_the_others_move(
    annotation: str, value: str, said: str
) -> None:
    cluster = two_leaves()
    odd = cluster.occupy("odd", "s0-l1-n0", annotations={f"gangline.dev/{annotation}": value})

    plan = cluster.wants(4)

    assert "odd" not in moved(plan)
    text = Costs(cluster.handle, 0.0, 0.0, ()).why_stays(odd)
    assert text.startswith(f"pod default/odd: annotation gangline.dev/{annotation}: {value!r}: ") and said in text
