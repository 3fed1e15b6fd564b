"""Every question to the live devices ends: at its deadline there is a certain answer, whatever slices say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from gangline.deadline import Deadline
from gangline.dra import kept
from gangline.dra.live import Devices
from gangline.errors import InvalidObject
from gangline.model.resource_slices import ResourceSlice
from gangline.state.node_view import NodeView
from gangline.testing import cluster, make_node

from .offers import GPU, claim, device, exactly, offer
from .test_live import UNCOUNTED, device_class

NODES = [f"n{number}" for number in range(30)]
OWN = [
    offer(f"s-{node}", [device("d", attributes={"uuid": node, "root": "x", "id": node})], pool=node, nodeName=node)
    for node in NODES
]
"""A device on each node, of which no expression that reads the uuid finds two alike."""
UNLIKE = {"cel": {"expression": f'device.attributes["{GPU}"].uuid != "z"'}}


def live(slices: Iterable[ResourceSlice], weighs: bool = False) -> tuple[Devices, NodeView]:
    """Devices that nobody has asked for yet, and a view over all nodes."""
    cache = cluster([make_node(name) for name in NODES])
    devices = Devices(lambda: cache.nodes.view())
    if weighs:
        devices.expect_weighing()
    devices.class_changed(None, device_class())
    for each in slices:
        devices.slice_changed(None, each)
    return devices, cache.nodes.view()


class Looks:
    """A clock that goes on a second with each look."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self) -> float:
        self.number += 1
        return float(self.number)


def after(seconds: float) -> tuple[Deadline, Looks]:
    """A deadline after so many looks at its clock."""
    looks = Looks()
    return Deadline(seconds, looks), looks


def partitions() -> list[ResourceSlice]:
    """A pool on each node whose devices consume counters, no two pools alike."""
    found = []
    for number, node in enumerate(NODES):
        counters = [{"name": "c", "counters": {"memory": {"value": str(100 + number)}}}]
        consumed = [{"counterSet": "c", "counters": {"memory": {"value": "7"}}}]
        pool: dict[str, Any] = {"pool": node, "nodeName": node, "slices": 2, "driver": "gpu.example.com"}
        found.append(offer(f"t-{node}", [], sharedCounters=counters, **pool))
        found.append(offer(f"s-{node}", [device(f"d{i}", consumesCounters=consumed) for i in range(3)], **pool))
    return found


ASKED = [claim(exactly(selectors=[UNLIKE]))]
Ask = Callable[[Devices, NodeView, Deadline], object]


@pytest.mark.parametrize(
    ("slices", "ask", "answer", "is_same_later"),
    [
        (OWN, lambda d, n, t: d.may_have(d.asked(ASKED), n.rows, t).all(), True, True),
        (OWN, lambda d, n, t: d.room(d.asked(ASKED), n, t) is None, True, False),
        (OWN, lambda d, n, t: d.losses(d.asked(ASKED), n, deadline=t).any(), False, False),
        (OWN, lambda d, n, t: d.choices(d.asked(ASKED), n, t), [], False),
        (partitions(), lambda d, n, t: d.gpus(n, t)[0].any(), False, False),
        (
            partitions(),
            lambda d, n, t: d.losses(d.asked([claim(exactly())]), n, deadline=t).any(),
            False,
            False,
        ),
    ],
    ids=["may_have", "room", "losses", "choices", "gpus", "losses-of-partitions"],
)
def test_a_question_ends_at_its_deadline_with_a_certain_answer_and_goes_on_at_the_next(
    slices: list[ResourceSlice], ask: Ask, answer: object, is_same_later: bool
) -> None:
    devices, nodes = live(slices)
    deadline, looks = after(5)

    assert ask(devices, nodes, deadline) == answer
    assert looks.number <= 8  # nothing was done after the time had passed

    for _ in range(10):  # each try goes on where the one before has ended
        ask(devices, nodes, after(8)[0])
    later = ask(devices, nodes, after(2)[0])
    assert later != answer or is_same_later


def test_devices_of_a_class_are_counted_until_the_deadline() -> None:
    devices, nodes = live(OWN)
    with patch.object(kept, "SECONDS", 0.0):  # else they are counted before somebody asks
        devices.class_changed(device_class(), device_class(UNLIKE["cel"]["expression"]))

    assert devices.stock("gpu", nodes, after(5)[0]).total.sum() == 0
    assert devices.stock("gpu", nodes).total.sum() == len(NODES)


def test_nodes_that_are_looked_at_one_by_one_may_have_devices_when_time_is_over() -> None:
    devices, nodes = live(OWN)
    asked = devices.asked([claim(exactly(2), constraints=UNCOUNTED)])  # counting cannot tell
    assert not devices.may_have(asked, nodes.rows).any()

    found = devices.may_have(asked, nodes.rows, after(6)[0])

    assert 0 < np.count_nonzero(found) < len(NODES)


def test_choices_that_were_made_before_the_deadline_are_kept() -> None:
    """Only a search can tell which alternatives a node chooses, and no two nodes are alike."""
    offered = [
        offer(
            f"s-{node}",
            [device(f"d{i}", attributes={"root": "x", "id": f"{i}", "uuid": f"{node}-{i}"}) for i in range(1 + place)],
            pool=node,
            nodeName=node,
        )
        for place, node in enumerate(NODES)
    ]
    either = {"firstAvailable": [{"name": "two", **exactly(2)}, {"name": "one", **exactly()}]}
    devices, nodes = live(offered)
    asked = devices.asked([claim(either, constraints=UNCOUNTED)])
    devices.codes(asked, nodes)

    def chosen(deadline: Deadline | None = None) -> list[int]:
        return sorted(place for _, places in devices.choices(asked, nodes, deadline) for place in places.tolist())

    assert 0 < len(chosen(after(4)[0])) < len(NODES)
    while len(before := chosen(after(4)[0])) < len(NODES):
        assert len(chosen(after(4)[0])) > len(before)
    assert {names: places.tolist() for names, places in devices.choices(asked, nodes)} == {
        frozenset({(0, "r0/one")}): [0],
        frozenset({(0, "r0/two")}): list(range(1, len(NODES))),
    }


def test_losses_with_chosen_alternatives_are_zero_after_the_deadline_and_are_not_kept() -> None:
    devices, nodes = live(partitions())
    either = {"firstAvailable": [{"name": "one", **exactly()}, {"name": "two", **exactly(2)}]}
    asked, two = devices.asked([claim(either)]), frozenset({(0, "r0/two")})

    assert not devices.losses(asked, nodes, two, after(5)[0]).any()
    assert devices.losses(asked, nodes, two).all()


def test_what_is_not_made_beforehand_in_time_is_made_when_it_is_asked_for() -> None:
    asked = [claim(exactly(selectors=[UNLIKE]))], [claim(exactly())]
    fresh, nodes = live([*partitions(), *OWN])
    with patch.object(kept, "MOST_WAITING", 0), patch.object(kept, "SECONDS", 0.0):
        devices, _ = live([*partitions(), *OWN], weighs=True)
        devices.class_changed(device_class(), device_class(UNLIKE["cel"]["expression"]))
    fresh.class_changed(device_class(), device_class(UNLIKE["cel"]["expression"]))

    for each in asked:
        assert np.array_equal(devices.codes(devices.asked(each), nodes), fresh.codes(fresh.asked(each), nodes))
        assert np.array_equal(devices.losses(devices.asked(each), nodes), fresh.losses(fresh.asked(each), nodes))
    assert np.array_equal(devices.gpus(nodes)[1], fresh.gpus(nodes)[1])


def test_more_alternatives_than_two_claims_may_have_are_refused() -> None:
    many = [
        claim(*[{"firstAvailable": [{"name": f"a{i}", **exactly()} for i in range(8)]} for _ in range(32)])
        for _ in range(3)
    ]
    devices, _ = live(OWN)

    devices.asked(many[:2])
    with pytest.raises(InvalidObject, match="768 alternatives together, and at most 512 are read"):
        devices.asked(many)


def test_a_device_that_somebody_without_a_claim_has_is_not_given_and_takes_no_counters() -> None:
    devices, nodes = live(partitions())
    asked = devices.asked([claim(exactly())])
    supply = devices.supply([asked], len(NODES))
    assert supply is not None
    assert supply.free[0] == 3
    everything = [("gpu.example.com", "n0", f"d{number}") for number in range(3)]

    devices.close(everything)
    codes = devices.codes(asked, nodes)
    assert codes[:2].tolist() == [1, 0]
    assert devices.may_have(asked, nodes.rows[:1]).all()
    assert devices.supply([asked], len(NODES)) is None
    assert not any(map(devices.is_used, everything))
    devices.open(everything[:1])

    assert devices.codes(asked, nodes)[0] == 0
    allocations = devices.allocate(asked, [claim(exactly())], 0).allocations
    assert allocations is not None
    assert [each.device for each in allocations[0].devices.results] == ["d0"]
