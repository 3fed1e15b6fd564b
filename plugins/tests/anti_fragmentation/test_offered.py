"""GPUs that claims take count as those that pods request of a device plugin."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import PodInfo, model, resources
from gangline.testing import Cache, FakeHandle, Runtime, cluster, make_node, make_pod
from gangline.testing.configured import make_profiles
from gangline_plugins.anti_fragmentation.arguments import PRODUCT
from gangline_plugins.anti_fragmentation.offered import OfferedGpus

GPUS = 8
MODELS = ("A100", "H100")
TYPICAL = [
    {"popularity": 0.5, "cpu": "8", "gpus": 1},
    {"popularity": 0.3, "cpu": "16", "gpus": 2, "models": ["H100"]},
    {"popularity": 0.2, "cpu": "32", "gpus": 8},
]


def nodes(number: int, gpus: int) -> Cache:
    """Nodes of two models; without `gpus` no device plugin advertises any."""
    return cluster([make_node(f"n{at}", cpu=64, gpus=gpus, labels={PRODUCT: MODELS[at % 2]}) for at in range(number)])


def offering(number: int, share: bool = False) -> Cache:
    """Nodes on which a driver offers the GPUs."""
    cache = nodes(number, 0)
    cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu")))
    capacity = {"share": model.DeviceCapacity("1000")} if share else {}
    for at in range(number):
        devices = [
            model.Device(f"gpu-{gpu}", capacity=capacity, allow_multiple_allocations=share or None)
            for gpu in range(GPUS)
        ]
        spec = model.ResourceSliceSpec("gpu.example.com", model.ResourcePool(f"n{at}", 1, 1), f"n{at}", devices=devices)
        cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(f"s{at}"), spec))
    return cache


def runtime_of(cache: Cache) -> Runtime:
    names = ("PrioritySort", "AntiFragmentation", "DynamicResources", "NodeResourcesFit", "DefaultBinder")
    args: list[dict[str, Any]] = [
        {"name": "AntiFragmentation", "args": {"typicalPods": TYPICAL}},
        {"name": "DynamicResources", "args": {"allocationOrder": "best"}},
    ]
    multi = {"disabled": [{"name": "*"}], "enabled": [{"name": each} for each in names]}
    profile = {"schedulerName": "default-scheduler", "plugins": {"multiPoint": multi}, "pluginConfig": args}
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return make_profiles(json.dumps(document), FakeHandle(cache))["default-scheduler"]


def claiming(cache: Cache, name: str, gpus: int, cpu: int = 4, share: int = 0, *expressions: str) -> PodInfo:
    """A pod with a claim for so many GPUs, or so many thousandths of each, that these expressions select."""
    owner = model.OwnerReference("Pod", name, name, "v1", controller=True)
    metadata = model.ObjectMeta(name, "default", f"claim-{name}", owner_references=[owner])
    capacity = model.CapacityRequirements({"share": f"{share}"}) if share else None
    selectors = [model.DeviceSelector(model.CelDeviceSelector(each)) for each in expressions]
    exactly = model.ExactDeviceRequest("gpu", selectors, "ExactCount", gpus, capacity=capacity)
    spec = model.ResourceClaimSpec(model.DeviceClaim([model.DeviceRequest("gpu", exactly)]))
    cache.store(resources.RESOURCE_CLAIMS).upsert(model.ResourceClaim(metadata, spec))
    return cache.record(make_pod(name, cpu=cpu, resource_claims=[model.PodResourceClaim("gpu", name)]))


def scores(runtime: Runtime, pod: PodInfo) -> list[float]:
    """The scores of the feasible nodes."""
    filtered = runtime.filter(pod)
    found = runtime.evaluator.scores(filtered).get("AntiFragmentation")
    return [] if found is None else found.tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8), st.integers(1, 4))
def test_nodes_with_claims_are_rated_as_nodes_with_a_device_plugin(
    placed: Sequence[tuple[int, int]], wanted: int
) -> None:
    plain, claimed = nodes(4, GPUS), offering(4)
    of_plain, of_claimed = runtime_of(plain), runtime_of(claimed)
    used = [0] * 4
    for number, (row, gpus) in enumerate(placed):
        if used[row] + gpus > GPUS:
            continue
        used[row] += gpus
        plain.place(plain.record(make_pod(f"p{number}", cpu=4, gpus=gpus)), row)
        claimed.place(claiming(claimed, f"p{number}", gpus), row)
        assert scores(of_claimed, claiming(claimed, f"q{number}", wanted)) == pytest.approx(
            scores(of_plain, plain.record(make_pod(f"q{number}", cpu=4, gpus=wanted)))
        )

    rated = scores(of_claimed, claiming(claimed, "q", wanted))
    assert rated == pytest.approx(scores(of_plain, plain.record(make_pod("q", cpu=4, gpus=wanted))))
    assert len(rated) == sum(GPUS - each >= wanted for each in used)


def test_a_share_is_rated_by_the_thousandths_that_it_takes() -> None:
    cache = offering(2, share=True)
    runtime = runtime_of(cache)
    cache.place(claiming(cache, "first", 1, share=600), 1)

    whole, begun = scores(runtime, claiming(cache, "second", 1, share=400))
    other, cut = scores(runtime, claiming(cache, "third", 1, share=500))

    assert begun > whole
    assert cut - other < begun - whole


def test_gpus_that_are_given_back_count_again() -> None:
    cache = offering(2)
    runtime = runtime_of(cache)
    before = scores(runtime, claiming(cache, "q", 1))
    pod = claiming(cache, "p", 3)

    cache.place(pod, 0)
    between = scores(runtime, claiming(cache, "q", 1))
    cache.unplace(pod)

    assert between != before
    assert scores(runtime, claiming(cache, "q", 1)) == before


@pytest.mark.parametrize(("seconds", "wanted"), [(10.0, (2, 1000)), (0.0, (0, 0))], ids=["enough", "none"])
def test_a_pod_whose_selectors_take_longer_than_there_is_time_counts_as_one_without_gpus(
    seconds: float, wanted: tuple[int, int]
) -> None:
    cache = offering(1)
    handle = FakeHandle(cache)

    pod = claiming(cache, "p", 2, 4, 0, 'device.driver == "gpu.example.com"')
    assert OfferedGpus(handle, seconds).wanted(pod) == wanted
