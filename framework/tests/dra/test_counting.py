"""Counting for all nodes at once answers as the search does on each node, or leaves the node open."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.dra.counting import FITS, NONE, OPEN
from gangline.model.resource_slices import ResourceSlice

from .offers import GPU, allocated, ask, claim, device, exactly, offer

NODES = "abcd"


def some_slices(random: Random) -> list[ResourceSlice]:
    """A pool for most nodes, and sometimes one that several nodes share."""
    slices = []
    for node in NODES:
        devices: list[dict[str, Any]] = []
        for i in range(random.randint(0, 5)):
            attributes = {key: random.choice("xy") for key in ("model", "root") if random.random() < 0.9}
            shared = {"allowMultipleAllocations": True} if random.random() < 0.03 else {}
            devices.append(device(f"d{i}", attributes=attributes, **shared))
        driver = random.choice([GPU, GPU, "nic.example.com"])
        slices.append(offer(f"s-{node}", devices, pool=f"pool-{node}", nodeName=node, driver=driver))
    if random.random() < 0.1:
        slices.append(offer("s-net", [device("n0")], pool="net", allNodes=True))
    return slices


@given(st.randoms(use_true_random=False))
def test_counted_nodes_have_what_the_search_finds(random: Random) -> None:
    slices = some_slices(random)
    taken = [
        allocated(each.name, pool=slice_.spec.pool.name)
        for slice_ in slices
        for each in slice_.spec.devices
        if random.random() < 0.3
    ]
    expressions = random.choice([[], [], ["model=x"], ["driver=nic.example.com"]])
    requests = [
        exactly(
            random.randint(1, 3),
            random.choice(["gpu", "any"]),
            selectors=[{"cel": {"expression": each}} for each in expressions],
        )
        for _ in range(random.randint(1, 2))
    ]
    constraints = [{"matchAttribute": f"{GPU}/root"}] if random.random() < 0.4 else []
    claims = [claim(*requests, constraints=constraints)]
    if random.random() < 0.2:
        claims.append(claim(exactly()))

    pod = ask(slices, claims, taken, NODES)

    for row, outcome in enumerate(pod.everywhere(len(NODES))):
        verdict = pod.on(row, NODES[row])
        if outcome != OPEN:
            assert outcome == (NONE if verdict.allocations is None else FITS)
            assert not verdict.error


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

    assert one.everywhere(len(NODES)).tolist() == [FITS, FITS, FITS, FITS]
    assert pair.everywhere(len(NODES)).tolist() == [FITS, NONE, NONE, FITS]
