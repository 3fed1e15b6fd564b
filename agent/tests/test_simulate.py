"""One process reports for all nodes that match, as they come, change and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest

from gangline.errors import Forbidden
from gangline.kube.interface import EventType
from gangline.kube.resources import GPU_NODE_STATUSES, NODES, RESOURCE_SLICES
from gangline.wire.custom_resources import GpuNodeStatus
from gangline_agent import devices, templates
from gangline_agent.offering import PAUSE
from gangline_agent.simulate import MakeOffer, Simulation

from .stories import RecordingClient, add_node, eventually, play

Statuses = dict[str, GpuNodeStatus]


@asynccontextmanager
async def simulating(
    client: RecordingClient, period: float = 1e6, what: str = "pcie-4", make_offer: MakeOffer | None = None
) -> AsyncIterator[Simulation]:
    simulation = Simulation(client, templates.read(what), period, label_selector="gpus", make_offer=make_offer)
    running = asyncio.create_task(simulation.run())
    yield simulation
    running.cancel()
    await asyncio.wait((running,))


async def until(client: RecordingClient, holds: Callable[[Statuses], bool]) -> Statuses:
    """The GpuNodeStatuses by name once the condition holds for them."""
    async with asyncio.timeout(60):
        listing = await client.list(GPU_NODE_STATUSES)
        found = {each.metadata.name: each for each in listing.items}
        if holds(found):
            return found
        async with aclosing(client.watch(GPU_NODE_STATUSES, resource_version=listing.resource_version)) as events:  # type: ignore[type-var]  # an async generator, as its docstring says
            async for event in events:
                if event.object is None:
                    continue
                if event.type is EventType.DELETED:
                    found.pop(event.object.metadata.name)
                else:
                    found[event.object.metadata.name] = event.object
                if holds(found):
                    return found
    raise AssertionError("the watch ended")


def total(statuses: Statuses) -> int:
    return sum(each.status.total for each in statuses.values())


@pytest.mark.parametrize(
    ("labels", "line"),
    [({"gpus": ""}, "simulating 1 nodes: gpus"), ({}, "no node is there yet with gpus: none is simulated")],
    ids=["some", "none"],
)
def test_it_says_whether_there_are_nodes_to_simulate(
    caplog: pytest.LogCaptureFixture, labels: dict[str, str], line: str
) -> None:
    caplog.set_level(logging.INFO)

    async def story(client: RecordingClient) -> None:
        await add_node(client, "a", labels)
        async with simulating(client):
            await eventually(lambda: line in caplog.messages)

    play(story)


def test_it_waits_for_the_nodes_and_then_for_each_of_them_to_be_published() -> None:
    said: list[str | None] = []

    async def story(client: RecordingClient) -> None:
        await add_node(client, "a", {"gpus": ""})
        async with simulating(client) as simulation:
            said.append(simulation.waiting_for())
            await until(client, lambda found: total(found) == 4)
            await client.labelled.wait()
            client.failures = [("gpunodestatuses", Forbidden(403, "Forbidden", "no more"))] * 1000
            await add_node(client, "b", {"gpus": ""})
            await eventually(lambda: "no more" in (simulation.waiting_for() or ""))
            said.append(simulation.waiting_for())
            client.failures = []
            await until(client, lambda found: total(found) == 8)
            await eventually(lambda: simulation.waiting_for() is None)

    play(story)

    assert said == [
        "the nodes are not listed yet",
        "1 of 2 nodes are not published, such as b: 403 Forbidden: no more",
    ]


def test_every_node_that_matches_gets_a_status_and_no_other() -> None:
    async def story(client: RecordingClient) -> None:
        for name in ("a", "b"):
            await add_node(client, name, {"gpus": ""})
        await add_node(client, "plain")
        async with simulating(client):
            await until(client, lambda found: total(found) == 8)
            await add_node(client, "c", {"gpus": ""})
            found = await until(client, lambda found: total(found) == 12)
            assert set(found) == {"a", "b", "c"}
            assert len({device.uuid for each in found.values() for device in each.status.devices}) == 12

    play(story)


@pytest.mark.parametrize(
    ("labels", "reported"), [({"nvidia.com/gpu.present": "true"}, 4), ({}, 0)], ids=["with a sign", "without"]
)
def test_the_one_node_that_is_named_is_simulated_where_there_is_a_sign_of_gpus(
    labels: dict[str, str], reported: int
) -> None:
    async def story(client: RecordingClient) -> None:
        for name in ("a", "b"):
            await add_node(client, name, labels)
        simulation = Simulation(client, templates.read("pcie-4"), 1e6, node="a")
        running = asyncio.create_task(simulation.run())
        await until(client, lambda found: total(found) == reported)
        await eventually(lambda: simulation.waiting_for() is None)
        assert len(simulation.newest()) == (1 if reported else 0)
        running.cancel()
        await asyncio.wait((running,))

    play(story)


def test_the_status_goes_with_its_node_and_comes_again_with_a_new_one() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "a", {"gpus": ""})
        async with simulating(client):
            (first,) = (await until(client, lambda found: total(found) == 4)).values()
            await client.delete(NODES, "a")
            await until(client, lambda found: not found)
            node = await add_node(client, "a", {"gpus": ""})
            (second,) = (await until(client, lambda found: total(found) == 4)).values()
            assert second.metadata.uid != first.metadata.uid
            assert [owner.uid for owner in second.metadata.owner_references] == [node.metadata.uid]

    play(story)


def test_a_gpu_that_falls_ill_is_reported_and_only_its_node_is_written() -> None:
    async def story(client: RecordingClient) -> None:
        for name in ("a", "b"):
            await add_node(client, name, {"gpus": ""})
        async with simulating(client) as simulation:
            await until(client, lambda found: total(found) == 8)
            await client.labelled.wait()
            template = templates.read("pcie-4")
            before = len([each for each in client.applied if each.subresource])
            simulation.use(templates.Template(template.status, template.labels, {"b": {1: "XID 79"}}))
            found = await until(client, lambda found: any(device.reason for device in found["b"].status.devices))
            assert [device.health for device in found["b"].status.devices][1] == "Unhealthy"
            assert [each.name for each in client.applied if each.subresource][before:] == ["b"]

    play(story)


def test_heartbeats_come_evenly_over_the_period() -> None:
    async def story(client: RecordingClient) -> None:
        for name in ("a", "b"):
            await add_node(client, name, {"gpus": ""})
        async with simulating(client, period=30.0):
            await until(client, lambda found: total(found) == 8)
            await asyncio.sleep(1)
            before = len(client.applied)
            await asyncio.sleep(61)
            beats = [each.name for each in client.applied[before:]]
            assert sorted(beats) == ["a", "a", "b", "b"]
            assert beats[:2] in (["a", "b"], ["b", "a"])

    play(story)


def test_a_clique_label_on_the_node_is_the_clique_of_its_fabric() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "a", {"gpus": "", "nvidia.com/gpu.clique": "rack.1"})
        async with simulating(client, what="gb200"):
            (found,) = (await until(client, lambda found: total(found) == 4)).values()
            assert found.status.fabric is not None
            assert found.status.fabric.clique == "rack.1"

    play(story)


def test_starting_again_changes_nothing_but_the_time() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "a", {"gpus": ""})
        objects = []
        for _ in range(2):
            async with simulating(client):
                (found,) = (await until(client, lambda found: total(found) == 4)).values()
                objects.append((found.metadata.uid, found.status.devices))
        assert objects[0] == objects[1]

    play(story)


async def offered(client: RecordingClient) -> dict[str, list[str]]:
    """Node to the UUIDs that its slices offer; the index of a device with a taint stands behind them."""
    found: dict[str, list[str]] = {}
    for each in (await client.list(RESOURCE_SLICES)).items:
        for device in each.spec.devices:
            said = found.setdefault(each.spec.node_name or "", [])
            said.append(device.attributes["uuid"].string or "")
            said += [f"{device.attributes['index'].int_}"] if device.taints else []
    return found


def test_every_node_offers_the_devices_that_its_status_reports_and_takes_them_away_when_it_goes() -> None:
    async def story(client: RecordingClient) -> None:
        for name in ("a", "b"):
            await add_node(client, name, {"gpus": ""})
        async with simulating(client, make_offer=devices.of_reading) as simulation:
            found = await until(client, lambda found: total(found) == 8)
            await eventually(lambda: simulation.waiting_for() is None)
            reported = {name: [device.uuid for device in each.status.devices] for name, each in found.items()}
            assert await offered(client) == reported
            template = templates.read("pcie-4")
            simulation.use(msgspec.structs.replace(template, unhealthy={"b": {1: "XID 79"}}))
            await until(client, lambda found: any(device.reason for device in found["b"].status.devices))
            await asyncio.sleep(PAUSE + 1)
            reported["b"].insert(2, "1")
            assert await offered(client) == reported
            await client.delete(NODES, "a")
            await until(client, lambda found: "a" not in found)
            await eventually(lambda: "a" not in simulation.newest())
            await asyncio.sleep(1)
            assert set(await offered(client)) == {"b"}

    play(story)


def test_without_a_word_about_slices_no_node_offers_any() -> None:
    async def story(client: RecordingClient) -> None:
        await add_node(client, "a", {"gpus": ""})
        async with simulating(client):
            await until(client, lambda found: total(found) == 4)
            await asyncio.sleep(60)
            assert await offered(client) == {}

    play(story)
