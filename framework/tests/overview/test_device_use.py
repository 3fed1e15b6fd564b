"""Devices and claims of dynamic resource allocation, as the commands show them."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest
from rich.console import Console

from gangline import model
from gangline.commands.output import claim_table
from gangline.commands.status import show
from gangline.commands.topology import device_table, nodes_of
from gangline.kube.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource
from gangline.overview.claim_use import MOST_DEVICES, ClaimUse, claim_use, claims_of
from gangline.overview.device_use import NodeDeviceUse, by_driver, device_use
from gangline.overview.gpu_use import gpu_use
from gangline.overview.summary import overview
from gangline.state.cache import Cache
from gangline.state.topology import Topology
from gangline.testing import cluster, make_node, make_pod

from ..dra.offers import GPU, device, exactly, offer

SICK = [{"key": "gangline.dev/unhealthy", "effect": "NoSchedule"}]
HELD = "0/2 nodes are available: 2 cannot allocate all claims."


def class_(name: str, expression: str = "") -> model.DeviceClass:
    selectors = [{"cel": {"expression": expression}}] if expression else []
    return msgspec.convert({"metadata": {"name": name}, "spec": {"selectors": selectors}}, model.DeviceClass)


def claim(name: str, *requests: dict[str, Any], devices: tuple[str, ...] = ()) -> model.ResourceClaim:
    results = [{"driver": GPU, "pool": "node-pool", "device": each, "request": "r"} for each in devices]
    asked = [{"name": f"r{at}", **each} for at, each in enumerate(requests)]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    metadata = {"name": name, "namespace": "default", "uid": name}
    data = {"metadata": metadata, "spec": {"devices": {"requests": asked}}, "status": status}
    return msgspec.convert(data, model.ResourceClaim)


def waiting(name: str, *entries: model.PodResourceClaim, made: dict[str, str] | None = None) -> model.Pod:
    """A pod without a node that names claims; ``made`` are those that were made from templates."""
    pod = make_pod(name, resource_claims=list(entries))
    statuses = [model.PodResourceClaimStatus(entry, claim) for entry, claim in (made or {}).items()]
    held = model.PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=HELD)
    pod.status = model.PodStatus(conditions=[held], resource_claim_statuses=statuses)
    return pod


def filled(*objects: model.ResourceSlice | model.DeviceClass | model.ResourceClaim) -> Cache:
    cache = cluster([make_node("a", gpus=0), make_node("b", gpus=0)])
    kinds: dict[str, Resource[Any]] = {
        "ResourceSlice": RESOURCE_SLICES,
        "DeviceClass": DEVICE_CLASSES,
        "ResourceClaim": RESOURCE_CLAIMS,
    }
    for each in objects:
        cache.store(kinds[each.kind]).upsert(each)
    return cache


def printed(*shown: Any) -> str:
    screen = Console(file=io.StringIO(), width=300)
    for each in shown:
        screen.print(each)
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


FOUR = [device("gpu-0"), device("gpu-1", taints=SICK), device("gpu-2"), device("gpu-3")]


def test_devices_are_counted_for_each_node_and_driver() -> None:
    cache = filled(
        offer("a-0", FOUR),
        offer("b-0", [device("gpu-0")], nodeName="b", pool="b"),
        offer("other", [device("nic")], nodeName="b", pool="b", driver="nic.example.com"),
        claim("c", {"exactly": exactly()}, devices=("gpu-0",)),
    )

    use = device_use(cache)

    assert use.nodes == [
        NodeDeviceUse("a", GPU, devices=4, taken=1, free=2, tainted=1),
        NodeDeviceUse("b", GPU, devices=1, taken=0, free=1, tainted=0),
        NodeDeviceUse("b", "nic.example.com", devices=1, taken=0, free=1, tainted=0),
    ]
    assert list(by_driver(use)) == [
        (NodeDeviceUse("", GPU, devices=5, taken=1, free=3, tainted=1), 2),
        (NodeDeviceUse("", "nic.example.com", devices=1, taken=0, free=1, tainted=0), 1),
    ]


def test_the_parts_of_a_gpu_are_free_as_long_as_counters_are_left() -> None:
    def part(name: str, amount: str) -> dict[str, Any]:
        return device(name, consumesCounters=[{"counterSet": "gpu", "counters": {"memory": {"value": amount}}}])

    parts = [part("whole", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi")]
    counters = [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]
    slices = offer("parts", parts, slices=2), offer("counters", [], slices=2, sharedCounters=counters)

    (before,) = device_use(filled(*slices)).nodes
    (half,) = device_use(filled(*slices, claim("c", {"exactly": exactly()}, devices=("half-0",)))).nodes
    (whole,) = device_use(filled(*slices, claim("c", {"exactly": exactly()}, devices=("whole",)))).nodes

    assert [(use.taken, use.free) for use in (before, half, whole)] == [(0, 3), (1, 1), (1, 0)]


def test_a_class_says_how_many_devices_it_admits_and_why_it_admits_none() -> None:
    cache = filled(
        offer("a-0", FOUR),
        class_("gpus", f'device.driver == "{GPU}"'),
        class_("others", 'device.driver == "nic.example.com"'),
        class_("all"),
        class_("broken", "device.driver =="),
        claim("c", {"exactly": exactly()}, devices=("gpu-0",)),
    )

    found = {each.name: (each.devices, each.free, bool(each.problem)) for each in device_use(cache).classes}

    assert found == {"all": (4, 2, False), "broken": (0, 0, True), "gpus": (4, 2, False), "others": (0, 0, False)}


def test_a_pool_of_which_slices_are_missing_is_named() -> None:
    use = device_use(filled(offer("a-0", FOUR, slices=2)))

    assert use.nodes == []
    ((driver, pool, why),) = [(each.driver, each.pool, each.why) for each in use.unusable]
    assert (driver, pool) == (GPU, "node-pool")
    assert "has not published all of its slices" in why


def test_a_claim_says_for_whom_it_is_what_it_asks_for_and_what_it_has() -> None:
    cache = filled(
        claim("p-gpus", {"exactly": exactly(2)}, devices=("gpu-0", "gpu-2")),
        claim("own", {"firstAvailable": [{"name": "x", **exactly(1, "big")}, {"name": "y", **exactly(4, "small")}]}),
        claim("every", {"exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}),
    )
    entry = model.PodResourceClaim("gpus", resource_claim_template_name="two")
    own = model.PodResourceClaim("own", resource_claim_name="own")
    pods = [cache.record(waiting("p", entry, own, made={"gpus": "p-gpus"}))]

    assert claim_use(cache, pods) == [
        ClaimUse("default/every", "", [], "all gpu", [], "no pod uses it"),
        ClaimUse("default/own", "", ["default/p"], "1 big or 4 small", [], HELD),
        ClaimUse("default/p-gpus", "two", ["default/p"], "2 gpu", ["node-pool/gpu-0", "node-pool/gpu-2"]),
    ]
    assert [each.claim for each in claims_of(pods[0], cache)] == ["default/p-gpus", "default/own"]


@pytest.mark.parametrize(
    ("entry", "made", "why"),
    [
        (model.PodResourceClaim("g", resource_claim_template_name="t"), {}, "no ResourceClaim is made yet"),
        (model.PodResourceClaim("g", resource_claim_name="gone"), {}, "there is no ResourceClaim default/gone"),
        (model.PodResourceClaim("g", resource_claim_template_name="t"), {"g": "gone"}, "there is no ResourceClaim"),
    ],
    ids=["not made", "not there", "deleted"],
)
def test_a_claim_that_is_not_there_is_waited_for(entry: model.PodResourceClaim, made: dict[str, str], why: str) -> None:
    cache = filled()

    (found,) = claims_of(cache.record(waiting("p", entry, made=made)), cache)

    assert (found.claim, found.devices) == ("", [])
    assert why in found.waits


def test_a_pod_that_nobody_tries_because_its_claim_is_not_there_is_told_so() -> None:
    cache = filled()
    pod = waiting("p", model.PodResourceClaim("g", resource_claim_name="gone"))
    pod.status.conditions = []

    (found,) = overview(cache, [cache.record(pod)], Topology(cache.nodes)).waiting

    assert found.message == "there is no ResourceClaim default/gone"


def test_an_entry_for_which_the_pod_needs_no_claim_is_left_out() -> None:
    cache = filled()
    pod = make_pod("p", resource_claims=[model.PodResourceClaim("g", resource_claim_template_name="t")])
    pod.status = model.PodStatus(resource_claim_statuses=[model.PodResourceClaimStatus("g", None)])

    assert claims_of(cache.record(pod), cache) == []


def test_a_class_that_is_missing_is_named_where_classes_are_known() -> None:
    own = model.PodResourceClaim("own", resource_claim_name="own")
    asked = claim("own", {"exactly": exactly(1, "typo")})
    for objects, why in (((class_("gpu"),), "there is no DeviceClass typo"), ((), HELD)):
        cache = filled(asked, *objects)
        (found,) = claim_use(cache, [cache.record(waiting("p", own))])
        assert found.waits == why


def test_a_pod_that_was_not_tried_is_said_to_be() -> None:
    cache = filled(claim("own", {"exactly": exactly()}))
    pod = make_pod("p", resource_claims=[model.PodResourceClaim("own", resource_claim_name="own")])

    (found,) = claim_use(cache, [cache.record(pod)])

    assert found.waits == "default/p has not been tried yet"


def test_of_many_devices_some_are_named() -> None:
    cache = filled(claim("c", {"exactly": exactly()}, devices=tuple(f"gpu-{at}" for at in range(MOST_DEVICES + 5))))

    (found,) = claim_use(cache, [])

    assert len(found.devices) == MOST_DEVICES + 1
    assert found.devices[-1] == "and 5 more"


def test_status_and_topology_show_them() -> None:
    cache = filled(
        offer("a-0", FOUR),
        class_("gpus", f'device.driver == "{GPU}"'),
        claim("c", {"exactly": exactly()}, devices=("gpu-0",)),
        claim("waits", {"exactly": exactly(8, "gpus")}),
    )
    pod = cache.record(waiting("p", model.PodResourceClaim("g", resource_claim_name="waits")))
    topology = Topology(cache.nodes)
    screen = Console(file=io.StringIO(), width=300)

    found = overview(cache, [pod], topology)
    show(found, screen)
    assert isinstance(screen.file, io.StringIO)
    text = screen.file.getvalue()

    assert f"{GPU}: 1 of 4 devices on 1 node taken, 2 free, 1 tainted" in text
    assert [line.split() for line in text.splitlines() if line.startswith("gpus")] == [["gpus", "4", "2"]]
    (line,) = (line for line in text.splitlines() if line.startswith("default/waits"))
    assert "8 gpus" in line and HELD in line
    assert "default/c " not in text
    assert f"a     {GPU}" in printed(device_table(device_use(cache).nodes))
    devices = {node["node"]: node["devices"] for node in nodes_of(cache, topology)}
    assert devices == {"a": [NodeDeviceUse("a", GPU, 4, 1, 2, 1)], "b": []}
    assert "default/c" in printed(claim_table(found.claims))
    assert msgspec.json.encode(found)


def test_gpus_that_slices_offer_alone_are_counted_with_their_parts_once() -> None:
    names = ("gpu-0", "gpu-0-mig-1g-10gb-0", "gpu-1", "gpu-2", "nic-0")
    cache = filled(
        offer("a-0", [device(name) for name in names], pool="a"),
        offer("b-0", [device("gpu-0")], nodeName="b", pool="b", driver="nic.example.com"),
    )
    cache.store(RESOURCE_CLAIMS).upsert(
        msgspec.convert(
            {
                "metadata": {"name": "c", "namespace": "default"},
                "status": {"allocation": {"devices": {"results": [{"driver": GPU, "pool": "a", "device": "gpu-1"}]}}},
            },
            model.ResourceClaim,
        )
    )

    use = gpu_use(cache)

    assert use.total[:2].tolist() == [3, 0]
    assert use.used[:2].tolist() == [1, 0]


def test_the_parts_of_a_gpu_are_one_gpu() -> None:
    cache = cluster([make_node("node-pool")])
    cache.store(RESOURCE_CLAIMS).upsert(
        claim("c", {"exactly": exactly()}, devices=("gpu-3", "gpu-0-mig-1g-10gb-0", "gpu-0-mig-1g-10gb-1"))
    )

    assert int(gpu_use(cache).used[0]) == 2
    assert gpu_use(cache).ids[0] == {0, 3}
