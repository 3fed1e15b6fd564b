"""Two schedulers at once: no device is in the claims of two pods that are bound, and no device is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gangline import model, resources
from gangline.simulate import SimulatedClient
from gangline.testing import make_node

from .claim_cases import DRIVER, Cluster, exactly

RACED_NODES = 5 if os.environ.get("CI") else 3
LATENCY = {"patch": 0.04, "get": 0.02, "bind": 0.02}


class LateClient(SimulatedClient):
    """Its watch of claims shows everything late."""

    def __init__(self, cluster: Cluster, seconds: float, **more: Any) -> None:
        super().__init__(cluster.simulated.server, latency=LATENCY, **more)
        self._clock = cluster.simulated.clock
        self.seconds = seconds

    async def watch(self, resource: resources.Resource[Any], **selected: Any) -> AsyncIterator[Any]:
        """See the interface."""
        came: asyncio.Queue[tuple[float, Any]] = asyncio.Queue()

        async def follow() -> None:
            async for event in super(LateClient, self).watch(resource, **selected):
                late = self.seconds if resource.plural == resources.RESOURCE_CLAIMS.plural else 0.0
                came.put_nowait((self._clock.monotonic() + late, event))

        following = asyncio.create_task(follow())
        try:
            while True:
                due, event = await came.get()
                await asyncio.sleep(max(0.0, due - self._clock.monotonic()))
                yield event
        finally:
            following.cancel()


@pytest.mark.parametrize("names", [("one", "two"), ("one", "one")], ids=["two names", "replicas"])
@pytest.mark.parametrize("late", [(0.0, 0.0), (0.001, 0.3)], ids=["alike", "one is late"])
def test_no_device_goes_to_two_pods_and_all_are_given(names: tuple[str, str], late: tuple[float, float]) -> None:
    devices = 8 * RACED_NODES
    cluster = Cluster(**{f"n{number}": 8 for number in range(RACED_NODES)})

    async def story() -> None:
        cluster.template("one")
        for number in range(devices * 3 // 2):
            cluster.pod(f"p{number}", "one", scheduler_name=names[number % 2])
        first, second = (LateClient(cluster, seconds) for seconds in late)
        async with (
            cluster.scheduling(name=names[0], client=first, seed=1),
            cluster.scheduling(name=names[1], client=second, seed=2),
        ):
            await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == devices, seconds=600.0)
            await asyncio.sleep(60.0)

    cluster.play(story, schedules=False)
    assert len(cluster.simulated.bound()) == len(cluster.given()) == devices
    cluster.check()
    assert {consumer.name for claim in cluster.claims().values() for consumer in claim.status.reserved_for} == set(
        cluster.simulated.bound()
    )


def test_the_allocation_that_was_written_first_stays() -> None:
    """The second scheduler does not see the first one's claim before it has written its own."""
    cluster = Cluster(a=1)
    writes: list[str] = []

    def note(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if verb == "patch" and resource.plural == resources.RESOURCE_CLAIMS.plural:
            writes.append(name)

    async def story() -> None:
        cluster.claim("c")
        cluster.claim("d")
        second = LateClient(cluster, 2.0, faults=note)
        async with cluster.scheduling(name="one"), cluster.scheduling(name="two", client=second):
            await cluster.settle()
            cluster.pod("p", claim="c", scheduler_name="one")
            await cluster.bound("p")
            cluster.pod("q", claim="d", scheduler_name="two")
            await cluster.simulated.until(lambda: len(writes) >= 3)
            await cluster.settle()
            assert cluster.simulated.bound() == {"p": "a"}
            cluster.simulated.server.delete(resources.PODS, "p", namespace="default")
            await cluster.bound("q")

    cluster.play(story, schedules=False)
    assert writes[:3] == ["d", "d", "d"]  # finalizer, devices, and the devices are taken back
    cluster.check()


def test_a_pod_is_tried_again_if_the_watch_does_not_show_what_was_written() -> None:
    cluster = Cluster(a=1)

    async def story() -> None:
        cluster.template("one")
        late = LateClient(cluster, 0.0)
        async with cluster.scheduling(client=late):
            cluster.pod("p", "one")
            await cluster.simulated.until(lambda: bool(cluster.claims()))
            late.seconds = 100.0
            await asyncio.sleep(90.0)
            assert not cluster.simulated.bound()
            late.seconds = 0.0
            await cluster.simulated.until(lambda: bool(cluster.simulated.bound()), seconds=900.0)

    cluster.play(story, schedules=False)
    assert len(cluster.given()) == 1
    cluster.check()


@pytest.mark.parametrize(("capacity", "bound"), [("4", 4), ("9", 8)])
def test_shares_of_a_device_go_to_as_many_pods_as_fit(capacity: str, bound: int) -> None:
    cluster = Cluster()
    cluster.simulated.create(resources.NODES, make_node("a"))
    cluster.offer(
        "a", model.Device("x", capacity={"slots": model.DeviceCapacity(capacity)}, allow_multiple_allocations=True)
    )

    async def story() -> None:
        needs = model.CapacityRequirements({"slots": "1"})
        cluster.template("share", exactly(1, capacity=needs))
        for number in range(8):
            cluster.pod(f"p{number}", "share", scheduler_name=("one", "two")[number % 2])
        second = LateClient(cluster, 0.3)
        async with cluster.scheduling(name="one"), cluster.scheduling(name="two", client=second):
            await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == bound, seconds=600.0)
            await asyncio.sleep(60.0)

    cluster.play(story, schedules=False)
    assert len(cluster.simulated.bound()) == bound
    assert len(cluster.given()) == bound


def test_counters_of_a_pool_suffice_for_the_devices_that_are_given() -> None:
    """Eight devices consume one counter that is enough for five."""
    cluster = Cluster()
    cluster.simulated.create(resources.NODES, make_node("a"))
    pool = model.ResourcePool("a", 2, 1)
    one = model.DeviceCounterConsumption("memory", {"size": model.Counter("1")})
    devices = [
        model.Device(
            f"gpu-{number}",
            attributes={"name": model.DeviceAttribute(string=f"gpu-{number}")},
            consumes_counters=[one],
        )
        for number in range(8)
    ]
    counters = [model.CounterSet("memory", {"size": model.Counter("5")})]
    for made in (
        model.ResourceSliceSpec(DRIVER, pool, "a", devices=devices),
        model.ResourceSliceSpec(DRIVER, pool, "a", shared_counters=counters),
    ):
        name = "devices" if made.devices else "counters"
        cluster.simulated.create(resources.RESOURCE_SLICES, model.ResourceSlice(model.ObjectMeta(name), made))

    async def story() -> None:
        cluster.template("one", exactly(1, selectors=[_named("gpu-1", "gpu-2", "gpu-3")]))
        cluster.template("other", exactly(1, selectors=[_named("gpu-4", "gpu-5", "gpu-6")]))
        for number in range(3):
            cluster.pod(f"p{number}", "one", scheduler_name="one")
            cluster.pod(f"q{number}", "other", scheduler_name="two")
        second = LateClient(cluster, 0.3)
        async with cluster.scheduling(name="one"), cluster.scheduling(name="two", client=second):
            await cluster.simulated.until(lambda: len(cluster.simulated.bound()) == 5, seconds=600.0)
            await asyncio.sleep(60.0)

    cluster.play(story, schedules=False)
    assert len(cluster.simulated.bound()) == 5
    assert len(cluster.given()) == 5


def _named(*names: str) -> model.DeviceSelector:
    listed = ", ".join(f'"{name}"' for name in names)
    return model.DeviceSelector(model.CelDeviceSelector(f'device.attributes["{DRIVER}"].name in [{listed}]'))


def test_a_claim_of_a_pod_that_another_scheduler_has_bound_is_not_taken_back() -> None:
    """Both serve the pod; one has written the claim, and cannot bind."""
    cluster = Cluster(a=1)

    def refuse(verb: str, resource: resources.Resource[Any], name: str) -> None:
        if verb == "bind":
            server = cluster.simulated.server
            (pod,) = (each for each in cluster.simulated.list(resources.PODS) if each.metadata.name == name)
            if not pod.spec.node_name:
                server.bind("default", name, pod.metadata.uid, "a", {})

    async def story() -> None:
        cluster.template("one")
        async with cluster.scheduling(faults=refuse):
            cluster.pod("p", "one")
            await cluster.bound("p")
            await asyncio.sleep(30.0)

    cluster.play(story, schedules=False)
    assert len(cluster.given()) == 1
    cluster.check()
