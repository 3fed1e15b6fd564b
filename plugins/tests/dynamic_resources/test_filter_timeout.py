"""The argument filterTimeout: a search for devices ends, and the next one goes on where it ended."""

from __future__ import annotations

import pytest

from gangline import Deadline, DeadlineExceeded, Seconds, model, resources
from gangline.testing import FakeHandle, cluster, make_node, make_pod, make_runtime
from gangline_plugins.dynamic_resources import DynamicResources, DynamicResourcesArgs

from .claim_cases import DRIVER, spec

NODES = 3


@pytest.mark.parametrize(("timeout", "ends"), [(1e-9, True), (10.0, False), (0.0, False)])
def test_a_search_takes_no_longer_than_the_argument_says(timeout: float, ends: bool) -> None:
    cache = cluster([make_node(f"n{number}") for number in range(NODES)])
    cache.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu"), model.DeviceClassSpec()))
    for number in range(NODES):  # counting cannot answer constraints about different requests: nodes are searched
        devices = [
            model.Device(f"d{each}", attributes={"half": model.DeviceAttribute(string=f"{number}-{each // 2}")})
            for each in range(4 + number)
        ]
        made = model.ResourceSliceSpec(
            driver=DRIVER, pool=model.ResourcePool(f"n{number}", 1, 1), node_name=f"n{number}", devices=devices
        )
        cache.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(f"s{number}"), made))
    request = model.ExactDeviceRequest("gpu", allocation_mode="ExactCount", count=1)
    wanted = spec(model.DeviceRequest("left", request), model.DeviceRequest("right", request))
    wanted.devices.constraints = [
        model.DeviceConstraint(match_attribute=f"{DRIVER}/half", requests=names) for names in ([], ["left"])
    ]
    cache.store(resources.RESOURCE_CLAIMS).upsert(
        model.ResourceClaim(model.ObjectMeta("c", "default", uid="c"), wanted)
    )
    args = DynamicResourcesArgs(filter_timeout=Seconds(timeout))
    runtime = make_runtime(cache, DynamicResources, handle=FakeHandle(cache), args={"DynamicResources": args})
    pod = cache.record(make_pod("p", resource_claims=[model.PodResourceClaim("gpu", "c")]))

    with runtime.evaluator.within(Deadline(60.0)):
        if ends:
            with pytest.raises(DeadlineExceeded):
                runtime.filter(pod)
        else:
            assert int(runtime.filter(pod).feasible.sum()) == NODES
