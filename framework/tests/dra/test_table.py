"""A slice that changes touches the rows of its pool, and no more of them than it has to."""

from __future__ import annotations

from typing import Any

import numpy as np

from gangline.dra import Selectors, SliceTable
from gangline.dra.table import NOWHERE
from gangline.testing import cluster, make_node

from .offers import device, offer
from .test_selecting import Counted

NODES = cluster([make_node(name) for name in "ab"]).nodes.view()
TWO = [device("d0", attributes={"model": "x"}), device("d1", attributes={"model": "y"})]


def table() -> SliceTable:
    """A pool of two devices on each of two nodes; the numbers of the slices are 0 and 1."""
    return SliceTable([offer(f"s-{node}", TWO, pool=node, nodeName=node) for node in "ab"], NODES, by_name=True)


def replace(of: SliceTable, number: int, name: str, devices: list[dict[str, Any]], **spec: Any) -> int:
    of.drop(number)
    new = of.put(offer(f"s-{name}", devices, pool=name, nodeName=name, **spec))
    of.settle(NODES)
    return new


def test_a_new_generation_of_equal_devices_changes_no_row() -> None:
    devices = table()
    Selectors(devices).verdicts(("true",))
    before, nodes_before = devices.rows.log.position, devices.touched.position

    replace(devices, 0, "a", TWO, generation=2)

    assert devices.rows.log.position == before
    assert devices.touched.since(nodes_before, 10) is not None
    assert len(devices) == 4


def test_a_device_that_changes_keeps_its_row_and_is_the_only_one_judged_again() -> None:
    devices = table()
    program = Counted(frozenset((("attributes", "gpu.example.com", "model"),)))
    selectors = Selectors(devices, lambda _: program)
    assert selectors.verdicts(("expression",)).tolist() == [1, 0, 1, 0]

    replace(devices, 0, "a", [device("d0", attributes={"model": "z"}), TWO[1]])
    verdicts = selectors.verdicts(("expression",)).tolist()
    replace(devices, 1, "b", [TWO[1] | {"name": "d0"}, TWO[1]])

    assert verdicts == [0, 0, 1, 0]
    assert selectors.verdicts(("expression",)).tolist() == [0, 0, 0, 0]
    assert program.calls == 3
    assert len(devices) == 4


def test_rows_of_a_slice_that_has_gone_are_used_again() -> None:
    devices = table()
    devices.drop(0)
    devices.settle(NODES)
    assert devices.node.tolist() == [NOWHERE, NOWHERE, 1, 1]
    assert set(devices.index) == {("gpu.example.com", "b", "d0"), ("gpu.example.com", "b", "d1")}

    devices.put(offer("s-c", TWO, pool="c", nodeName="a"))
    devices.settle(NODES)

    assert sorted(devices.node.tolist()) == [0, 0, 1, 1]
    assert len(devices) == 4


def test_only_nodes_of_the_pool_are_touched() -> None:
    devices = table()
    before = devices.touched.position

    replace(devices, 1, "b", TWO[:1])

    changed = devices.touched.since(before, 10)
    assert changed is not None and changed[0].tolist() == [1]
    assert devices.rows_on([1]).tolist() == np.flatnonzero(devices.node == 1).tolist()


def test_a_slice_that_cannot_be_read_any_more_gives_no_devices() -> None:
    devices = table()

    replace(devices, 0, "a", [device("d0", capacity={"memory": {"value": "much"}})])

    assert devices.refused.keys() == {"s-a"}
    assert devices.pools_of(0) == []
    replace(devices, 2, "a", TWO)
    assert not devices.refused
    assert len(devices.pools_of(0)) == 1
