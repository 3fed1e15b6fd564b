"""For which members, claims and nodes the devices of shared claims are narrowed."""

from __future__ import annotations

import numpy as np

from gangline import PodInfo, model
from gangline.testing import cluster, make_pod
from gangline_plugins.dynamic_resources.narrowing import Narrowings

SHARED, OTHER = (model.ResourceClaim(model.ObjectMeta(name, "default", uid=name)) for name in ("shared", "other"))
RECORDS = cluster([])
FIRST, SECOND = np.array([0, 1]), np.array([2, 3])


def shown(narrowings: Narrowings, pod: PodInfo) -> dict[int, list[int]]:
    return {number: rows.tolist() for number, rows in (narrowings.of(pod, [OTHER, SHARED]) or {}).items()}


def test_blocks_of_two_gangs_for_one_claim_may_end_in_any_order() -> None:
    a, b = (RECORDS.record(make_pod(name)) for name in "ab")
    narrowings = Narrowings()
    of_a = narrowings.to([SHARED], frozenset((a.uid,)), FIRST)
    of_b = narrowings.to([SHARED], frozenset((b.uid,)), SECOND)

    of_a.__enter__()
    of_b.__enter__()
    assert shown(narrowings, a) == {1: [0, 1]} and shown(narrowings, b) == {1: [2, 3]}
    of_a.__exit__(None, None, None)
    assert shown(narrowings, a) == {} and shown(narrowings, b) == {1: [2, 3]}
    of_b.__exit__(None, None, None)
    assert shown(narrowings, a) == {} and shown(narrowings, b) == {}


def test_the_block_that_began_last_counts() -> None:
    a = RECORDS.record(make_pod("a"))
    narrowings = Narrowings()

    with narrowings.to([SHARED, OTHER], frozenset((a.uid,)), FIRST):
        with narrowings.to([SHARED], frozenset((a.uid,)), SECOND):
            assert shown(narrowings, a) == {0: [0, 1], 1: [2, 3]}
        assert shown(narrowings, a) == {0: [0, 1], 1: [0, 1]}
