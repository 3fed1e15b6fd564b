"""A server that has dynamic resource allocation in an older version alone is read as one that has v1.

The data are what kube-apiserver 1.36 answers in each version for the same objects.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gangline.errors import InvalidObject
from gangline.kube.decoding import decode_event, decode_list, decode_object
from gangline.kube.informer import Informer
from gangline.kube.interface import EventType
from gangline.kube.optional import OptionalInformer
from gangline.kube.resources import (
    DEVICE_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from gangline.kube.upgrading import claim_upgraded, slice_upgraded
from gangline.model import ResourceSlice
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run

RECORDED: Mapping[str, Any] = json.loads((Path(__file__).parent / "data" / "resource_k8s_io.json").read_text())
KINDS: tuple[Resource[Any], ...] = (DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS, RESOURCE_SLICES)
OLDER = [pytest.param(kind, older, id=f"{kind.plural}-{older.version}") for kind in KINDS for older in kind.older]


def recorded(resource: Resource[Any]) -> bytes:
    return json.dumps(RECORDED[resource.version][resource.plural]).encode()


def fail(*what: Any) -> None:
    raise AssertionError(what)


@pytest.mark.parametrize(("newest", "older"), OLDER)
def test_a_list_of_an_older_version_is_that_of_the_newest(newest: Resource[Any], older: Resource[Any]) -> None:
    expected = decode_list(newest, recorded(newest), fail)
    found = decode_list(older, recorded(older), fail)

    for one, other in zip(found.items, expected.items, strict=True):
        one.api_version = other.api_version
        assert one == other
    assert found.items and found.resource_version == expected.resource_version


@pytest.mark.parametrize(("newest", "older"), OLDER)
def test_an_event_of_an_older_version_is_that_of_the_newest(newest: Resource[Any], older: Resource[Any]) -> None:
    def event(resource: Resource[Any]) -> bytes:
        return json.dumps(
            {"type": "MODIFIED", "object": RECORDED[resource.version][resource.plural]["items"][0]}
        ).encode()

    expected, found = decode_event(newest, event(newest), fail), decode_event(older, event(older), fail)

    assert found.type is EventType.MODIFIED and found.object is not None and expected.object is not None
    found.object.api_version = expected.object.api_version
    assert found.object == expected.object and found.resource_version == expected.resource_version


def test_one_object_that_does_not_fit_leaves_the_others_and_says_where() -> None:
    (older,) = (each for each in RESOURCE_SLICES.older if each.version == "v1beta1")
    body = json.loads(recorded(older))
    body["items"][0]["spec"]["devices"][0]["basic"]["capacity"]["memory"] = 7
    told: list[InvalidObject] = []

    found = decode_list(older, json.dumps(body).encode(), lambda resource, namespace, name, error: told.append(error))

    assert [each.metadata.name for each in found.items] == ["t"]
    assert "ResourceSlice s: spec.devices[0].capacity" in str(told[0])


@pytest.mark.parametrize(
    "data",
    [None, 3, {}, {"spec": {"devices": 3}}, {"spec": {"devices": [None, {"basic": 3}]}},
     {"spec": {"devices": {"requests": [3, {"name": "a", "exactly": {"count": 1}}]}}}],
)  # fmt: skip
def test_what_is_newer_or_malformed_stays_as_it_is(data: Any) -> None:
    assert slice_upgraded(data) == data
    assert claim_upgraded(data) == data


def test_a_driver_may_say_nothing_of_a_device_but_data() -> None:
    body = json.loads(recorded(RESOURCE_CLAIMS))
    body["items"][0]["status"]["devices"][0]["conditions"] = None  # as the API server writes it

    (claim,) = decode_list(RESOURCE_CLAIMS, json.dumps(body).encode(), fail).items

    assert claim.status.devices[0].conditions is None


def test_a_null_is_nothing() -> None:
    assert claim_upgraded({"spec": {"devices": {"requests": None}}}) == {"spec": {"devices": {}}}
    assert slice_upgraded({"spec": {"driver": "d", "devices": None}}) == {"spec": {"driver": "d"}}


def test_an_object_is_not_changed_in_place() -> None:
    (older,) = (each for each in RESOURCE_CLAIMS.older if each.version == "v1beta1")
    before = recorded(older)
    claim = RECORDED["v1beta1"]["resourceclaims"]["items"][0]

    claim_upgraded(claim)

    assert recorded(older) == before
    assert decode_object(older, json.dumps(claim).encode()).spec.devices.requests[2].exactly is None


class Names:
    """A handler that keeps the first device of each slice that is there."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}

    def upsert(self, obj: ResourceSlice, /) -> None:
        device = obj.spec.devices[0]
        self.there[obj.metadata.name] = str(device.attributes["model"].string)

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        del self.there[name]


class Versions(SimulatedClient):
    """A client of a server that has some versions, and notes which are used."""

    def __init__(self, server: InMemoryServer, *versions: str) -> None:
        super().__init__(server, faults=lambda verb, resource, name: self.used.append(resource.version))
        self.versions = set(versions)
        self.used: list[str] = []
        self.asked = 0

    async def served(self, group: str, version: str) -> set[str]:
        self.asked += 1
        return {RESOURCE_SLICES.plural} if version in self.versions else set()


def follow(client: Versions, clock: VirtualClock, seconds: float) -> Names:
    names = Names()
    informer: Informer[ResourceSlice] = OptionalInformer(client, RESOURCE_SLICES, names, clock=clock.monotonic)

    async def story() -> None:
        task = asyncio.create_task(informer.run())
        await informer.synced.wait()
        await asyncio.sleep(seconds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    run(story(), clock)
    return names


@pytest.mark.parametrize(
    ("versions", "used"),
    [(("v1", "v1beta1"), "v1"), (("v1beta2", "v1beta1"), "v1beta2"), (("v1beta1",), "v1beta1")],
)
def test_an_informer_follows_the_newest_version_that_is_served(versions: tuple[str, ...], used: str) -> None:
    clock = VirtualClock()
    server = InMemoryServer(clock)
    slice_ = next(each for each in RECORDED[used]["resourceslices"]["items"] if each["metadata"]["name"] == "s")
    server.create(RESOURCE_SLICES, slice_)
    client = Versions(server, *versions)

    names = follow(client, clock, 1.0)

    assert names.there == {"s": "h"} and set(client.used) == {used}


def test_where_the_group_is_missing_it_is_asked_for_now_and_then_and_nothing_else() -> None:
    clock = VirtualClock()
    client = Versions(InMemoryServer(clock))

    names = follow(client, clock, 600.0)

    assert names.there == {} and client.used == []
    assert client.asked <= 3 * (600 / 30 + 1)
