"""TaintToleration."""

from __future__ import annotations

import pytest

from gangline.model import Toleration
from gangline.testing import cluster, make_node, make_pod, run_filter, run_score
from gangline_plugins.taint_toleration import Args, TaintToleration

CACHE = cluster(
    [
        make_node("free"),
        make_node("gpu", taints=["gpu=h100:NoSchedule"]),
        make_node("down", taints=["down:NoExecute"]),
        make_node("soft", taints=["old:PreferNoSchedule"]),
        make_node("softer", taints=["old:PreferNoSchedule", "slow=yes:PreferNoSchedule"]),
    ]
)
TAINTED = ("node(s) had untolerated taint(s)",)


def test_nodes_with_hard_taints_keep_pods_away() -> None:
    assert run_filter(TaintToleration, make_pod("p"), CACHE) == {
        "free": (),
        "gpu": TAINTED,
        "down": TAINTED,
        "soft": (),
        "softer": (),
    }


@pytest.mark.parametrize("kinds", [1, 8, 9, 40])
def test_verdicts_are_the_same_for_few_and_for_many_kinds_of_taints(kinds: int) -> None:
    nodes = [make_node(f"n{i}", taints=[f"kind-{i % kinds}:NoSchedule"] if i % 3 else []) for i in range(120)]
    pod = make_pod("p", tolerations=[Toleration(key="kind-0", operator="Exists")])

    verdicts = run_filter(TaintToleration, pod, cluster(nodes))

    assert [name for name, said in verdicts.items() if said] == [f"n{i}" for i in range(120) if i % 3 and i % kinds]


def test_a_pod_fits_where_it_tolerates_every_hard_taint() -> None:
    pod = make_pod("p", tolerations=[Toleration(key="gpu", value="h100"), Toleration(key="down", operator="Exists")])

    assert not any(run_filter(TaintToleration, pod, CACHE).values())


def test_fewer_soft_taints_are_better() -> None:
    scores = run_score(TaintToleration, make_pod("p"), CACHE)

    assert scores == {"free": 100.0, "soft": 50.0, "softer": 0.0}


@pytest.mark.parametrize(
    ("effect", "softer"), [("PreferNoSchedule", 100.0), ("", 100.0), ("NoSchedule", 0.0)], ids=["soft", "any", "hard"]
)
def test_a_tolerated_soft_taint_does_not_count(effect: str, softer: float) -> None:
    pod = make_pod("p", tolerations=[Toleration(operator="Exists", effect=effect)])

    assert run_score(TaintToleration, pod, CACHE)["softer"] == softer


def test_numbers_are_compared_where_that_is_switched_on() -> None:
    cache = cluster([make_node("a", taints=["level=7:NoSchedule"])])
    pod = make_pod("p", tolerations=[Toleration(key="level", operator="Gt", value="5")])

    assert run_filter(TaintToleration, pod, cache) == {"a": TAINTED}
    assert run_filter(TaintToleration, pod, cache, Args(enable_comparison_operators=True)) == {"a": ()}
