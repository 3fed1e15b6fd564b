"""Selections of one kind that overlap: each has its own watch, and one watch may be slower than another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any, cast

import pytest

from gangline.kube.informer import Informer
from gangline.kube.interface import Client, EventType, Listing, WatchEvent
from gangline.kube.resources import LEASES, Selection
from gangline.loop.following import Informers
from gangline.loop.watching import PodHandler
from gangline.model import Lease, LeaseSpec, ObjectMeta

from .test_watching import World

A, B = (Selection(LEASES, label_selector=label) for label in ("a=yes", "b=yes"))
ADDED, MODIFIED, DELETED = EventType.ADDED, EventType.MODIFIED, EventType.DELETED


def lease(version: int, uid: str = "first") -> Lease:
    return Lease(ObjectMeta(name="l", namespace="default", uid=uid, resource_version=str(version)), LeaseSpec())


class Told:
    """An API server whose lists and watches tell each selector what it is told to."""

    def __init__(self) -> None:
        self.lists: dict[str, Listing[Lease]] = {}
        self.events: dict[str, list[WatchEvent[Lease]]] = {}

    async def list(self, resource: Any, *, label_selector: str, **query: Any) -> Listing[Lease]:
        return self.lists[label_selector]

    async def watch(self, resource: Any, *, label_selector: str, **query: Any) -> AsyncIterator[WatchEvent[Lease]]:
        for event in self.events.pop(label_selector, ()):
            yield event


class Followed:
    """Two selections of leases; a plugin hears what becomes of the leases."""

    def __init__(self) -> None:
        self.client, world = Told(), World()
        client = cast(Client, self.client)
        informers = Informers(client, world.cluster, PodHandler(world.cluster), world.metrics, Random(1))
        informers.follow((A, B))
        self._informers = dict(zip((A, B), informers, strict=False))
        self.store = world.cache.store(LEASES)
        self.store.subscribe(self)
        self.heard: list[str] = []

    def on_upsert(self, obj: Lease, /) -> None:
        self.heard.append(f"{obj.metadata.uid} {obj.metadata.resource_version}")

    def on_remove(self, obj: Lease, /) -> None:
        self.heard.append(f"{obj.metadata.uid} gone")

    async def listed(self, selection: Selection[Lease], version: int, *leases: Lease) -> None:
        informer: Informer[Any] = self._informers[selection]
        self.client.lists[selection.label_selector] = Listing(list(leases), str(version))
        informer.relist()
        await informer.step()

    async def told(self, selection: Selection[Lease], *events: tuple[EventType, Lease]) -> None:
        self.client.events[selection.label_selector] = [
            WatchEvent(kind, obj, obj.metadata.resource_version) for kind, obj in events
        ]
        await self._informers[selection].step()

    @property
    def version(self) -> str:
        """The version of the lease that plugins see; "" for none."""
        found = self.store.get("l", "default")
        return found.metadata.resource_version if found is not None else ""


@pytest.fixture
async def followed() -> Followed:
    made = Followed()
    for selection in (A, B):
        await made.listed(selection, 10, lease(5))
    return made


LEAVES: Sequence[tuple[Selection[Lease], EventType]] = ((A, DELETED), (B, MODIFIED))


@pytest.mark.parametrize("order", [LEAVES, LEAVES[::-1]], ids=["in order", "the other way round"])
async def test_an_object_that_leaves_one_selection_stays_while_it_is_in_another(
    followed: Followed, order: Sequence[tuple[Selection[Lease], EventType]]
) -> None:
    for selection, kind in order:
        await followed.told(selection, (kind, lease(11)))

    assert followed.version == "11"


async def test_an_object_is_gone_when_it_is_in_no_selection_any_more(followed: Followed) -> None:
    for selection in (A, B):
        await followed.told(selection, (DELETED, lease(11)))

    assert followed.version == "" and followed.heard[-1] == "first gone"


async def test_a_slow_watch_does_not_bring_an_older_state_back(followed: Followed) -> None:
    await followed.told(B, (MODIFIED, lease(11)), (MODIFIED, lease(12)))
    await followed.told(A, (MODIFIED, lease(11)))

    assert followed.version == "12"


async def test_an_object_that_was_made_again_stays_when_a_slow_watch_tells_of_the_old_one(followed: Followed) -> None:
    again = ((DELETED, lease(11)), (ADDED, lease(12, "second")))
    await followed.told(B, *again)
    await followed.told(A, again[0])
    assert followed.version == "12"
    await followed.told(A, again[1])

    assert followed.version == "12"
    assert list(dict.fromkeys(followed.heard)) == ["first 5", "first gone", "second 12"]


async def test_after_etcd_was_restored_the_lists_count(followed: Followed) -> None:
    for selection in (A, B):
        await followed.listed(selection, 4, lease(3))

    assert followed.version == "3"
