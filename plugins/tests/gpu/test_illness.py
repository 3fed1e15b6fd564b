"""Pods on a GPU that falls ill are told, once; they stay where they are."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from gangline import custom_resources, resources
from gangline.model import Pod
from gangline.testing import Cache, FakeHandle, RecordedEvent, make_pod, make_runtime
from gangline_plugins.gpu.claim import GpuClaim
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.illness import Illness

from .gpu_cases import gpu_cluster, report


def ill(*ids: int, reason: str = "") -> custom_resources.GpuNodeStatus:
    found = report("a", health=dict.fromkeys(ids, "Unhealthy"))
    devices = [msgspec.structs.replace(d, reason=reason if d.id in ids else "") for d in found.status.devices]
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, devices=devices))


def has(name: str, ids: str) -> Pod:
    """A pod on node a with these two GPUs."""
    return make_pod(
        name, gpus=2, node="a", annotations={custom_resources.ALLOCATED: ids, custom_resources.ALLOCATED_UUIDS: ""}
    )


def two_pods() -> Cache:
    return gpu_cluster([report("a")], pods=[has("first", "0,1"), has("second", "2,3")])


def news(illness: Illness, cache: Cache) -> list[tuple[str, str]]:
    return [(pod.name, note) for pod, note in illness.news(device_table(cache), cache)]


def test_each_pod_is_told_once_of_each_device_that_falls_ill_under_it() -> None:
    cache, illness = two_pods(), Illness()
    assert news(illness, cache) == []

    cache.store(resources.GPU_NODE_STATUSES).upsert(ill(1, 7, reason="XID 79"))
    ((name, note),) = news(illness, cache)
    assert name == "first"
    assert note.startswith("GPU 1 of node a, which the pod has, is unhealthy: XID 79; a pod on its own stays")
    assert news(illness, cache) == []

    cache.store(resources.GPU_NODE_STATUSES).upsert(ill(0, 1, 2))
    assert [(name, note[:5]) for name, note in news(illness, cache)] == [("first", "GPU 0"), ("second", "GPU 2")]


def test_a_device_of_unknown_health_is_not_ill() -> None:
    cache = two_pods()
    cache.store(resources.GPU_NODE_STATUSES).upsert(report("a", health={0: "Unknown"}))

    assert news(Illness(), cache) == []


def test_what_a_pod_was_told_is_forgotten_with_it() -> None:
    cache, illness = two_pods(), Illness()
    cache.store(resources.GPU_NODE_STATUSES).upsert(ill(0))
    assert len(news(illness, cache)) == 1
    cache.remove_pod("pod-default-first")
    assert news(illness, cache) == []

    cache.upsert_pod(cache.record(has("first", "0,1")))

    assert len(news(illness, cache)) == 1


@pytest.mark.parametrize("profiles", [1, 2])
async def test_the_event_is_on_the_pod_however_many_profiles_there_are(profiles: int) -> None:
    cache = two_pods()
    handles = [FakeHandle(cache) for _ in range(profiles)]
    for handle in handles:
        make_runtime(cache, GpuClaim, handle=handle)
    cache.store(resources.GPU_NODE_STATUSES).upsert(ill(3))

    events = await _after_one_look(handles)

    (event,) = events
    assert (event.pod, event.kind, event.reason) == ("default/second", "Warning", "GpuUnhealthy")


async def _after_one_look(handles: Sequence[FakeHandle]) -> list[RecordedEvent]:
    work = [asyncio.create_task(run()) for handle in handles for _, run in handle.background.work]
    await asyncio.sleep(0)
    for task in work:
        task.cancel()
    await asyncio.gather(*work, return_exceptions=True)
    return [event for handle in handles for event in handle.fake_recorder.events]
