"""Devices of a class that serves an extended resource count in scores as those of a device plugin do."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import model, resources
from gangline.testing import Cache, FakeHandle, Runtime, cluster, make_node, make_pod, make_runtime
from gangline_plugins.balanced_allocation import Args as BalancedArgs
from gangline_plugins.balanced_allocation import NodeResourcesBalancedAllocation
from gangline_plugins.dynamic_resources import DynamicResources
from gangline_plugins.node_resources_fit import Args, NodeResourcesFit
from gangline_plugins.resource_scoring import ResourceSpec, ScoringStrategy, Shape, ShapePoint

NAME = "example.com/device"
DRIVER = "gpu.example.com"
COUNTED = [ResourceSpec("cpu"), ResourceSpec(NAME, 5)]
Kind = Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]
KINDS: tuple[Kind, ...] = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")
NODES = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=2, max_size=5)
"""Devices of each node, and how many of them are given."""


class World:
    """A cluster whose devices a class serves, and one with device plugins for as many."""

    def __init__(self, totals: list[int]) -> None:
        self.served = cluster([make_node(f"n{row}", cpu=8) for row in range(len(totals))])
        self.advertised = cluster([make_node(f"n{row}", cpu=8, resources={NAME: n}) for row, n in enumerate(totals)])
        self.version = 0
        serving = model.DeviceClassSpec(extended_resource_name=NAME)
        self.served.store(resources.DEVICE_CLASSES).upsert(model.DeviceClass(model.ObjectMeta("gpu"), serving))
        for row, total in enumerate(totals):
            devices = [model.Device(f"d{number}") for number in range(total)]
            made = model.ResourceSliceSpec(DRIVER, model.ResourcePool(f"n{row}", 1, 1), f"n{row}", devices=devices)
            self.served.store(resources.RESOURCE_SLICES).upsert(model.ResourceSlice(model.ObjectMeta(f"s{row}"), made))

    def give(self, row: int, device: int) -> None:
        """A claim gets a device; in the other cluster a pod does."""
        self.version += 1
        name = f"{row}-{device}"
        allocation = model.ResourceClaimAllocation(
            model.AllocatedDevices([model.AllocatedDevice(DRIVER, f"n{row}", f"d{device}")])
        )
        metadata = model.ObjectMeta(name, "default", name, resource_version=str(self.version))
        status = model.ResourceClaimStatus(allocation=allocation)
        self.served.store(resources.RESOURCE_CLAIMS).upsert(model.ResourceClaim(metadata, status=status))
        self.advertised.upsert_pod(self.advertised.record(make_pod(name, resources={NAME: 1}, node=f"n{row}")))
        self.served.upsert_pod(self.served.record(make_pod(name, node=f"n{row}")))


def runtime(cache: Cache, kind: Kind, *plugins: type[Any]) -> Runtime:
    shape = Shape([ShapePoint(0, 0), ShapePoint(60, 10), ShapePoint(100, 5)])
    args: dict[str, msgspec.Struct] = {
        "NodeResourcesFit": Args(scoring_strategy=ScoringStrategy(kind, COUNTED, shape)),
        "NodeResourcesBalancedAllocation": BalancedArgs([*COUNTED, ResourceSpec("memory")]),
    }
    made = (NodeResourcesFit, NodeResourcesBalancedAllocation, *plugins)
    return make_runtime(cache, *made, args=args, handle=FakeHandle(cache))


def scores(of: Runtime, cache: Cache) -> tuple[list[int], dict[str, list[float]]]:
    filtered = of.filter(cache.record(make_pod("p", cpu=2, resources={NAME: 1})))
    found = of.evaluator.scores(filtered)
    names = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")
    return np.flatnonzero(filtered.feasible).tolist(), {name: found[name].tolist() for name in names}


@pytest.mark.parametrize("kind", KINDS)
@given(nodes=NODES)
def test_devices_of_a_class_count_as_those_of_a_device_plugin(kind: Kind, nodes: list[tuple[int, int]]) -> None:
    world = World([total for total, _ in nodes])
    served = runtime(world.served, kind, DynamicResources)
    advertised = runtime(world.advertised, kind)
    assert scores(served, world.served) == scores(advertised, world.advertised)

    for row, (total, given_) in enumerate(nodes):
        for device in range(min(total - (row == 0), given_)):
            world.give(row, device)
            assert scores(served, world.served) == scores(advertised, world.advertised)


def test_a_profile_that_gives_out_no_devices_counts_none() -> None:
    world = World([2, 4])
    alone = runtime(world.served, "MostAllocated")

    filtered = alone.filter(world.served.record(make_pod("p", cpu=2, resources={NAME: 1})))

    assert not filtered.feasible.any()
