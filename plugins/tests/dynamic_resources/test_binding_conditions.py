"""Devices that become ready some time after they were given: the pod waits, and goes elsewhere if they do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gangline import model, moments, resources
from gangline.simulate import SimulatedClient
from gangline.testing import make_node

from .claim_cases import DRIVER, Cluster

GROUP = "gang.scheduling.koordinator.sh/name"
GANG = {GROUP: "a", "gang.scheduling.koordinator.sh/min-available": "2"}


class Fabric(Cluster):
    """Each node has a device that a driver attaches first."""

    def __init__(self, *nodes: str, **devices: int) -> None:
        super().__init__(**devices)
        for name in nodes:
            self.simulated.create(resources.NODES, make_node(name))
            self.offer(
                name, model.Device("x", binding_conditions=["Attached"], binding_failure_conditions=["AttachFailed"])
            )

    def write(self, status: Any) -> None:
        server = self.simulated.server
        server.patch(resources.RESOURCE_CLAIMS, "c", {"status": status}, namespace="default", subresource="status")

    def say(self, condition: str) -> None:
        """The driver says something of the device that the claim has."""
        (result,) = self.claims()["c"].status.results
        said = {"type": condition, "status": "True", "reason": "Because", "message": "says the driver"}
        device = {"driver": DRIVER, "pool": result.pool, "device": result.device, "conditions": [said]}
        self.write({"devices": [device]})

    async def waits(self) -> str:
        """Wait until the claim has a device; where that is."""
        await self.simulated.until(lambda: bool(self.given()))
        await self.settle()
        assert not self.simulated.bound()
        return self.given()[0][0]


def test_a_pod_is_bound_when_its_device_is_ready_and_one_event_says_that_it_waits() -> None:
    cluster = Fabric("a")

    async def story() -> None:
        cluster.claim("c")
        cluster.pod("p", claim="c")
        await cluster.waits()
        assert cluster.simulated.notes("p").count("waiting for binding conditions for device on node a") == 1
        cluster.say("Attached")
        await cluster.bound("p")

    cluster.play(story)


def taken_away(cluster: Fabric) -> None:
    cluster.write({"allocation": None, "reservedFor": []})


def given_to_others(cluster: Fabric) -> None:
    cluster.write({"reservedFor": [{"resource": "pods", "name": "other", "uid": "other"}]})


def deleted(cluster: Fabric) -> None:
    server = cluster.simulated.server
    server.delete(resources.RESOURCE_CLAIMS, "c", namespace="default")
    taken_away(cluster)
    server.patch(resources.RESOURCE_CLAIMS, "c", {"metadata": {"finalizers": None}}, namespace="default")


def replaced(cluster: Fabric) -> None:
    deleted(cluster)
    cluster.claim("c")


@pytest.mark.parametrize("lose", [taken_away, given_to_others, deleted, replaced])
def test_a_pod_whose_claim_loses_its_device_meanwhile_is_not_bound(lose: Callable[[Fabric], None]) -> None:
    cluster = Fabric("a")

    async def story() -> None:
        cluster.claim("c")
        cluster.pod("p", claim="c")
        await cluster.waits()
        lose(cluster)
        await cluster.settle()
        assert not cluster.simulated.bound()

    cluster.play(story)


@pytest.mark.parametrize("is_late", [False, True], ids=["fails", "is not ready in time"])
def test_a_pod_whose_device_does_not_become_ready_gets_another(is_late: bool) -> None:
    cluster = Fabric("a", "b")

    async def story() -> None:
        cluster.claim("c")
        cluster.pod("p", claim="c")
        first = await cluster.waits()
        cluster.simulated.server.patch(resources.NODES, first, {"spec": {"unschedulable": True}})
        if not is_late:
            cluster.say("AttachFailed")
        other = {"a": "b", "b": "a"}[first]
        await cluster.simulated.until(lambda: [pool for pool, _ in cluster.given()] == [other], seconds=700.0)
        cluster.say("Attached")
        await cluster.bound("p")

    cluster.play(story)
    cluster.check()


def test_a_failure_is_told_with_the_message_of_the_driver() -> None:
    cluster = Fabric("a")

    async def story() -> None:
        cluster.claim("c")
        cluster.pod("p", claim="c")
        await cluster.waits()
        cluster.say("AttachFailed")
        await cluster.told("p", "claim c binding failed: says the driver")

    cluster.play(story)


@pytest.mark.parametrize("size", [1, 2], ids=["a pod", "a gang"])
@pytest.mark.parametrize("after", [300.0, 900.0], ids=["in time", "too late"])
def test_the_time_goes_on_while_no_scheduler_runs(after: float, size: int) -> None:
    """The claim has had a device since before a restart that never becomes ready; then it is given anew."""
    cluster = Fabric("a")

    async def story() -> None:
        cluster.claim("c")
        for number in range(size):
            cluster.pod(f"p{number}", claim="c", annotations=GANG if size > 1 else {})
        async with cluster.scheduling():
            await cluster.waits()
        begin = cluster.simulated.clock.now()
        await asyncio.sleep(after)
        async with cluster.scheduling():
            await cluster.simulated.until(lambda: _freed_since(cluster, begin), seconds=400.0)
            await cluster.waits()
            cluster.say("Attached")
            await cluster.bound(*(f"p{number}" for number in range(size)))

    cluster.play(story, schedules=False)


@pytest.mark.parametrize("is_gone", [False, True], ids=["the device failed", "the node is gone"])
@pytest.mark.parametrize("gangs", [("", ""), ("a", "a", "b", "b")], ids=["pods", "gangs"])
def test_reservations_that_a_dead_scheduler_left_to_those_that_wait_keep_no_device_that_is_of_no_use(
    gangs: tuple[str, ...], is_gone: bool
) -> None:
    cluster = Fabric("a")
    names = [f"p{number}" for number in range(len(gangs))]

    async def story() -> None:
        cluster.claim("c")
        for name, gang in zip(names, gangs, strict=True):
            cluster.pod(name, claim="c", annotations={**GANG, GROUP: gang} if gang else {})
        async with cluster.scheduling():
            await cluster.waits()
        assert len(cluster.claims()["c"].status.reserved_for) == len(names)
        if is_gone:
            cluster.simulated.server.delete(resources.NODES, "a")
        else:
            cluster.say("AttachFailed")
        cluster.simulated.create(resources.NODES, make_node("b"))
        cluster.offer("b", model.Device("y"))
        if not is_gone:
            cluster.simulated.server.patch(resources.NODES, "a", {"spec": {"unschedulable": True}})
        async with cluster.scheduling():
            await cluster.bound(*names)

    cluster.play(story, schedules=False)
    assert cluster.given() == [("b", "y")]
    cluster.check()


def test_a_pod_on_a_node_that_is_gone_keeps_its_device() -> None:
    """As upstream: a pod that shares the claim waits until the pod is deleted, and is not told of a deallocation."""
    cluster = Fabric("a")

    async def story() -> None:
        cluster.claim("c")
        cluster.pod("p", claim="c")
        await cluster.waits()
        cluster.say("Attached")
        await cluster.bound("p")
        cluster.simulated.server.delete(resources.NODES, "a")
        cluster.simulated.create(resources.NODES, make_node("b"))
        cluster.offer("b", model.Device("y"))
        cluster.pod("q", claim="c")
        await cluster.told("q", "still not schedulable")
        await cluster.settle()
        assert "still not schedulable" in cluster.simulated.message("q")

    cluster.play(story)
    assert cluster.given() == [("a", "x")]


class Ahead(SimulatedClient):
    """The API server says that the pod `q` has a node, which no watch has shown yet."""

    async def get(self, resource: Any, name: str, *, namespace: str | None = None) -> Any:
        found = await super().get(resource, name, namespace=namespace)
        if resource is resources.PODS and name == "q":
            found.spec.node_name = "a"
        return found


@pytest.mark.parametrize("waiting", ["", "p", "pr"], ids=["nobody else waits", "a pod waits", "a gang waits"])
def test_a_device_is_not_taken_from_a_pod_that_another_scheduler_has_just_bound(waiting: str) -> None:
    """`q` is that pod; the others wait for other devices of the claim."""
    cluster = Fabric("a")

    async def story() -> None:
        cluster.claim("c")
        for name in waiting:
            cluster.pod(name, claim="c", annotations=GANG if len(waiting) > 1 else {})
        cluster.pod("q", claim="c")
        async with cluster.scheduling():
            await cluster.waits()
        cluster.say("AttachFailed")
        async with cluster.scheduling(client=Ahead(cluster.simulated.server)):
            await cluster.told(waiting[:1] or "q", "resourceclaim not available on the node")
            await asyncio.sleep(60.0)  # each of them is tried again, `q` too

    cluster.play(story, schedules=False)
    assert cluster.given() == [("a", "x")]


def _freed_since(cluster: Fabric, begin: float) -> bool:
    """Whether the claim has no device, or another one than at this moment."""
    allocation = cluster.claims()["c"].status.allocation
    return allocation is None or moments.moment(allocation.allocation_timestamp or "") > begin


def test_a_claim_that_is_not_ready_in_time_stays_with_others_who_use_it() -> None:
    """As upstream: a pod that shares it waits."""
    cluster = Fabric("a", "b")

    async def story() -> None:
        cluster.claim("c")
        cluster.pod("p", claim="c")
        await cluster.waits()
        cluster.say("Attached")
        await cluster.bound("p")
        cluster.say("AttachFailed")
        cluster.pod("q", claim="c")
        await cluster.told("q", "resourceclaim not available on the node")
        await cluster.settle()

    cluster.play(story)
    assert list(cluster.simulated.bound()) == ["p"]
    cluster.check()
