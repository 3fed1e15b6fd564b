"""Watches, and the real informer on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from gangline.errors import Gone
from gangline.kube.informer import Informer
from gangline.kube.interface import EventType, WatchEvent
from gangline.kube.resources import NODES, PODS
from gangline.model import Pod
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock
from gangline.simulate.history import BOOKMARK_AFTER

from .stories import in_virtual_time, node, pod


class Recorder:
    """A handler that keeps what is there, and counts."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.removed: list[str] = []
        self.upserts = 0

    def upsert(self, obj: Pod, /) -> None:
        self.names.add(obj.metadata.name)
        self.upserts += 1

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        self.names.remove(name)
        self.removed.append(name)


@asynccontextmanager
async def following(client: SimulatedClient, clock: VirtualClock) -> AsyncIterator[tuple[Informer[Pod], Recorder]]:
    """An informer that has synced and runs while the block lasts."""
    recorder = Recorder()
    informer = Informer(client, PODS, recorder, clock=clock.monotonic)
    task = asyncio.create_task(informer.run())
    await informer.synced.wait()
    yield informer, recorder
    task.cancel()
    (outcome,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError), outcome


async def events(client: SimulatedClient, count: int, version: int, **selectors: str) -> list[WatchEvent[Pod]]:
    """The first events of a watch from a resourceVersion."""
    found = []
    watch: Any = client.watch(PODS, resource_version=str(version), **selectors)
    async with aclosing(watch) as stream:
        async for event in stream:
            found.append(event)
            if len(found) == count:
                break
    return found


@in_virtual_time
async def test_a_watch_tells_every_change_after_its_version(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("before"))
    version = server.version
    server.apply_manifest(pod("a"))
    server.patch(PODS, "a", {"metadata": {"labels": {"x": "1"}}})
    server.delete(PODS, "a")

    found = await events(client, 3, version)

    assert [event.type for event in found] == [EventType.ADDED, EventType.MODIFIED, EventType.DELETED]
    assert [int(event.resource_version) for event in found] == [version + 1, version + 2, version + 3]
    assert found[2].object is not None
    assert found[2].object.metadata.labels == {"x": "1"}


@in_virtual_time
async def test_a_watch_from_zero_starts_with_what_is_there(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("a"))
    server.apply_manifest(pod("b"))

    found = await events(client, 2, 0)

    assert [(event.type, event.object and event.object.metadata.name) for event in found] == [
        (EventType.ADDED, "a"),
        (EventType.ADDED, "b"),
    ]


@in_virtual_time
async def test_an_object_that_no_longer_matches_is_deleted_for_the_watch(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    version = server.version
    server.apply_manifest(pod("a"))
    server.patch(PODS, "a", {"metadata": {"labels": {"x": "1"}}})
    server.bind("default", "a", "", "n", {})
    bound = server.version

    pending = await events(client, 3, version, field_selector="spec.nodeName=")
    placed = await events(client, 1, version, field_selector="spec.nodeName=n")

    assert [event.type for event in pending] == [EventType.ADDED, EventType.MODIFIED, EventType.DELETED]
    assert pending[2].resource_version == str(bound)
    assert pending[2].object is not None
    assert pending[2].object.spec.node_name == ""
    assert [event.type for event in placed] == [EventType.ADDED]


@in_virtual_time
async def test_a_watch_that_sees_nothing_is_told_how_far_it_is(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    version = server.version
    for number in range(BOOKMARK_AFTER):
        server.apply_manifest(pod(f"p{number}"))

    (event,) = await events(client, 1, version, namespace="other")

    assert (event.type, event.object) == (EventType.BOOKMARK, None)
    assert event.resource_version == str(server.version)


@pytest.mark.parametrize("before", range(1, 10))
@in_virtual_time
async def test_history_is_bounded_at_the_start_and_on_the_way(clock: VirtualClock, before: int) -> None:
    server = InMemoryServer(clock, history=3)
    client = SimulatedClient(server)
    for number in range(before):
        server.apply_manifest(pod(f"b{number}"))
    version = server.version
    for number in range(3):
        server.apply_manifest(pod(f"p{number}"))

    assert len(await events(client, 3, version)) == 3
    with pytest.raises(Gone, match=f"410 Expired: too old resource version: {version - 1} \\({version}\\)"):
        await events(client, 1, version - 1)

    watch = server.watch(PODS, str(server.version))
    for number in range(4):
        server.apply_manifest(pod(f"q{number}"))
    with pytest.raises(Gone):
        await anext(watch)


@in_virtual_time
async def test_closing_the_client_ends_its_watches(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    other = SimulatedClient(server)
    mine = asyncio.create_task(events(client, 1, server.version))
    theirs = asyncio.create_task(events(other, 1, server.version))
    await asyncio.sleep(1)

    await client.close()
    server.apply_manifest(pod("a"))

    assert await mine == []
    assert len(await theirs) == 1


@in_virtual_time
async def test_an_informer_follows_list_and_watch(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("a"))

    async with following(client, clock) as (informer, recorder):
        server.apply_manifest(pod("b"))
        server.delete(PODS, "a")
        await asyncio.sleep(1)

        assert recorder.names == {"b"}
        assert (informer.relists, informer.resource_version) == (1, str(server.version))


@in_virtual_time
async def test_a_delete_while_disconnected_is_seen_from_the_history(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(pod("a"))
    async with following(client, clock) as (informer, recorder):
        await asyncio.sleep(5)

        server.disconnect()
        server.delete(PODS, "a")
        await asyncio.sleep(5)

        assert (recorder.names, recorder.removed) == (set(), ["a"])
        assert (informer.relists, informer.reconnects) == (1, 2)


@in_virtual_time
async def test_a_delete_that_is_forgotten_is_seen_by_listing_again(clock: VirtualClock) -> None:
    server = InMemoryServer(clock, history=4)
    server.apply_manifest(pod("a"))
    async with following(SimulatedClient(server), clock) as (informer, recorder):
        await asyncio.sleep(5)

        server.disconnect()
        server.delete(PODS, "a")
        for number in range(10):
            server.apply_manifest(pod(f"p{number}"))
        await asyncio.sleep(5)

        assert recorder.names == {f"p{number}" for number in range(10)}
        assert recorder.removed == ["a"]
        assert informer.relists == 2


@in_virtual_time
async def test_after_a_compaction_watches_go_on_and_broken_ones_list_again(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    async with following(client, clock) as (informer, recorder):
        server.compact()
        server.apply_manifest(pod("a"))
        await asyncio.sleep(1)
        assert recorder.names == {"a"} and informer.relists == 1

        server.apply_manifest(node("n"))
        server.compact()
        server.disconnect()
        server.apply_manifest(pod("b"))
        await asyncio.sleep(5)

        assert recorder.names == {"a", "b"} and informer.relists == 2


@in_virtual_time
async def test_every_informer_sees_every_bind_of_a_large_cluster(
    clock: VirtualClock, server: InMemoryServer, client: SimulatedClient
) -> None:
    server.apply_manifest(node("n"))
    for number in range(2000):
        server.apply_manifest(pod(f"p{number}"))

    async with following(client, clock) as (_, one), following(client, clock) as (_, two):
        for number in range(0, 2000, 100):
            names = [f"p{each}" for each in range(number, number + 100)]
            await asyncio.gather(*(client.bind("default", name, "", "n", {"a": "b"}) for name in names))
        await asyncio.sleep(1)

        assert (one.upserts, two.upserts) == (4000, 4000)
    assert len(server.list(PODS, field_selector="spec.nodeName=n")) == 2000
    assert len(server.list(NODES)) == 1
