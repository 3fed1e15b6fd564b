"""The live devices answer as an allocator that is made from scratch, whatever has changed before."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.dra import Allocator, DeviceTable, Selectors, Standing, Usage
from gangline.dra.live import NO_DEVICES, Devices
from gangline.model import (
    Device,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimAllocation,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from gangline.testing import cluster, make_node

CLASS = DeviceClass(ObjectMeta("gpu"))


def claim(count: int, mode: str = "ExactCount") -> ResourceClaim:
    exactly = ExactDeviceRequest("gpu", allocation_mode=mode, count=count)
    return ResourceClaim(ObjectMeta("c", "default"), ResourceClaimSpec(DeviceClaim([DeviceRequest("r", exactly)])))


def offer(node: int, count: int) -> ResourceSlice:
    name = f"n{node}"
    devices = [Device(f"d{number}") for number in range(count)]
    return ResourceSlice(
        ObjectMeta(name), ResourceSliceSpec("driver", ResourcePool(name, 1, 1), node_name=name, devices=devices)
    )


STEPS = st.lists(st.tuples(st.sampled_from(("slice", "take", "give", "gone")), st.integers(0, 2), st.integers(0, 3)))


@settings(deadline=None, max_examples=60)
@given(STEPS)
def test_answers_are_those_of_a_fresh_allocator(steps: list[tuple[str, int, int]]) -> None:
    nodes = cluster([make_node(f"n{row}") for row in range(3)]).nodes.view()
    devices = Devices(lambda: nodes)
    devices.class_changed(None, CLASS)
    slices: dict[int, ResourceSlice] = {}
    taken: dict[Any, ResourceClaimAllocation] = {}
    claims = [claim(1), claim(2), claim(0, "All")]
    kept = {each: devices.codes(devices.asked([claims[each]]), nodes).copy() for each in range(3)}
    position = devices.changes.position
    for what, node, number in steps:
        if what == "slice":
            devices.slice_changed(slices.get(node), offer(node, number))
            slices[node] = offer(node, number)
        elif what == "gone" and node in slices:
            devices.slice_changed(slices.pop(node), None)
        elif what == "take":
            found = devices.allocate(devices.asked([claims[0]]), [claims[0]], node).allocations
            if found is not None:
                taken[number] = found[0]
                devices.take(number, found[0])
        elif what == "give":
            taken.pop(number, None)
            devices.give(number)
        table = DeviceTable([slices[each] for each in sorted(slices)], nodes)
        usage = Usage([ResourceClaim(ObjectMeta(""), status=ResourceClaimStatus(each)) for each in taken.values()])
        fresh = Allocator(Standing(table, usage), {"gpu": CLASS}, Selectors(table))
        changed = devices.changes.since(position, 1000)
        rows = np.arange(3) if changed is None else changed[0]
        position = devices.changes.position
        for index, each in enumerate(claims):
            asked = devices.asked([each])
            expected = [fresh.ask([each]).on(row, f"n{row}") for row in range(3)]
            if len(rows):
                kept[index][rows] = devices.codes(asked, nodes.at(rows))
            assert (kept[index][:3] == 0).tolist() == [verdict.allocations is not None for verdict in expected]
            assert [devices.allocate(asked, [each], row).allocations for row in range(3)] == [
                verdict.allocations for verdict in expected
            ]
        room = devices.room(devices.asked([claims[1]]), nodes)
        assert room is not None
        free = [sum(not standing_taken for standing_taken in _taken(table, usage, row)) for row in range(3)]
        assert room[:3].tolist() == [count // 2 for count in free]


def _taken(table: DeviceTable, usage: Usage, node: int) -> list[bool]:
    rows = np.flatnonzero(table.node == node).tolist()
    return [table.ids[row] in usage.taken for row in rows]


def test_a_refusal_is_told_in_the_words_of_kube_scheduler() -> None:
    nodes = cluster([make_node("n0")]).nodes.view()
    devices = Devices(lambda: nodes)
    devices.class_changed(None, CLASS)
    asked = devices.asked([claim(1)])
    (code, *_) = devices.codes(asked, nodes).tolist()
    assert devices.reason(asked, code) == (NO_DEVICES, False)
