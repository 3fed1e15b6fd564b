"""The ages of reports are looked at only when one may have become too old, or may be awaited no longer."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline import resources, rfc3339
from gangline.testing import Cache, make_node
from gangline_plugins.gpu.devices import DeviceTable, device_table
from gangline_plugins.gpu.feasibility import AWAITED, DeviceLimits, Feasibility
from gangline_plugins.gpu.wants import Want

from .gpu_cases import gpu_cluster, report

NOW = 1000.0
STALE_AFTER = 50.0
LIMITS = DeviceLimits(STALE_AFTER)
PLAIN = Want(1, implicit=True)
NODES = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("reports"), NODES),
        st.tuples(st.just("loses its report"), NODES),
        st.tuples(st.just("goes"), NODES),
        st.tuples(st.just("comes"), NODES),
        st.tuples(st.just("time passes"), st.sampled_from([0.05, 1.0, 49.0, STALE_AFTER, AWAITED, -1.0])),
    ),
    max_size=16,
)


def nodes_with_reports() -> Cache:
    reports = [report(f"n{i}", heartbeat=rfc3339(NOW - 10 * i)) for i in range(3)]
    return gpu_cluster(reports, [], [], [make_node(f"n{i}", gpus=8) for i in range(4)])


def happens(cache: Cache, step: str, node: int, now: float) -> None:
    name, statuses = f"n{node}", cache.store(resources.GPU_NODE_STATUSES)
    if step == "reports":
        statuses.upsert(report(name, heartbeat=rfc3339(now)))
    elif step == "loses its report":
        statuses.remove("", name)
    elif step == "goes":
        cache.remove_node(name)
    else:
        cache.upsert_node(make_node(name, gpus=8))


def verdicts(feasibility: Feasibility, cache: Cache) -> list[int]:
    view = cache.nodes.view()
    found: list[int] = np.where(view.alive, feasibility.evaluate(PLAIN, view).codes, 0).tolist()
    return found


@given(STEPS)
def test_verdicts_are_those_of_a_look_at_all_ages(steps: Any) -> None:
    cache, now = nodes_with_reports(), NOW
    keeping = Feasibility(device_table(cache), LIMITS)
    keeping.look(now)
    for step, what in steps:
        before, noted = verdicts(keeping, cache), keeping.aged.position
        if step == "time passes":
            now += what
        else:
            happens(cache, step, what, now)
        looking = Feasibility(device_table(cache), LIMITS)
        looking.look(now)
        if step == "time passes" and 0 <= what < 0.1:  # no look follows so soon
            continue
        keeping.look(now)

        after = verdicts(keeping, cache)

        assert after == verdicts(looking, cache)
        if step == "time passes":
            changed = {row for row, (was, now_is) in enumerate(zip(before, after, strict=True)) if was != now_is}
            noticed = keeping.aged.since(noted, len(before))
            assert noticed is None or changed <= set(noticed[0].tolist())


class _Read:
    """The table, with a count of how often one of its columns is read that is read for the ages of all reports."""

    def __init__(self, table: DeviceTable) -> None:
        self._table, self.reads = table, 0

    @property
    def columns(self) -> Any:
        return self

    @property
    def lost(self) -> Any:
        self.reads += 1
        return self._table.columns.lost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table if hasattr(self._table, name) else self._table.columns, name)


def test_the_ages_are_read_again_only_when_one_may_have_changed() -> None:
    cache = nodes_with_reports()
    table: Any = _Read(device_table(cache))
    feasibility = Feasibility(table, LIMITS)

    def looks(now: float) -> bool:
        before = table.reads
        feasibility.look(now)
        return bool(table.reads > before)

    assert [looks(NOW + after) for after in (0, 1, 20, 30)] == [True, False, False, False]
    assert [looks(NOW + after) for after in (31, 39)] == [True, False]  # the third report is too old
    happens(cache, "reports", 3, NOW + 39)
    assert looks(NOW + 39.01)
    happens(cache, "goes", 3, NOW + 39)
    assert looks(NOW + 39.02)
