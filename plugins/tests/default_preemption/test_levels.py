"""The number of pods of each priority on each node."""

from __future__ import annotations

import pytest

from gangline.testing import cluster, make_node, make_pod
from gangline_plugins.default_preemption.levels import PriorityLevels


@pytest.mark.parametrize("rows", [[0, 3, 0], [100, 2]], ids=["some twice", "beyond those before"])
def test_pods_that_are_counted_at_once_count_as_one_by_one(rows: list[int]) -> None:
    cache = cluster([make_node("n")])
    pods = [cache.record(make_pod(f"p{number}", priority=7)) for number in range(len(rows))]
    at_once, one_by_one = PriorityLevels(), PriorityLevels()

    at_once.add_all(pods, rows)
    for pod, row in zip(pods, rows, strict=True):
        one_by_one.add(pod, row)
    found = [levels.below(8, 128).tolist() for levels in (at_once, one_by_one)]
    for pod, row in zip(pods, rows, strict=True):
        at_once.remove(pod, row)

    assert found[0] == found[1] and found[0].count(True) == len(set(rows))
    assert not at_once.below(8, 128).any()
