"""Which devices pods get: the fullest as the table chooses, or those that the published score is best for."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from gangline import custom_resources, resources
from gangline.model import ObjectMeta
from gangline.testing import Cache, cluster, make_node, make_pod, make_runtime
from gangline.testing.deciding import Decision, decide
from gangline_plugins.anti_fragmentation import AntiFragmentation
from gangline_plugins.anti_fragmentation.arguments import AntiFragmentationArgs, TypicalPod
from gangline_plugins.gpu.claim import GpuClaim as GpuClaimPlugin
from gangline_plugins.gpu.devices import device_table

TYPICAL = [TypicalPod(0.9, gpus=1, fraction=0.5), TypicalPod(0.1, gpus=1)]


def node() -> Cache:
    """One node with two GPUs, of which 400 and 500 thousandths are free."""
    cache = cluster([make_node("a", gpus=2)])
    devices = [custom_resources.GpuDevice(id=id, uuid=f"{id}", health="Healthy") for id in range(2)]
    status = custom_resources.GpuNodeStatusStatus(total=2, devices=devices)
    cache.store(resources.GPU_NODE_STATUSES).upsert(
        custom_resources.GpuNodeStatus(ObjectMeta(name="a"), custom_resources.GpuNodeStatusSpec("a"), status)
    )
    for percent in (30, 50, 60):
        spec = custom_resources.GpuClaimSpec(
            devices=custom_resources.ClaimDevices(exclusivity="Shared", fraction=percent / 100)
        )
        cache.store(resources.GPU_CLAIMS).upsert(
            custom_resources.GpuClaim(ObjectMeta(name=f"{percent}", namespace="default"), spec)
        )
    for name, percent, id in (("p0", 60, "0"), ("p1", 50, "1")):
        annotations = {custom_resources.CLAIM: f"{percent}", "gpu.scheduling/allocated": id}
        cache.upsert_pod(cache.record(make_pod(name, node="a", annotations=annotations)))
    return cache


def placed(score: Literal["balanced", "published"], cache: Cache, percent: int) -> Any:
    args = AntiFragmentationArgs(score=score, typical_pods=TYPICAL)
    runtime = make_runtime(cache, AntiFragmentation, GpuClaimPlugin, args={"AntiFragmentation": args})
    record = cache.record(make_pod("new", annotations={custom_resources.CLAIM: f"{percent}"}))
    decision = decide(runtime, record)
    assert isinstance(decision, Decision)
    allocation = device_table(cache).allocation(record.uid)
    assert allocation is not None
    return decision, allocation


@pytest.mark.parametrize("score", ["balanced", "published"])
def test_a_part_goes_where_it_spoils_no_room(score: Literal["balanced", "published"]) -> None:
    decision, allocation = placed(score, node(), 30)

    assert allocation.ids == (0,)
    assert decision.cycle.annotations["gpu.scheduling/allocated"] == "0"


def test_devices_without_room_are_not_moved_to() -> None:
    cache = node()
    _, before = placed("balanced", cache, 50)

    moved = device_table(cache).move(cache.pods["pod-default-new"], [0])

    assert moved is None
    assert device_table(cache).allocation("pod-default-new") == before


def test_moving_a_pod_frees_what_it_had() -> None:
    cache = node()
    placed("balanced", cache, 30)

    device_table(cache).move(cache.pods["pod-default-new"], [1])

    assert device_table(cache).columns.milli[0, :2].tolist() == [400, 200]
