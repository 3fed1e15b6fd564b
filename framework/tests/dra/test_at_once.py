"""Devices given at once, to one pod on each of many nodes, are those that the pods get one after the other."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.dra import standing
from gangline.dra.allocator import Allocations, Order
from gangline.model.resource_claims import ResourceClaim, ResourceClaimAllocation

from .offers import allocated, claim, device, exactly, offer
from .test_live import CLAIMS, NODES, PCIE_ROOT, ROOT, World, plain
from .test_search import RANDOM

ORDERS: tuple[Order, ...] = ("upstream", "best")


def one_by_one(world: World, claims: list[ResourceClaim], rows: list[int], order: Order) -> list[Allocations | None]:
    found = []
    for row in rows:
        asked = world.devices.asked(claims)
        found.append(world.devices.allocate(asked, claims, row, order).allocations)
        for number, allocation in enumerate(found[-1] or ()):
            world.devices.take((len(world.taken), row, number), allocation)
    return found


def at_once(world: World, claims: list[ResourceClaim], rows: list[int], order: Order) -> list[Allocations] | None:
    found = world.devices.allocate_each(world.devices.asked(claims), [claims] * len(rows), rows, order)
    news: dict[Hashable, ResourceClaimAllocation] = {
        (len(world.taken), row, number): each
        for row, allocations in zip(rows, found or (), strict=found is not None)
        for number, each in enumerate(allocations)
    }
    world.devices.take_all(news)
    return found


def columns(world: World) -> list[Any]:
    """What the columns say of the devices, and what the table says of the counters."""
    found = world.devices._current()[0]
    left = [found.left(placed) for placed in found.table.placed]
    return [found.states.tolist(), found.consumed.tolist(), left, found.usage.taken, found.usage.consumed]


def taken(name: str, pool: str) -> ResourceClaimAllocation:
    found = allocated(name, pool=pool).status.allocation
    assert found is not None
    return found


def worlds(seed: int) -> tuple[World, World]:
    made = World(), World()
    for world in made:
        random = Random(seed)
        kinds = [random.getrandbits(32) for _ in range(random.randint(1, 3))]
        for name in NODES:
            world.publish(Random(random.choice(kinds)), name)  # equal nodes have one solution
        for name in random.choice(["", "", "", "y", "z"]):
            world.publish(random, name)
    return made


@given(st.integers(0, 2**32), RANDOM, st.sampled_from(ORDERS))
def test_pods_at_once_get_the_devices_that_they_get_one_by_one(seed: int, random: Random, order: Order) -> None:
    first, second = worlds(seed)
    nodes = first.cache.nodes.view()
    for step in range(4):
        claims, rows = random.choice(CLAIMS), random.sample(range(len(NODES)), random.randint(1, len(NODES)))
        first.taken[step] = second.taken[step] = None  # type: ignore[assignment]  # numbers the steps
        before = columns(second)
        found = at_once(second, claims, rows, order)
        if found is None:
            assert columns(second) == before
            one_by_one(second, claims, rows, order)
            one_by_one(first, claims, rows, order)
            continue
        assert list(map(plain, found)) == list(map(plain, one_by_one(first, claims, rows, order)))
    assert columns(first) == columns(second)
    for claims in CLAIMS:
        codes, others = [world.devices.codes(world.devices.asked(claims), nodes) for world in (first, second)]
        assert np.array_equal(codes, others)


def plain_world(**fields: Any) -> World:
    """Four nodes with four devices each, in two groups."""
    world = World()
    for name in NODES:
        devices = [device(f"d{at}", attributes={"root": "xxyy"[at]}, **fields) for at in range(4)]
        world.devices.slice_changed(None, offer(f"s-{name}", devices, nodeName=name, pool=f"p-{name}"))
    return world


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "asked",
    [[claim(exactly())], [claim(exactly(2), constraints=[{"matchAttribute": ROOT}])], [claim(exactly())] * 2],
)
def test_many_pods_get_devices_at_once_until_a_node_lacks_them(order: Order, asked: list[ResourceClaim]) -> None:
    world, rows = plain_world(), list(range(len(NODES)))
    wanted = sum(each.spec.devices.requests[0].exactly.count for each in asked if each.spec.devices.requests[0].exactly)
    for number in range(4 // wanted):
        world.taken[number] = None  # type: ignore[assignment]  # numbers the steps
        assert at_once(world, asked, rows, order) is not None
    assert at_once(world, asked, rows, order) is None
    assert world.devices._current()[0].taken.all()


@pytest.mark.parametrize("order", ORDERS)
def test_devices_that_matter_to_several_pods_are_given_one_by_one(order: Order) -> None:
    counters = [{"counterSet": "c", "counters": {"memory": {"value": "1"}}}]
    world = plain_world(allowMultipleAllocations=True)
    assert at_once(world, [claim(exactly())], [0, 1], order) is None
    world = World()
    for name in NODES:
        own: dict[str, Any] = {"nodeName": name, "pool": f"p-{name}", "slices": 2}
        divided = [device(f"d{at}", consumesCounters=counters) for at in range(4)]
        total = [{"name": "c", "counters": {"memory": {"value": "4"}}}]
        world.devices.slice_changed(None, offer(f"s-{name}", divided, **own))
        world.devices.slice_changed(None, offer(f"t-{name}", [], sharedCounters=total, **own))
    assert at_once(world, [claim(exactly())], [0, 1], order) is None
    assert None not in one_by_one(world, [claim(exactly())], [0, 1], order)
    world = World()
    devices = [device(f"d{at}") for at in range(4)]
    world.devices.slice_changed(None, offer("s", devices, allNodes=True, pool="p"))
    assert at_once(world, [claim(exactly())], [0, 1], order) is None


@pytest.mark.parametrize("many", [1, 10**9])
def test_the_log_says_which_nodes_have_changed(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    monkeypatch.setattr(standing, "_MANY", many)
    world = plain_world()
    nodes = world.cache.nodes.view()
    world.devices.codes(world.devices.asked([claim(exactly())]), nodes)
    before = world.devices.changes.position, world.devices._current()[0].table.touched.position
    one_by_one(world, [claim(exactly(2))], [1, 3], "upstream")
    logs = world.devices.changes, world.devices._current()[0].table.touched
    for log, position in zip(logs, before, strict=True):
        changed = log.since(position, 100)
        assert changed is not None and sorted(changed[0].tolist()) == [1, 3]


def test_nodes_whose_devices_are_linked_differently_get_devices_of_their_own() -> None:
    given: list[list[str]] = []
    for give in (at_once, one_by_one):
        world = World()
        for name, roots in {"a": "xxzz", "b": "xzzx"}.items():
            devices = [device(f"d{at}", attributes={PCIE_ROOT: root}) for at, root in enumerate(roots)]
            world.devices.slice_changed(None, offer(f"s-{name}", devices, nodeName=name, pool=f"p-{name}"))
            world.devices.take(name, taken("d3", pool=f"p-{name}"))
        found = give(world, [claim(exactly())], [0, 1], "best")
        given.append([each[0].devices.results[0].device for each in found or () if each])
    assert given == [["d2", "d0"]] * 2
