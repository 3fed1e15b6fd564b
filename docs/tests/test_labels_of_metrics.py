"""The number of series is bounded: the page of metrics says for each label why, and no label names pods or texts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.groups.strategy import PLACEMENT_STRATEGY, STRATEGIES, strategy_of
from gangline_docs import metrics
from gangline_docs.metrics import OF_CLUSTER, OF_CODE, OF_CONFIGURATION, Described

ROOT = Path(__file__).parents[2]
KINDS = (OF_CODE, OF_CONFIGURATION, OF_CLUSTER)
OF_DOMAINS = {
    "topology_domain_fragmentation_ratio",
    "topology_domain_nodes",
    "topology_domain_ready_nodes",
    "topology_domain_utilization_ratio",
    "topology_gpu_utilization_ratio",
    "topology_node_gpu_allocated",
    "topology_node_health_status",
    "topology_scheduler_domain_fragmentation_ratio",
}
OF_RESERVATIONS = {
    "gangline_reservation_start_time_seconds",
    "gangline_reserved_gpus",
    "gangline_reserved_nodes",
}


def every() -> list[Described]:
    return [*metrics.of_scheduler(), *metrics.of_webhook(), *metrics.of_agent()]


@pytest.mark.parametrize("metric", every(), ids=lambda each: each.name)
def test_each_label_of_a_metric_is_bounded_and_the_page_says_by_what(metric: Described) -> None:
    assert [label for label in metric.labels if not any(label in kind for kind in KINDS)] == []


def test_the_page_tells_of_no_label_that_no_metric_has() -> None:
    listed = [label for kind in KINDS for label in kind]

    assert len(set(listed)) == len(listed)
    assert set(listed) == {label for each in every() for label in each.labels}


def test_the_metrics_of_the_scheduler_that_grow_with_the_cluster_are_these() -> None:
    growing = {each.name for each in metrics.of_scheduler() if any(label in OF_CLUSTER for label in each.labels)}

    assert growing == OF_DOMAINS | OF_RESERVATIONS


def test_what_the_scheduler_was_doing_is_a_word_in_the_code() -> None:
    calls = [
        node
        for path in (ROOT / "framework" / "gangline").rglob("*.py")
        if "_metrics.fault" in (text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fault"
        if ast.unparse(node.func).endswith("_metrics.fault")
    ]

    assert len(calls) > 4
    assert all(isinstance(call.args[0], ast.Constant) for call in calls)


@given(st.text())
def test_whatever_a_workload_asks_for_has_one_of_three_strategies(text: str) -> None:
    assert strategy_of({PLACEMENT_STRATEGY: text}) in STRATEGIES
