"""Counting for all nodes at once answers as the search does on each node, or leaves the node open."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gangline.dra.counting import FITS, NONE, OPEN, UNKNOWN
from gangline.model.resource_claims import ResourceClaim, ResourceClaimAllocation
from gangline.model.resource_slices import ResourceSlice

from .offers import GPU, allocated, ask, claim, device, exactly, offer

NODES = "abcd"


def consuming(random: Random) -> list[dict[str, Any]]:
    """What a part consumes of the counters of its pool."""
    amounts = {name: {"value": str(random.randint(0, 3))} for name in random.sample(["memory", "slots"], 2)}
    return [{"counterSet": random.choice(["c", "d"]), "counters": amounts}]


def some_slices(random: Random) -> list[ResourceSlice]:
    """A pool for most nodes, sometimes of parts or of devices that several claims may have, sometimes incomplete. And
    sometimes one that several nodes share.
    """
    slices, shareable = [], random.choice([0, 0, 0, 0.3])
    for node in NODES:
        devices: list[dict[str, Any]] = []
        has_counters = random.random() < 0.4
        for i in range(random.randint(0, 5)):
            fields: dict[str, Any] = {
                "attributes": {key: random.choice("xy") for key in ("model", "root") if random.random() < 0.9}
            }
            if random.random() < shareable:
                fields |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "4"}}}
            if has_counters and random.random() < 0.8:
                fields["consumesCounters"] = consuming(random)
            devices.append(device(f"d{i}", **fields))
        driver = random.choice([GPU, GPU, "nic.example.com"])
        pool: dict[str, Any] = {"pool": f"pool-{node}", "nodeName": node, "driver": driver, "slices": 1 + has_counters}
        if random.random() < 0.05:
            pool["slices"] += 1
        slices.append(offer(f"s-{node}", devices, **pool))
        if has_counters:
            amounts = {name: {"value": str(random.randint(1, 5))} for name in ("memory", "slots")}
            counters = [{"name": name, "counters": amounts} for name in "cd"]
            slices.append(offer(f"t-{node}", [], sharedCounters=counters, **pool))
    if random.random() < 0.1:
        slices.append(offer("s-net", [device("n0")], pool="net", allNodes=True))
    return slices


def some_request(random: Random) -> dict[str, Any]:
    """Devices of a class, most often of all drivers or models: a number or all, sometimes with admin access, sometimes
    a part of their memory.
    """
    expressions = random.choice([[], [], ["model=x"], ["root=x"], ["driver=nic.example.com"]])
    fields: dict[str, Any] = {"selectors": [{"cel": {"expression": each}} for each in expressions]}
    if random.random() < 0.1:
        fields["adminAccess"] = True
    if random.random() < 0.1:
        fields["capacity"] = {"requests": {"memory": random.choice("12")}}
    if random.random() < 0.15:
        return {"deviceClassName": random.choice(["gpu", "any"]), "allocationMode": "All", **fields}
    return exactly(random.choice([0, 1, 1, 1, 2, 3]), random.choice(["gpu", "any"]), **fields)


def some_constraint(random: Random, names: list[str]) -> dict[str, Any]:
    kind = random.choice(["matchAttribute", "matchAttribute", "distinctAttribute"])
    return {kind: f"{GPU}/{random.choice(['root', 'model'])}", "requests": names}


def some_claims(random: Random) -> list[ResourceClaim]:
    """One or two claims, some with alternatives, some with constraints, most often over all of their requests."""
    requests = []
    for _ in range(random.randint(1, 3)):
        ways = [{"name": name, **some_request(random)} for name in "uvw"[: random.randint(1, 3)]]
        requests.append({"firstAvailable": ways} if random.random() < 0.25 else some_request(random))
    names = random.choice([[], [], [f"r{number}" for number in range(len(requests))], ["r0"]])
    constraints = [some_constraint(random, names) for _ in range(random.choice([0, 0, 1, 1, 2]))]
    other = [claim(some_request(random))] if random.random() < 0.2 else []
    return [claim(*requests, constraints=constraints), *other]


def some_taken(random: Random, slices: list[ResourceSlice]) -> list[ResourceClaim]:
    """Claims that have about a third of the devices; of those that several claims may have, they have parts."""
    share = {"shareID": "x", "consumedCapacity": {"memory": random.choice("234")}}
    return [
        allocated(
            each.name,
            pool=slice_.spec.pool.name,
            driver=slice_.spec.driver,
            **(share if each.allow_multiple_allocations or random.random() < 0.05 else {}),
        )
        for slice_ in slices
        for each in slice_.spec.devices
        if random.random() < 0.3
    ]


@given(st.randoms(use_true_random=False))
def test_counted_nodes_have_what_the_search_finds(random: Random) -> None:
    slices, claims = some_slices(random), some_claims(random)
    taken = some_taken(random, slices)

    pod, bare = ask(slices, claims, taken, NODES), ask(slices, claims, [], NODES)

    for outcomes, searched in (
        (pod.counted(len(NODES)).outcomes, pod),
        (pod.counted(len(NODES), None, True).outcomes, bare),
        (pod.counted(len(NODES), np.arange(2)).outcomes, pod),
    ):
        for row, outcome in enumerate(outcomes):
            verdict = searched.on(row, NODES[row])
            if outcome != OPEN:
                assert outcome == (NONE if verdict.allocations is None else FITS)
                assert not verdict.error


@given(st.randoms(use_true_random=False))
def test_the_alternatives_that_nodes_choose_are_those_that_the_search_finds(random: Random) -> None:
    slices, claims = some_slices(random), some_claims(random)
    taken = [allocated("d0", pool=f"pool-{node}") for node in NODES if random.random() < 0.3]
    pod = ask(slices, claims, taken, NODES)
    lists = {
        (at, each.name) for at, of in enumerate(claims) for each in of.spec.devices.requests if each.first_available
    }

    chosen = {
        NODES[place]: names for names, places in pod.choices(len(NODES), np.arange(len(NODES))) for place in places
    }

    for row, node in enumerate(NODES):
        found = pod.on(row, node).allocations
        assert (found is None) == (node not in chosen)
        for at, allocation in enumerate(found or ()):
            given = {(at, each.request) for each in allocation.devices.results}
            assert {each for each in given if (at, each[1].split("/")[0]) in lists} == {
                each for each in chosen[node] if each[0] == at
            }


def taken_by(allocation: ResourceClaimAllocation) -> ResourceClaim:
    """A claim that has this allocation."""
    status = {"allocation": msgspec.to_builtins(allocation)}
    return msgspec.convert({"metadata": {"name": "t", "namespace": "default"}, "status": status}, ResourceClaim)


@given(st.randoms(use_true_random=False))
def test_a_node_has_the_devices_no_more_often_than_its_room_says(random: Random) -> None:
    slices, claims = some_slices(random), some_claims(random)
    counted = ask(slices, claims, [], NODES).counted(len(NODES))

    for row, node in enumerate(NODES):
        times, taken = 0, list[ResourceClaim]()
        while times < 7 and (given := ask(slices, claims, taken, NODES).on(row, node).allocations):
            times += 1
            taken += [taken_by(each) for each in given]
        if counted.outcomes[row] != OPEN and counted.room[row] != UNKNOWN:
            assert times <= counted.room[row]


def test_usual_claims_are_counted_on_every_node() -> None:
    slices = [
        offer(
            f"s-{node}",
            [device(f"d{i}", attributes={"root": "xy"[i // 2]}) for i in range(4)],
            pool=node,
            nodeName=node,
        )
        for node in NODES
    ]
    taken = [allocated("d0", "d2", pool="b"), allocated("d0", "d1", "d2", pool="c")]
    same = [{"matchAttribute": f"{GPU}/root"}]

    one = ask(slices, [claim(exactly())], taken, NODES)
    pair = ask(slices, [claim(exactly(2), constraints=same)], taken, NODES)

    assert one.counted(len(NODES)).outcomes.tolist() == [FITS, FITS, FITS, FITS]
    assert pair.counted(len(NODES)).outcomes.tolist() == [FITS, NONE, NONE, FITS]


def consumer(name: str, amount: str) -> dict[str, Any]:
    """A device that consumes so much memory."""
    return device(name, consumesCounters=[{"counterSet": "c", "counters": {"memory": {"value": amount}}}])


WHOLE_AND_HALVES = (consumer("whole", "4"), consumer("half-0", "2"), consumer("half-1", "2"))


def parts(node: str, left: str, devices: Sequence[dict[str, Any]] = WHOLE_AND_HALVES) -> list[ResourceSlice]:
    """A device whole and in halves, or these, of which so much is left."""
    counters = [{"name": "c", "counters": {"memory": {"value": left}}}]
    pool: dict[str, Any] = {"pool": node, "nodeName": node, "slices": 2}
    return [offer(f"s-{node}", [*devices], **pool), offer(f"t-{node}", [], sharedCounters=counters, **pool)]


def test_a_part_and_alternatives_are_counted_and_several_parts_are_searched() -> None:
    slices = [each for node, left in zip(NODES, ("4", "4", "1", "4"), strict=True) for each in parts(node, left)]
    taken = [allocated("whole", pool="b"), allocated("half-0", pool="d")]
    either = {"firstAvailable": [{"name": "two", **exactly(2)}, {"name": "one", **exactly()}]}

    one, first, two = (ask(slices, [claim(each)], taken, NODES) for each in (exactly(), either, exactly(2)))

    assert one.counted(len(NODES)).outcomes.tolist() == [FITS, NONE, NONE, FITS]
    assert first.counted(len(NODES)).outcomes.tolist() == [FITS, NONE, NONE, FITS]
    assert two.counted(len(NODES)).outcomes.tolist() == [OPEN, NONE, NONE, NONE]


def test_a_failing_selector_of_any_alternative_leaves_the_node_to_the_search() -> None:
    slices = [offer(f"s-{node}", [device("d0")], pool=node, nodeName=node) for node in NODES]
    fails = exactly(1, selectors=[{"cel": {"expression": "model=x"}}])
    either = {"firstAvailable": [{"name": "one", **exactly()}, {"name": "x", **fails}]}

    pod = ask(slices, [claim(either)], None, NODES)

    assert pod.counted(len(NODES)).outcomes.tolist() == [OPEN] * len(NODES)


def test_alternatives_after_a_request_that_shares_a_constraint_are_those_that_the_search_finds() -> None:
    models = {"d0": ("x", "a"), "d1": ("y", "a"), "d2": ("y", "b"), "d3": ("x", "c")}
    devices = [device(name, attributes={"root": root, "model": model}) for name, (root, model) in models.items()]
    slices = [offer(f"s-{node}", devices, pool=node, nodeName=node) for node in NODES]
    first, b, c = (exactly(selectors=[{"cel": {"expression": f"model={each}"}}]) for each in "abc")
    either = {"firstAvailable": [{"name": "b", **b}, {"name": "c", **c}]}

    pod = ask(slices, [claim(first, either, constraints=[{"matchAttribute": f"{GPU}/root"}])], None, NODES)

    found = pod.on(0, "a").allocations
    assert found is not None
    assert [each.request for each in found[0].devices.results] == ["r0", "r1/c"]
    assert [names for names, _ in pod.choices(len(NODES), np.arange(len(NODES)))] == [{(0, "r1/c")}]


def test_a_device_that_consumes_less_than_nothing_leaves_the_node_to_the_search() -> None:
    devices = [consumer("d0", "-2"), consumer("d1", "4")]
    slices = [each for node in NODES for each in parts(node, "2", devices)]

    for number in (1, 2):
        pod = ask(slices, [claim(exactly(number))], None, NODES)
        assert pod.on(0, "a").allocations is not None
        assert pod.counted(len(NODES)).outcomes.tolist() == [OPEN] * len(NODES)
