"""How an offer is packed into ResourceSlices, and when they have to be written again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gangline.model import ResourceSlice
from gangline.model.resource_slices import Device
from gangline_agent import devices, hardware, slices
from gangline_agent.devices import Offer
from gangline_agent.readings import Gpu, Reading


def gpus(count: int, *sick: int) -> Offer:
    found = tuple(Gpu(id=at, uuid=f"GPU-{at}", problems=("XID 79",) if at in sick else ()) for at in range(count))
    return devices.of_reading(Reading(gpus=found))


def made(offer: Offer, generation: int = 1) -> dict[str, ResourceSlice]:
    found = slices.of_generation(slices.wanted("node", "uid", offer), generation)
    return {each.metadata.name: each for each in found}


def sizes(offer: Offer) -> list[tuple[int, int]]:
    return [(len(each.spec.shared_counters), len(each.spec.devices)) for each in made(offer).values()]


def edited(each: ResourceSlice, **changes: Any) -> ResourceSlice:
    return msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, **changes))


def test_a_slice_is_the_nodes_own_and_says_how_many_there_are() -> None:
    (slice_,) = made(gpus(2), generation=7).values()

    assert msgspec.to_builtins(slice_)["metadata"] == {
        "name": "node-gpu.gangline.dev-devices-00",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "uid"}],
    }
    spec = msgspec.to_builtins(slice_.spec)
    assert [each["name"] for each in spec.pop("devices")] == ["gpu-0", "gpu-1"]
    assert spec == {
        "driver": "gpu.gangline.dev",
        "nodeName": "node",
        "pool": {"name": "node", "generation": 7, "resourceSliceCount": 1},
    }


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (lambda: gpus(0), []),
        (lambda: gpus(128), [(0, 128)]),
        (lambda: gpus(129), [(0, 128), (0, 1)]),
        (lambda: gpus(64, 3), [(0, 64)]),
        (lambda: gpus(65, 3), [(0, 64), (0, 1)]),
        (
            lambda: devices.of_reading(hardware.dgx_h100(), with_partitions=True),
            [(8, 0), (0, 64), (0, 64), (0, 24)],
        ),
    ],
    ids=["nothing", "a full one", "one more", "taints", "one more with taints", "partitions"],
)
def test_slices_are_as_large_as_the_api_server_takes_them(
    offered: Callable[[], Offer], expected: list[tuple[int, int]]
) -> None:
    offer = offered()

    assert sizes(offer) == expected
    assert {each.spec.pool.resource_slice_count for each in made(offer).values()} <= {len(expected)}


def test_the_name_of_a_slice_of_a_node_with_a_long_name_fits_and_is_its_own() -> None:
    names = {slices.wanted("a" * 240 + end, "uid", gpus(1))[0].metadata.name for end in ("b", "c")}

    assert len(names) == 2
    assert max(map(len, names)) <= 253


def test_slices_that_are_there_already_do_not_differ() -> None:
    offer = gpus(65, 3)

    assert not slices.differ(slices.wanted("node", "uid", offer), made(offer, generation=4))
    assert not slices.differ([], {})


@pytest.mark.parametrize("field", ["devices", "pool", "driver", "owner", "missing", "extra", "generation"])
def test_whatever_is_different_is_seen(field: str) -> None:
    offer = gpus(65, 3)
    seen = made(offer)
    name = next(iter(seen))
    first = seen[name]
    match field:
        case "devices":
            seen[name] = edited(first, devices=[*first.spec.devices[1:], Device(name="gpu-0")])
        case "pool":
            seen[name] = edited(first, pool=msgspec.structs.replace(first.spec.pool, resource_slice_count=3))
        case "driver":
            seen[name] = edited(first, driver="gpu.example.com")
        case "owner":
            seen[name] = msgspec.structs.replace(
                first, metadata=msgspec.structs.replace(first.metadata, owner_references=[])
            )
        case "missing":
            del seen[name]
        case "extra":
            seen["more"] = first
        case "generation":
            seen[name] = slices.of_generation([first], 9)[0]

    assert slices.differ(slices.wanted("node", "uid", offer), seen)


def test_a_taint_keeps_the_time_at_which_it_was_set() -> None:
    seen = made(gpus(2, 0))
    for each in seen.values():
        each.spec.devices[0].taints[0].time_added = "2030-01-01T00:00:00Z"

    (again,) = slices.with_times(slices.wanted("node", "uid", gpus(2, 0, 1)), seen)

    assert [device.taints[0].time_added for device in again.spec.devices] == ["2030-01-01T00:00:00Z", None]
    assert not slices.differ(slices.wanted("node", "uid", gpus(2, 0)), seen)


def test_without_taints_an_unhealthy_device_is_left_out() -> None:
    offer = slices.without(gpus(3, 1), {slices.TAINTS})

    assert [device.name for device in offer.devices] == ["gpu-0", "gpu-2"]


def test_without_counters_gpus_are_offered_whole() -> None:
    offer = slices.without(devices.of_reading(hardware.dgx_h100(), with_partitions=True), {slices.COUNTERS})

    assert [device.name for device in offer.devices] == [f"gpu-{at}" for at in range(8)]
    assert offer == devices.of_reading(hardware.dgx_h100())


def test_what_a_server_did_not_keep_is_seen() -> None:
    (sick,) = slices.wanted("node", "uid", gpus(2, 1))
    counters, parts, *_ = slices.wanted("node", "uid", devices.of_reading(hardware.dgx_h100(), with_partitions=True))
    (plain,) = slices.wanted("node", "uid", gpus(2))

    assert slices.lost(sick, plain) == slices.TAINTS
    assert slices.lost(counters, edited(counters, shared_counters=[])) == slices.COUNTERS
    assert [slices.lost(each, each) for each in (sick, counters, parts, plain)] == [""] * 4
