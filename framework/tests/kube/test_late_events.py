"""Events that come late, and versions that go backwards: an older state never replaces a newer one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gangline.kube.client import HttpClient
from gangline.kube.informer import Informer
from gangline.kube.resources import PODS
from gangline.model import Pod

from .fake_api_server import FakeApiServer, bookmark, event, failure, listed, pod
from .test_informer import ALL_PODS, Recorder


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
async def informer(client: HttpClient, recorder: Recorder) -> AsyncIterator[Informer[Pod]]:
    yield Informer(client, PODS, recorder)


@pytest.mark.parametrize(
    ("kind", "uid"),
    [("ADDED", "old"), ("MODIFIED", "old"), ("DELETED", "old"), ("ADDED", "new"), ("MODIFIED", "new")],
)
async def test_a_late_event_does_not_replace_or_remove_the_newer_object(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder, kind: str, uid: str
) -> None:
    server.answers("GET", ALL_PODS, listed(20, pod("a", 12, uid="new")))
    late = event(kind, pod("a", 9, uid=uid))
    server.streams(ALL_PODS, late, event("MODIFIED", pod("a", 21, uid="new")))

    await informer.step()
    await informer.step()

    assert recorder.told == [("upsert", "a", "12"), ("upsert", "a", "21")]
    assert (informer.resource_version, informer.last_seen) == ("21", 21)


async def test_a_late_event_that_cannot_be_read_leaves_the_newer_object(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    server.answers("GET", ALL_PODS, listed(20, pod("a", 12, uid="new")))
    server.streams(ALL_PODS, event("MODIFIED", pod("a", 9, uid="old", containers=7)))

    await informer.step()
    await informer.step()

    assert recorder.told == [("upsert", "a", "12")]


async def test_a_watch_never_goes_on_from_an_older_version(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    server.answers("GET", ALL_PODS, listed(20))
    server.streams(ALL_PODS, event("ADDED", pod("a", 30)), event("ADDED", pod("b", 9)), bookmark(5))
    server.streams(ALL_PODS, then="stay")

    await informer.step()
    await informer.step()

    assert informer.resource_version == "30"


async def test_a_newer_event_with_another_uid_replaces_the_object_or_removes_it(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    """Also where the deletion of the older object was never told."""
    server.answers("GET", ALL_PODS, listed(20, pod("a", 12, uid="old"), pod("b", 13, uid="old")))
    server.streams(ALL_PODS, event("ADDED", pod("a", 21, uid="new")), event("DELETED", pod("b", 22, uid="new")))

    await informer.step()
    await informer.step()

    assert recorder.told[2:] == [
        ("remove", "default", "a", "old"),
        ("upsert", "a", "21"),
        ("remove", "default", "b", "old"),
    ]


async def test_after_a_list_the_versions_of_the_list_count_though_they_are_lower(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    """etcd was restored from a backup."""
    server.answers("GET", ALL_PODS, listed(900, pod("a", 800), pod("gone", 700)))
    server.answers("GET", ALL_PODS, listed(20, pod("a", 12)))
    server.streams(ALL_PODS, event("ERROR", failure(410, "Expired")))
    server.streams(ALL_PODS, event("MODIFIED", pod("a", 21)), event("DELETED", pod("a", 22)))

    for _ in range(4):
        await informer.step()

    assert recorder.told[2:] == [
        ("remove", "default", "gone", "uid-gone"),
        ("upsert", "a", "12"),
        ("upsert", "a", "21"),
        ("remove", "default", "a", "uid-a"),
    ]
    assert informer.resource_version == "22"


async def test_a_watch_that_is_refused_waits_as_long_as_the_server_asks(
    server: FakeApiServer, informer: Informer[Pod]
) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    server.fails("WATCH", ALL_PODS, 429, "TooManyRequests", Retry_After="7")

    await informer.step()

    assert await informer.step() >= 7.0


async def test_a_late_deletion_leaves_an_object_that_cannot_be_read(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    server.answers("GET", ALL_PODS, listed(20, pod("a", 12, uid="new", containers=7)))
    server.streams(ALL_PODS, event("DELETED", pod("a", 9, uid="old")), event("DELETED", pod("a", 21, uid="new")))

    await informer.step()
    await informer.step()

    assert recorder.told == [("remove", "default", "a", "new")]


@pytest.mark.parametrize("before", [[], [event("ADDED", pod("a", 8, uid="new"))]], ids=["never read", "read before"])
async def test_a_late_state_does_not_replace_a_newer_one_that_cannot_be_read(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder, before: list[bytes]
) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    late = [event(kind, pod("a", 9, uid=uid)) for kind in ("ADDED", "MODIFIED") for uid in ("old", "new")]
    broken = event("MODIFIED", pod("a", 12, uid="new", containers=7))
    server.streams(ALL_PODS, *before, broken, *late, event("MODIFIED", pod("a", 21, uid="new")))

    await informer.step()
    await informer.step()

    assert recorder.told[len(before) :] == [("upsert", "a", "21")]


async def test_a_deletion_that_is_newer_removes_an_object_that_cannot_be_read(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    """Nobody has told of the deletion of that object."""
    server.answers("GET", ALL_PODS, listed(20, pod("a", 12, uid="old", containers=7)))
    server.streams(ALL_PODS, event("DELETED", pod("a", 21, uid="new")))

    await informer.step()
    await informer.step()

    assert recorder.told == [("remove", "default", "a", "old")]


async def test_after_etcd_was_restored_an_object_can_be_read_again_in_the_state_before(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    server.answers("GET", ALL_PODS, listed(7, pod("a", 5)))
    server.answers("GET", ALL_PODS, listed(6, pod("a", 5)))
    server.streams(ALL_PODS, event("MODIFIED", pod("a", 9, containers=7)), event("ERROR", failure(410, "Expired")))
    server.streams(ALL_PODS, event("MODIFIED", pod("a", 7)))

    for _ in range(4):
        await informer.step()

    assert recorder.told == [("upsert", "a", "5"), ("upsert", "a", "5"), ("upsert", "a", "7")]
