"""The argument allocationOrder: which devices claims get, and which node, so that others stay possible."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gangline import BoolColumn, PodInfo, ScoreColumn, model, resources
from gangline.testing import Cache, FakeHandle, Runtime, cluster, make_node, make_pod
from gangline.testing.configured import make_profiles
from gangline_plugins.dynamic_resources.ledger import Ledger

from .claim_cases import DRIVER, spec

ROOT = "resource.kubernetes.io/pcieRoot"
HALVES = ("half-0", "half-1", "whole")


def request(name: str, count: int = 1) -> model.DeviceRequest:
    """So many devices of a class."""
    return model.DeviceRequest(name, model.ExactDeviceRequest(name, allocation_mode="ExactCount", count=count))


def offer(cache: Cache, node: str, devices: list[model.Device], counters: list[model.CounterSet] | None = None) -> None:
    """A driver offers devices, with the counters that they share."""
    pool = model.ResourcePool(node, 1 + bool(counters))
    of_node: dict[str, Any] = {"driver": DRIVER, "pool": pool, "node_name": node}
    specs = [model.ResourceSliceSpec(**of_node, devices=devices)]
    if counters:
        specs.append(model.ResourceSliceSpec(**of_node, shared_counters=counters))
    for number, each in enumerate(specs):
        cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(f"{node}-{number}"), each))


def offer_halves(cache: Cache, node: str, gpus: int) -> None:
    """GPUs that can be given as a whole or in two halves."""
    devices = [
        model.Device(
            f"gpu-{gpu}-{name}",
            attributes={"kind": model.DeviceAttribute(string=name.partition("-")[0])},
            consumes_counters=[
                model.DeviceCounterConsumption(f"gpu-{gpu}", {"memory": model.Counter("2" if name == "whole" else "1")})
            ],
        )
        for gpu in range(gpus)
        for name in HALVES
    ]
    offer(cache, node, devices, [model.CounterSet(f"gpu-{gpu}", {"memory": model.Counter("2")}) for gpu in range(gpus)])


def offer_linked(cache: Cache, node: str) -> None:
    """Four GPUs, the first and the last of one PCIe root."""
    devices = [
        model.Device(f"gpu-{number}", attributes={ROOT: model.DeviceAttribute(string=root)})
        for number, root in enumerate("abba")
    ]
    offer(cache, node, devices)


def made(nodes: int) -> Cache:
    """A cluster with a class of all devices, and one of each kind."""
    cache = cluster([make_node(f"n{number}") for number in range(nodes)])
    cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("any")))
    for kind in ("half", "whole"):
        selector = model.DeviceSelector(
            model.CelDeviceSelector(f'device.attributes["{DRIVER}"].?kind.orValue("") == "{kind}"')
        )
        cache.store(resources.DEVICE_CLASSES).upsert(
            model.DeviceClass(model.ObjectMeta(kind), model.DeviceClassSpec([selector]))
        )
    return cache


def runtimes_of(cache: Cache, **orders: str) -> dict[str, Runtime]:
    """A profile for each order, by name."""
    profiles = [
        {
            "schedulerName": name,
            "plugins": {
                "multiPoint": {
                    "disabled": [{"name": "*"}],
                    "enabled": [{"name": each} for each in ("PrioritySort", "DynamicResources", "DefaultBinder")],
                }
            },
            "pluginConfig": [{"name": "DynamicResources", "args": {"allocationOrder": order}}],
        }
        for name, order in orders.items()
    ]
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": profiles,
    }
    return make_profiles(json.dumps(document), FakeHandle(cache))


def runtime_of(cache: Cache, order: str = "best") -> Runtime:
    return runtimes_of(cache, one=order)["one"]


def pod_with(cache: Cache, name: str, *requests: model.DeviceRequest, scheduler: str = "one") -> PodInfo:
    """A pod with a claim of its own."""
    owner = model.OwnerReference("Pod", name, name, "v1", controller=True)
    metadata = model.ObjectMeta(name, "default", f"claim-{name}", owner_references=[owner])
    cache.store(resources.RESOURCE_CLAIMS).upsert(model.ResourceClaim(metadata, spec(*requests)))
    made = make_pod(name, resource_claims=[model.PodResourceClaim("gpu", name)], scheduler_name=scheduler)
    return cache.record(made)


def devices_of(cache: Cache, pod: PodInfo) -> list[str]:
    """The devices that the claim of a placed pod has."""
    allocation = cache.tracker(Ledger, cache).allocation(f"claim-{pod.name}")
    return [each.device for each in allocation.devices.results] if allocation is not None else []


def scores_of(runtime: Runtime, pod: PodInfo) -> tuple[BoolColumn, ScoreColumn]:
    """Which nodes are feasible, and the score of each of these."""
    filtered = runtime.filter(pod)
    return filtered.feasible, runtime.evaluator.scores(filtered)["DynamicResources"]


def test_a_small_partition_goes_where_a_gpu_is_divided_already() -> None:
    cache = made(3)
    for number in range(3):
        offer_halves(cache, f"n{number}", 2)
    runtime = runtime_of(cache)
    cache.place(pod_with(cache, "first", request("half")), 1)

    _, scores = scores_of(runtime, second := pod_with(cache, "second", request("half")))
    cache.place(second, 1)

    assert int(scores.argmax()) == 1
    assert scores[0] == scores[2] < scores[1] <= 100.0
    assert devices_of(cache, second) == ["gpu-0-half-1"]
    feasible, _ = scores_of(runtime, pod_with(cache, "third", request("whole")))
    assert feasible[:3].all()


@pytest.mark.parametrize(("order", "devices"), [("upstream", ["gpu-0", "gpu-1"]), ("best", ["gpu-0", "gpu-3"])])
def test_a_pod_gets_devices_in_the_order_of_its_own_profile(order: str, devices: list[str]) -> None:
    cache = made(1)
    offer_linked(cache, "n0")
    runtimes = runtimes_of(cache, upstream="upstream", best="best")
    pod = pod_with(cache, "p", request("any", 2), scheduler=order)

    cache.place(pod, 0)

    assert runtimes.keys() == {"upstream", "best"}
    assert devices_of(cache, pod) == devices


def test_the_last_configuration_of_a_profile_counts() -> None:
    cache = made(1)
    offer_linked(cache, "n0")
    for order in ("upstream", "best"):
        runtime_of(cache, order)
    pod = pod_with(cache, "p", request("any", 2))

    cache.place(pod, 0)

    assert devices_of(cache, pod) == ["gpu-0", "gpu-3"]


def test_an_earlier_alternative_comes_before_what_is_lost() -> None:
    cache = made(2)
    offer_halves(cache, "n0", 1)
    offer_halves(cache, "n1", 1)
    runtime = runtime_of(cache)
    cache.place(pod_with(cache, "first", request("half")), 1)
    alternatives = [
        model.DeviceSubRequest(name, name, allocation_mode="ExactCount", count=1) for name in ("whole", "half")
    ]
    pod = pod_with(cache, "p", model.DeviceRequest("gpu", first_available=alternatives))

    _, scores = scores_of(runtime, pod)

    assert scores[0] > scores[1]


@pytest.mark.parametrize(("order", "skips"), [("upstream", True), ("best", False)])
def test_a_claim_without_alternatives_is_scored_in_the_order_best_alone(order: str, skips: bool) -> None:
    cache = made(1)
    offer_linked(cache, "n0")
    runtime = runtime_of(cache, order)

    filtered = runtime.filter(pod_with(cache, "p", request("any")))

    assert ("DynamicResources" not in runtime.evaluator.scores(filtered)) == skips


def test_kept_scores_are_those_without_a_cache() -> None:
    cache = made(4)
    for number in range(4):
        offer_halves(cache, f"n{number}", 2)
    runtime = runtime_of(cache)
    random = np.random.default_rng(1)
    placed: list[PodInfo] = []
    for number in range(40):
        if placed and random.random() < 0.4:
            cache.unplace(placed.pop(int(random.integers(len(placed)))))
        pod = pod_with(cache, f"p{number}", request(str(random.choice(["half", "whole"]))))
        feasible, scores = scores_of(runtime, pod)
        again, anew = scores_of(runtime_of(cache), pod)
        assert feasible.tolist() == again.tolist()
        assert scores.tolist() == pytest.approx(anew.tolist())
        if feasible.any():
            cache.place(pod, int(np.flatnonzero(feasible)[random.integers(feasible.sum())]))
            placed.append(pod)

    assert placed
