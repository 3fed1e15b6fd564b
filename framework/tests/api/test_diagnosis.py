"""A Diagnosis counts a node for the first plugin that rejects it."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.api.cycle_state import Cycle
from gangline.api.diagnosis import Diagnosis, RejectedNodes
from gangline.state.cache import Cache
from gangline.status import Reason
from gangline.testing import make_node, make_pod

NODES = 6
COLUMNS = st.lists(st.lists(st.integers(0, 2), min_size=NODES, max_size=NODES), max_size=4)
MASKS = st.none() | st.lists(st.booleans(), min_size=NODES, max_size=NODES)


class Judge:
    """A plugin with two reasons; no removal of pods ends the second one."""

    def __init__(self, name: str) -> None:
        self.reasons = (Reason(f"{name} is full"), Reason(f"{name} is closed", resolvable=False))


@given(COLUMNS, MASKS)
def test_each_node_counts_for_the_first_plugin_that_rejects_it(
    columns: list[list[int]], mask: list[bool] | None
) -> None:
    cache = Cache()
    for number in range(NODES):
        cache.upsert_node(make_node(f"n-{number}"))
    rejections = [
        RejectedNodes(f"P{number}", Judge(f"P{number}"), np.array(codes, dtype=np.uint8))
        for number, codes in enumerate(columns)
    ]
    narrowed = None if mask is None else np.array(mask)
    pod = cache.record(make_pod("p"))
    diagnosis = Diagnosis(pod, cache.nodes.view(), Cycle(), rejections, narrowed, () if mask is None else ("Narrower",))
    firsts = [
        next(((number, codes[node]) for number, codes in enumerate(columns) if codes[node]), None)
        for node in range(NODES)
        if mask is None or mask[node]
    ]
    met = [each for each in firsts if each is not None]
    words = Counter(f"P{number} is {'full' if code == 1 else 'closed'}" for number, code in met)
    if mask is not None and (outside := mask.count(False)):
        words["node(s) didn't satisfy plugin(s) [Narrower]"] = outside

    assert [each.name for each, _ in diagnosis.first()] == [each.name for each in rejections]
    assert [int(mask.sum()) for _, mask in diagnosis.first()] == [
        sum(number == place for number, _ in met) for place in range(len(columns))
    ]
    assert diagnosis.plugins() == {f"P{number}" for number, _ in met} | ({"Narrower"} if mask is not None else set())
    assert diagnosis.counts() == words
    tally = diagnosis.tally()
    assert diagnosis.plugins(tally) == diagnosis.plugins() and diagnosis.counts(tally) == words
    assert diagnosis.message(tally) == diagnosis.message()
    assert int(diagnosis.resolvable().sum()) == sum(code == 1 for _, code in met)
