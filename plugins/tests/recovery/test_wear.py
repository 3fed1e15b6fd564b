"""Losses count against nodes, and less with time."""

from __future__ import annotations

import pytest

from gangline.testing import cluster, make_node
from gangline_plugins.recovery.wear import NodeWear


def test_each_loss_counts_half_as_much_after_each_half_life() -> None:
    nodes = cluster([make_node("a"), make_node("b"), make_node("c")]).nodes.view()
    wear = NodeWear(100.0)
    wear.failed("a", 0.0)
    wear.failed("b", 0.0)
    wear.failed("b", 0.0)
    wear.failed("gone", 0.0)

    assert wear.scores(nodes, 0.0).tolist() == pytest.approx([50.0, 100 / 3, 100.0])
    assert wear.scores(nodes, 100.0).tolist() == pytest.approx([100 / 1.5, 50.0, 100.0])
    wear.failed("c", 5000.0)
    assert wear.scores(nodes, 5000.0).tolist() == pytest.approx([100.0, 100.0, 50.0])


def test_without_a_half_life_nothing_counts() -> None:
    wear = NodeWear(0.0)
    wear.failed("a", 0.0)

    assert not wear.any
