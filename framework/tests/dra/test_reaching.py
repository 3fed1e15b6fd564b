"""Which nodes may use a device together, and what claims get that have to reach all of some nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gangline.model.resource_slices import ResourceSlice

from .offers import allocated, ask, claim, device, exactly, offer


def within(*zones: str) -> dict[str, Any]:
    """A selector of nodes."""
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}]
    return {"nodeSelectorTerms": terms}


def on_network(name: str, *zones: str, devices: int = 1) -> ResourceSlice:
    made = [device(f"{name}-{number}") for number in range(devices)]
    return offer(f"s-{name}", made, pool=name, nodeSelector=within(*zones))


def sets(slices: list[ResourceSlice], *taken: Any) -> tuple[list[str], str]:
    """The nodes of each set, and the nodes with a device of their own."""
    found, alone = ask(slices, [claim(exactly())], list(taken), "abcd").reached(4)

    def letters(mask: Any) -> str:
        return "".join(np.array(list("abcd"))[mask])

    return [letters(mask) for mask in found], letters(alone)


def test_sets_are_told_once_in_the_order_of_the_devices() -> None:
    slices = [on_network("y", "c", "d"), on_network("x", "a", "b", "c", devices=3), on_network("z", "c", "d")]

    assert sets(slices) == (["abc", "cd"], "")


def test_devices_of_one_node_are_told_apart_and_taken_ones_are_not_told() -> None:
    slices = [offer("s-a", [device("d")], pool="a", nodeName="a"), on_network("x", "a", "b"), on_network("y", "c")]

    assert sets(slices) == (["ab", "c"], "a")
    assert sets(slices, allocated("x-0", pool="x")) == (["c"], "a")
    assert sets(slices, allocated("d", pool="a")) == (["ab", "c"], "")


def test_a_device_of_a_pool_that_nodes_see_differently_reaches_all_of_them() -> None:
    slices = [
        offer("s", [device("everywhere")], pool="p", slices=2, allNodes=True),
        offer("t", [device("here")], pool="p", slices=2, nodeSelector=within("a", "b")),
    ]

    assert sets(slices) == (["abcd", "ab"], "")


def test_devices_may_select_their_nodes() -> None:
    devices = [device("d", nodeSelector=within("a", "b")), device("e", allNodes=True), device("f", nodeName="c")]

    assert sets([offer("s", devices, perDeviceNodeSelection=True)]) == (["ab", "abcd", "c"], "")


@pytest.mark.parametrize("order", ["upstream", "best"])
@pytest.mark.parametrize(
    ("nodes", "given"),
    [([0], ["d"]), ([0, 1], ["x-0"]), ([0, 3], ["y-0"]), ([0, 1, 2, 3], ["y-0"])],
    ids=["one node", "a few", "others", "all"],
)
def test_a_claim_gets_a_device_that_all_nodes_may_use(order: Any, nodes: list[int], given: list[str]) -> None:
    slices = [
        offer("s-a", [device("d")], pool="a", nodeName="a"),
        on_network("x", "a", "b"),
        on_network("y", "a", "b", "c", "d"),
    ]
    pod = ask(slices, [claim(exactly())], nodes="abcd")

    verdict = pod.on(0, "a", order=order, shared_on={0: np.array(nodes)})

    assert verdict.allocations is not None
    assert [result.device for result in verdict.allocations[0].devices.results] == given


def test_only_the_claims_that_are_named_have_to_reach_the_nodes() -> None:
    slices = [offer("s-a", [device("d")], pool="a", nodeName="a"), on_network("x", "a", "b")]
    claims = [claim(exactly()), claim(exactly())]
    pod = ask(slices, claims, nodes="ab")

    verdict = pod.on(0, "a", shared_on={0: np.array([0, 1])})

    assert verdict.allocations is not None
    assert [each.devices.results[0].device for each in verdict.allocations] == ["x-0", "d"]
    assert pod.on(0, "a", shared_on={0: np.array([0, 1]), 1: np.array([0, 1])}).allocations is None
