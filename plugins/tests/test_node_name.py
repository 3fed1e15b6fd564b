"""NodeName."""

from __future__ import annotations

from gangline.testing import cluster, make_node, make_pod, make_runtime, run_filter
from gangline_plugins.node_name import NodeName

CACHE = cluster([make_node("a"), make_node("b")])
OTHER = ("node(s) didn't match the requested node name",)


def test_a_pod_that_names_its_node_fits_there_alone() -> None:
    assert run_filter(NodeName, make_pod("p", node="b"), CACHE) == {"a": OTHER, "b": ()}


def test_a_pod_that_names_an_unknown_node_fits_nowhere() -> None:
    assert run_filter(NodeName, make_pod("p", node="c"), CACHE) == {"a": OTHER, "b": OTHER}


def test_a_pod_that_names_none_fits_everywhere_and_eviction_cannot_help_the_other() -> None:
    assert run_filter(NodeName, make_pod("p"), CACHE) == {"a": (), "b": ()}
    evaluator = make_runtime(CACHE, NodeName).evaluator
    assert not evaluator.diagnose(evaluator.filter(CACHE.record(make_pod("p", node="b")))).resolvable().any()
