"""ResourceSlices are written on a change, mended if others change them, and never those of other drivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gangline.errors import ApiError, Forbidden, Invalid, TooManyRequests, Unavailable
from gangline.kube.resources import NODES, RESOURCE_SLICES
from gangline.kube.upgrading import slice_downgraded, slice_upgraded
from gangline.model import Node, ObjectMeta, ResourceSlice
from gangline.model.resource_slices import Device, ResourcePool, ResourceSliceSpec
from gangline.simulate import InMemoryServer, VirtualClock, run
from gangline_agent import devices, hardware
from gangline_agent.devices import NOTHING, Offer
from gangline_agent.offering import Offering, Offerings
from gangline_agent.readings import Gpu, Reading

from .stories import RecordingClient, add_node, eventually, play

Listed = list[ResourceSlice]
NAME = "node-gpu.gangline.dev-devices-00"


def gpus(count: int, *sick: int) -> Offer:
    found = tuple(Gpu(id=at, uuid=f"GPU-{at}", problems=("XID 79",) if at in sick else ()) for at in range(count))
    return devices.of_reading(Reading(gpus=found))


def finder(client: RecordingClient) -> Callable[[], Awaitable[Node]]:
    async def find() -> Node:
        return await client.get(NODES, "node")

    return find


@asynccontextmanager
async def offering(client: RecordingClient, offer: Offer | None) -> AsyncIterator[Offering]:
    """The offering of the node `node`, which is published while the block runs."""
    all_ = Offerings(client, "node")
    one = all_.of("node", finder(client))
    if offer is not None:
        one.offer(offer)
    tasks = [asyncio.create_task(each.run()) for each in (all_, one)]
    yield one
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def listed(client: RecordingClient) -> Listed:
    return (await client.list(RESOURCE_SLICES)).items


async def until(client: RecordingClient, holds: Callable[[Listed], bool]) -> Listed:
    """The slices once the condition holds for them."""
    async with asyncio.timeout(120):
        while True:
            if holds(found := await listed(client)):
                return found
            await asyncio.sleep(0.1)


def names(found: Listed) -> list[str]:
    return [device.name for each in found for device in each.spec.devices]


def complete(count: int) -> Callable[[Listed], bool]:
    """Whether there are so many devices, in all slices of one generation."""

    def holds(found: Listed) -> bool:
        pools = {(each.spec.pool.generation, each.spec.pool.resource_slice_count) for each in found}
        return len(names(found)) == count and len(pools) == 1 and next(iter(pools))[1] == len(found)

    return holds


def writes(client: RecordingClient) -> int:
    return sum(each.plural == "resourceslices" for each in client.applied)


def foreign(name: str, driver: str = "gpu.example.com") -> ResourceSlice:
    pool = ResourcePool(name="node", resource_slice_count=1, generation=3)
    spec = ResourceSliceSpec(driver, pool, node_name="node", devices=[Device(name="other")])
    return ResourceSlice(ObjectMeta(name=name), spec)


def test_an_offer_becomes_slices_of_the_node_and_a_change_the_next_generation() -> None:
    async def story(client: RecordingClient) -> None:
        node = await add_node(client, "node")
        async with offering(client, gpus(2)) as one:
            (first,) = await until(client, complete(2))
            assert [owner.uid for owner in first.metadata.owner_references] == [node.metadata.uid]
            assert first.spec.pool.generation == 1
            one.offer(gpus(2, 1))
            (second,) = await until(client, lambda found: any(device.taints for device in found[0].spec.devices))
            assert second.spec.pool.generation == 2
            assert second.metadata.uid == first.metadata.uid
            await eventually(lambda: one.waiting_for() is None)

    assert writes(play(story)) == 2


def test_nothing_is_written_while_nothing_changes_and_none_by_a_restart() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        for _ in range(2):
            async with offering(client, gpus(200)) as one:
                await until(client, complete(200))
                for _ in range(3):
                    one.offer(gpus(200))
                    await asyncio.sleep(60)

    assert writes(play(story)) == 2


def test_slices_that_are_no_longer_needed_go() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        async with offering(client, gpus(200)) as one:
            await until(client, complete(200))
            one.offer(gpus(3))
            (left,) = await until(client, complete(3))
            assert left.spec.pool.generation == 2
            one.offer(NOTHING)
            await until(client, lambda found: not found)

    play(story)


def test_who_is_told_to_withdraw_takes_away_what_an_earlier_agent_published() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        await client.create(RESOURCE_SLICES, foreign("theirs"))
        async with offering(client, gpus(200)):
            await until(client, lambda found: len(names(found)) == 201)
        async with offering(client, NOTHING):
            (left,) = await until(client, lambda found: len(found) == 1)
            assert left.metadata.name == "theirs"

    play(story)


def test_nothing_is_touched_before_there_is_an_offer() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        async with offering(client, gpus(2)):
            before = await until(client, complete(2))
        async with offering(client, None) as one:
            await asyncio.sleep(600)
            assert one.waiting_for() is None
            assert await listed(client) == before

    play(story)


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"spec": {"devices": [{"name": "mine"}]}}, id="devices"),
        pytest.param({"spec": {"pool": {"name": "other", "generation": 1, "resourceSliceCount": 1}}}, id="pool"),
        pytest.param({"spec": {"pool": {"generation": 9}}}, id="generation"),
        pytest.param({"metadata": {"ownerReferences": None}}, id="owner"),
    ],
)
def test_a_slice_that_somebody_changes_is_mended_in_a_newer_generation(patch: Mapping[str, Any]) -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        async with offering(client, gpus(200)):
            await until(client, complete(200))
            changed = await client.patch(RESOURCE_SLICES, NAME, patch)
            mended = await until(client, lambda found: complete(200)(found) and changed not in found)
            assert all(each.spec.pool.name == "node" and each.metadata.owner_references for each in mended)
            assert all(each.spec.pool.generation > changed.spec.pool.generation for each in mended)

    play(story)


def test_a_slice_that_somebody_deletes_or_adds_is_mended() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        async with offering(client, gpus(200)):
            await until(client, complete(200))
            await client.delete(RESOURCE_SLICES, NAME)
            await until(client, complete(200))
            await client.create(RESOURCE_SLICES, foreign("more", driver="gpu.gangline.dev"))
            await until(client, lambda found: complete(200)(found) and "other" not in names(found))

    play(story)


def test_a_slice_of_another_driver_keeps_its_name_and_the_agent_says_so() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        theirs = await client.create(RESOURCE_SLICES, foreign(NAME))
        async with offering(client, gpus(2)) as one:
            await eventually(lambda: one.waiting_for() not in (None, "no ResourceSlices are published yet"))
            assert one.waiting_for() == (
                f"ResourceSlices: 409 AlreadyExists: the ResourceSlice {NAME} is one of the driver gpu.example.com"
            )
            assert await listed(client) == [theirs]
            await client.delete(RESOURCE_SLICES, NAME)
            await until(client, complete(2))
            await eventually(lambda: one.waiting_for() is None)

    play(story)


@pytest.mark.parametrize(
    "failure",
    [
        Unavailable(0, "ConnectionFailed", "refused"),
        Forbidden(403, "Forbidden", "resourceslices is forbidden"),
        TooManyRequests(429, "TooManyRequests", "later"),
        Invalid(422, "Invalid", "spec.devices: too many"),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_an_api_error_is_named_and_ends_nothing(failure: ApiError) -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        client.failures = [("resourceslices", failure)] * 5
        async with offering(client, gpus(200)) as one:
            await eventually(lambda: str(failure) in (one.waiting_for() or ""))
            one.offer(gpus(3))
            await until(client, complete(3))
            await eventually(lambda: one.waiting_for() is None)

    play(story)


def test_a_server_without_the_kind_is_asked_again_until_it_has_it() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        has, nothing = client.served, True

        async def served(group: str, version: str) -> set[str]:
            return set() if nothing else await has(group, version)

        client.served = served  # type: ignore[method-assign]
        async with offering(client, gpus(2)) as one:
            await eventually(lambda: "the API server has no ResourceSlices" in (one.waiting_for() or ""))
            nothing = False
            await until(client, complete(2))

    play(story)


class Forgetful(RecordingClient):
    """A server that keeps neither taints nor counters of devices."""

    async def apply(self, resource: Any, name: str, body: Mapping[str, Any], **more: Any) -> Any:
        """See the interface."""
        if resource.plural == RESOURCE_SLICES.plural:
            spec = {key: value for key, value in body["spec"].items() if key != "sharedCounters"}
            kept = [
                {key: value for key, value in each.items() if key not in ("taints", "consumesCounters")}
                for each in spec.get("devices", [])
            ]
            body = {**body, "spec": {**spec, "devices": kept}}
        return await super().apply(resource, name, body, **more)


@pytest.mark.parametrize(
    ("offer", "left"),
    [
        pytest.param(gpus(3, 1), ["gpu-0", "gpu-2"], id="taints"),
        pytest.param(
            devices.of_reading(hardware.dgx_h100(), with_partitions=True),
            [f"gpu-{at}" for at in range(8)],
            id="counters",
        ),
    ],
)
def test_where_the_server_does_not_keep_a_feature_what_needs_it_is_not_offered(offer: Offer, left: list[str]) -> None:
    async def story() -> None:
        client = Forgetful(InMemoryServer(VirtualClock()))
        await add_node(client, "node")
        async with offering(client, offer) as one:
            await until(client, lambda found: names(found) == left and complete(len(left))(found))
            await eventually(lambda: one.waiting_for() is None)
            before = writes(client)
            one.look()
            await asyncio.sleep(60)
            assert writes(client) == before

    run(story())


class Strict(RecordingClient):
    """A server that wants counters beside the devices that consume them, as that of Kubernetes 1.34."""

    async def apply(self, resource: Any, name: str, body: Mapping[str, Any], **more: Any) -> Any:
        """See the interface."""
        spec = body.get("spec", {})
        if any(each.get("consumesCounters") for each in spec.get("devices", ())):
            raise Invalid(422, "Invalid", "spec.devices[0].consumesCounters[0].counterSet: not in sharedCounters")
        return await super().apply(resource, name, body, **more)


def test_where_the_server_refuses_counters_gpus_are_offered_whole() -> None:
    async def story() -> None:
        client = Strict(InMemoryServer(VirtualClock()))
        await add_node(client, "node")
        async with offering(client, devices.of_reading(hardware.dgx_h100(), with_partitions=True)):
            found = await until(client, complete(8))
            assert not any(each.spec.shared_counters for each in found)

    run(story())


class Meddling(RecordingClient):
    """A server where something adds an attribute to each device that is written."""

    async def apply(self, resource: Any, name: str, body: Mapping[str, Any], **more: Any) -> Any:
        """See the interface."""
        if resource.plural == RESOURCE_SLICES.plural:
            given = [
                {**each, "attributes": {**each["attributes"], "more": {"bool": True}}}
                for each in body["spec"]["devices"]
            ]
            body = {**body, "spec": {**body["spec"], "devices": given}}
        return await super().apply(resource, name, body, **more)


def test_where_something_changes_what_is_written_it_is_not_written_without_end() -> None:
    async def story() -> None:
        client = Meddling(InMemoryServer(VirtualClock()))
        await add_node(client, "node")
        async with offering(client, gpus(2)) as one:
            await asyncio.sleep(600)
            assert "somebody changes the ResourceSlices" in (one.waiting_for() or "")
            assert 2 <= writes(client) < 150

    run(story())


def test_two_agents_that_offer_for_one_node_take_turns() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        async with offering(client, gpus(2)), offering(client, gpus(3)):
            await asyncio.sleep(60)
            assert writes(client) < 100

    play(story)


def test_a_second_owner_stays() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        async with offering(client, gpus(2)) as one:
            (found,) = await until(client, complete(2))
            (owner,) = msgspec.to_builtins(found.metadata.owner_references)
            more = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"}
            await client.patch(RESOURCE_SLICES, NAME, {"metadata": {"ownerReferences": [owner, more]}})
            await asyncio.sleep(60)
            (found,) = await listed(client)
            assert [each.kind for each in found.metadata.owner_references] == ["Node", "ConfigMap"]
            assert one.waiting_for() is None

    assert writes(play(story)) == 1


def test_slices_go_and_come_with_their_node() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "node")
        async with offering(client, gpus(2)):
            await until(client, complete(2))
            await client.delete(NODES, "node")
            node = await add_node(client, "node")
            await client.delete(RESOURCE_SLICES, NAME)  # as the garbage collector does
            (found,) = await until(client, complete(2))
            assert [owner.uid for owner in found.metadata.owner_references] == [node.metadata.uid]

    play(story)


def test_a_slice_of_the_oldest_version_says_the_same() -> None:
    device = {"name": "gpu-0", "attributes": {"index": {"int": 0}}, "taints": [{"key": "a", "effect": "NoSchedule"}]}
    data = {"spec": {"driver": "gpu.gangline.dev", "devices": [device]}}

    older = slice_downgraded(data)

    assert older["spec"]["devices"] == [
        {"name": "gpu-0", "basic": {"attributes": device["attributes"], "taints": device["taints"]}}
    ]
    assert slice_upgraded(older) == data


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_an_older_version_is_written_where_the_server_has_no_newer_one(version: str) -> None:
    (resource,) = (each for each in RESOURCE_SLICES.older if each.version == version)

    async def story() -> None:
        client = RecordingClient(InMemoryServer(VirtualClock(), serves=[resource]))
        has = client.served

        async def served(group: str, version: str) -> set[str]:
            return await has(group, version) if version != "v1" else set()

        client.served = served  # type: ignore[method-assign]
        await add_node(client, "node")
        async with offering(client, gpus(2)) as one:
            await eventually(lambda: one.waiting_for() is None and writes(client) == 1)
            (applied,) = (each for each in client.applied if each.plural == "resourceslices")
            assert ("basic" in applied.body["spec"]["devices"][0]) is (version == "v1beta1")
            (found,) = (await client.list(resource)).items
            assert names([found]) == ["gpu-0", "gpu-1"]

    run(story())
