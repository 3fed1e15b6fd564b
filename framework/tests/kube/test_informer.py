"""The informer over the HTTP client, against an API server on loopback."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from gangline.kube.client import HttpClient
from gangline.kube.informer import BREATH, PAGE, Informer
from gangline.kube.interface import Client, Listing
from gangline.kube.resources import NODES, PODS, Resource
from gangline.model import Node, ObjectMeta, Pod

from ..eventually import until
from .fake_api_server import FakeApiServer, bookmark, event, failure, listed, pod

ALL_PODS = "/api/v1/pods"


class Recorder:
    """A handler that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def upsert(self, obj: Pod, /) -> None:
        self.told.append(("upsert", obj.metadata.name, obj.metadata.resource_version))

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        self.told.append(("remove", namespace, name, uid))


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def waits() -> list[float]:
    """How long the informer would have waited between steps."""
    return []


@pytest.fixture
async def informer(client: HttpClient, recorder: Recorder, waits: list[float]) -> AsyncIterator[Informer[Pod]]:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.sleep(0)

    yield Informer(client, PODS, recorder, sleep=sleep)


async def test_the_first_list_makes_it_synced(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    server.answers("GET", ALL_PODS, listed(7, pod("a", 3), pod("b", 4)))

    await informer.step()

    assert recorder.told == [("upsert", "a", "3"), ("upsert", "b", "4")]
    assert informer.synced.is_set()
    assert informer.resource_version == "7"


async def test_events_reach_the_handler_in_order(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    changes = [("ADDED", 8), ("MODIFIED", 9), ("DELETED", 10)]
    server.streams(ALL_PODS, *(event(kind, pod("a", version)) for kind, version in changes))

    await informer.step()
    await informer.step()

    assert recorder.told == [
        ("upsert", "a", "8"),
        ("upsert", "a", "9"),
        ("remove", "default", "a", "uid-a"),
    ]
    assert (informer.resource_version, informer.events) == ("10", 3)


@pytest.mark.parametrize(
    ("known", "told", "is_late"),
    [(9, 10, False), (10, 9, True), (10, 11, False), (11, 10, True), (99, 100, False), (100, 99, True)],
)
async def test_an_event_is_late_by_the_number_of_its_version(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder, known: int, told: int, is_late: bool
) -> None:
    server.answers("GET", ALL_PODS, listed(7, pod("a", known)))
    server.streams(ALL_PODS, event("MODIFIED", pod("a", told)))

    await informer.step()
    await informer.step()

    changes = [] if is_late else [("upsert", "a", str(told))]
    assert recorder.told == [("upsert", "a", str(known)), *changes]
    assert informer.last_seen == (known if is_late else told)
    assert informer.has_reached(told)
    assert not informer.has_reached(told + 1)


async def test_a_watch_resumes_from_the_last_bookmark(
    server: FakeApiServer, informer: Informer[Pod], waits: list[float]
) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    server.streams(ALL_PODS, event("ADDED", pod("a", 8)), bookmark(50))
    server.streams(ALL_PODS, then="stay")

    async with running(informer):
        watches = await server.was_asked("WATCH", ALL_PODS, 2)

    assert [asked.query["resourceVersion"] for asked in watches] == ["7", "50"]
    assert len(server.of("GET", ALL_PODS)) == 1
    assert waits == []


@pytest.mark.parametrize("version", [2**63, 10**19, 10**20 - 1])
async def test_a_bookmark_with_a_version_that_nobody_reaches_is_not_followed(
    server: FakeApiServer, informer: Informer[Pod], waits: list[float], version: int
) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    server.streams(ALL_PODS, event("ADDED", pod("a", 8)), bookmark(version))
    server.streams(ALL_PODS, then="stay")

    async with running(informer):
        watches = await server.was_asked("WATCH", ALL_PODS, 2)

    assert [asked.query["resourceVersion"] for asked in watches] == ["7", "8"]
    assert waits == []


async def test_a_broken_connection_is_resumed_after_a_wait(
    server: FakeApiServer, informer: Informer[Pod], waits: list[float]
) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    server.streams(ALL_PODS, event("ADDED", pod("a", 8)), then="break")
    server.streams(ALL_PODS, then="stay")

    async with running(informer):
        watches = await server.was_asked("WATCH", ALL_PODS, 2)

    assert watches[1].query["resourceVersion"] == "8"
    assert len(waits) == 1
    assert 0.25 <= waits[0] <= 0.5


@pytest.mark.parametrize("how", ["status", "event"])
async def test_gone_lists_at_once_and_reads_the_latest_state(
    server: FakeApiServer,
    informer: Informer[Pod],
    recorder: Recorder,
    waits: list[float],
    how: str,
) -> None:
    server.answers("GET", ALL_PODS, listed(7, pod("a", 3)))
    server.answers("GET", ALL_PODS, listed(90, pod("b", 80)))
    if how == "status":
        server.fails("WATCH", ALL_PODS, 410, "Expired")
    else:
        server.streams(ALL_PODS, event("ERROR", failure(410, "Expired")))
    server.streams(ALL_PODS, then="stay")

    async with running(informer):
        watches = await server.was_asked("WATCH", ALL_PODS, 2)

    lists = server.of("GET", ALL_PODS)
    assert [asked.query.get("resourceVersion") for asked in lists] == [None, None]
    assert watches[1].query["resourceVersion"] == "90"
    assert recorder.told[1:] == [("remove", "default", "a", "uid-a"), ("upsert", "b", "80")]
    assert waits == []


async def test_a_relist_tells_only_what_changed(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    before = [pod("same", 1), pod("changed", 2), pod("gone", 3), pod("remade", 4, uid="first")]
    after = [pod("same", 1), pod("changed", 12), pod("remade", 14, uid="second")]
    server.answers("GET", ALL_PODS, listed(7, *before))
    server.answers("GET", ALL_PODS, listed(20, *after))
    await informer.step()
    recorder.told.clear()

    informer.relist()
    assert not informer.synced.is_set()
    await informer.step()

    assert recorder.told == [
        ("remove", "default", "gone", "uid-gone"),
        ("upsert", "changed", "12"),
        ("remove", "default", "remade", "first"),
        ("upsert", "remade", "14"),
    ]
    assert "resourceVersion" not in server.asked[1].query
    assert informer.relists == 2


async def test_a_long_list_comes_in_pages_and_is_synced_after_the_last(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    first, last = listed(20, pod("a", 1), pod("b", 3)), listed(20, pod("c", 4))
    first["metadata"]["continue"] = "the rest"
    server.answers("GET", ALL_PODS, listed(7, pod("a", 1), pod("gone", 2)))
    server.answers("GET", ALL_PODS, first)
    server.answers("GET", ALL_PODS, last)
    await informer.step()
    recorder.told.clear()

    informer.relist()
    await informer.step()

    assert [asked.query.get("continue") for asked in server.asked[1:]] == [None, "the rest"]
    assert {asked.query["limit"] for asked in server.asked} == {str(PAGE)}
    assert recorder.told == [("upsert", "b", "3"), ("remove", "default", "gone", "uid-gone"), ("upsert", "c", "4")]
    assert informer.synced.is_set() and informer.resource_version == "20"


async def test_a_page_that_is_too_old_to_go_on_lists_all_anew(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder, waits: list[float]
) -> None:
    first = listed(7, pod("a", 1))
    first["metadata"]["continue"] = "the rest"
    server.answers("GET", ALL_PODS, first)
    server.fails("GET", ALL_PODS, 410, "Expired")
    server.answers("GET", ALL_PODS, listed(30, pod("a", 1), pod("b", 25)))

    assert await informer.step() == 0.0 and not informer.synced.is_set()
    await informer.step()

    assert recorder.told == [("upsert", "a", "1"), ("upsert", "b", "25")] and informer.synced.is_set()


async def test_a_relist_cuts_a_running_watch_short(
    server: FakeApiServer, informer: Informer[Pod], waits: list[float]
) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    server.streams(ALL_PODS, then="stay")

    async with running(informer):
        await server.was_asked("WATCH", ALL_PODS, 1)
        informer.relist()
        informer.relist()
        async with asyncio.timeout(10):
            await informer.synced.wait()
        await server.was_asked("WATCH", ALL_PODS, 2)

    assert len(server.of("GET", ALL_PODS)) == 2
    assert waits == []


async def test_a_watch_that_is_resumed_goes_on_where_it_was_without_a_list(
    server: FakeApiServer, informer: Informer[Pod], waits: list[float]
) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    server.streams(ALL_PODS, event("ADDED", pod("a", 8)), then="stay")
    server.streams(ALL_PODS, then="stay")

    async with running(informer):
        await until(lambda: informer.resource_version == "8")
        informer.resume()
        watches = await server.was_asked("WATCH", ALL_PODS, 2)

    assert [asked.query["resourceVersion"] for asked in watches] == ["7", "8"]
    assert len(server.of("GET", ALL_PODS)) == 1 and informer.synced.is_set() and waits == []


async def test_a_relist_does_not_wait_for_the_end_of_a_back_off(client: HttpClient, server: FakeApiServer) -> None:
    waits: list[float] = []

    async def for_ever(seconds: float) -> None:
        waits.append(seconds)
        await asyncio.Event().wait()

    informer: Informer[Pod] = Informer(client, PODS, Recorder(), sleep=for_ever)
    server.fails("GET", ALL_PODS, 403, "Forbidden")
    server.answers("GET", ALL_PODS, listed(7))
    server.streams(ALL_PODS, then="stay")

    async with running(informer):
        await until(lambda: len(waits) == 1)
        informer.relist()
        async with asyncio.timeout(10):
            await informer.synced.wait()
        await server.was_asked("WATCH", ALL_PODS, 1)

    assert len(waits) == 1


async def test_an_object_that_no_longer_fits_stays_as_it_was(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    server.answers("GET", ALL_PODS, listed(7, pod("a", 3)))
    server.answers("GET", ALL_PODS, listed(9, pod("a", 8, priority="high")))
    await informer.step()

    informer.relist()
    await informer.step()

    assert recorder.told == [("upsert", "a", "3")]


@pytest.mark.parametrize("how", ["list", "event"])
async def test_an_object_that_was_never_readable_is_removed_when_it_is_gone(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder, how: str
) -> None:
    bad = pod("a", 3, priority="high")
    server.answers("GET", ALL_PODS, listed(7, bad))
    server.answers("GET", ALL_PODS, listed(9))
    server.streams(ALL_PODS, event("DELETED", bad))
    await informer.step()

    if how == "list":
        informer.relist()
    await informer.step()

    assert recorder.told == [("remove", "default", "a", "uid-a")]


async def test_a_list_that_began_before_a_new_one_was_asked_for_is_not_the_new_one(
    client: HttpClient, server: FakeApiServer
) -> None:
    class Asking(Recorder):
        def upsert(self, obj: Pod, /) -> None:
            super().upsert(obj)
            if len(self.told) == 1:
                following.relist()

    handler = Asking()
    following: Informer[Pod] = Informer(client, PODS, handler)
    server.answers("GET", ALL_PODS, listed(7, pod("a", 3)))
    server.answers("GET", ALL_PODS, listed(9, pod("a", 8)))

    await following.step()
    assert not following.synced.is_set()
    await following.step()

    assert following.synced.is_set()
    assert handler.told == [("upsert", "a", "3"), ("upsert", "a", "8")]


async def test_an_error_is_logged_once_and_the_waits_grow(
    server: FakeApiServer,
    informer: Informer[Pod],
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.fails("GET", ALL_PODS, 403, "Forbidden")

    with caplog.at_level(logging.ERROR):
        waits = [await informer.step() for _ in range(10)]

    assert [record.getMessage() for record in caplog.records] == [
        "cannot follow pods: 403 Forbidden: the fake says Forbidden"
    ]
    assert 0.25 <= waits[0] <= 0.5
    assert 1.0 <= waits[2] <= 2.0
    assert 15.0 <= waits[9] <= 30.0


async def test_a_watch_that_ends_at_once_does_not_spin(server: FakeApiServer, informer: Informer[Pod]) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    server.streams(ALL_PODS)
    await informer.step()

    assert await informer.step() > 0
    assert len(server.of("GET", ALL_PODS)) == 1


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(event("ERROR", failure(500, "InternalError")), id="error"),
        pytest.param(event("ERROR", {**failure(410, "Expired"), "code": 0}), id="expired-without-a-code"),
        pytest.param(b"half an even\n", id="garbage"),
        pytest.param(b"", id="nothing"),
    ],
)
async def test_what_happens_is_seen_though_every_watch_fails_and_the_log_says_so_once(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder, caplog: pytest.LogCaptureFixture, said: bytes
) -> None:
    server.answers("GET", ALL_PODS, listed(7))
    server.streams(ALL_PODS, *filter(None, [said]))
    await informer.step()
    server.answers("GET", ALL_PODS, listed(9, pod("a", 8)))

    waits = [await informer.step() for _ in range(24)]

    assert recorder.told == [("upsert", "a", "8")]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert max(waits) >= 15.0


async def test_a_list_whose_page_names_itself_as_the_next_one_has_an_end(
    server: FakeApiServer, informer: Informer[Pod]
) -> None:
    page = listed(7, pod("a", 3))
    page["metadata"]["continue"] = "here"
    server.answers("GET", ALL_PODS, page)

    async with asyncio.timeout(10):
        assert await informer.step() > 0


async def test_other_tasks_get_a_turn_between_events(
    server: FakeApiServer, informer: Informer[Pod], recorder: Recorder
) -> None:
    count = BREATH * 4
    server.answers("GET", ALL_PODS, listed(7, *(pod(f"p{n}", n) for n in range(1, count + 1))))
    seen: list[int] = []

    async def look() -> None:
        while len(recorder.told) < count:
            seen.append(len(recorder.told))
            await asyncio.sleep(0)

    await asyncio.gather(informer.step(), look())

    assert set(seen) >= {0, BREATH, 2 * BREATH, 3 * BREATH}


async def test_an_exception_of_the_handler_concerns_that_object_alone_and_is_logged(
    server: FakeApiServer, client: HttpClient, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Recorder):
        def upsert(self, obj: Pod, /) -> None:
            if obj.metadata.name == "a":
                raise RuntimeError("a bug")
            super().upsert(obj)

    server.answers("GET", ALL_PODS, listed(7, pod("a", 3), pod("b", 4)))
    broken = Broken()
    informer = Informer(client, PODS, broken)

    await informer.step()

    assert broken.told == [("upsert", "b", "4")] and informer.synced.is_set()
    assert "Pod default/a could not be used" in caplog.text and "Traceback" in caplog.text


async def test_a_cluster_wide_object_that_names_a_namespace_is_no_other_object(
    server: FakeApiServer, client: HttpClient
) -> None:
    told = []

    def node(version: int, **also: str) -> dict[str, Any]:
        return {"metadata": {"name": "n1", "uid": "uid-n1", "resourceVersion": str(version), **also}}

    class Nodes:
        def upsert(self, obj: Node, /) -> None:
            told.append(("upsert", obj.metadata.name))

        def remove(self, namespace: str, name: str, uid: str, /) -> None:
            told.append(("remove", name))

    nodes = Informer(client, NODES, Nodes())
    server.answers("GET", "/api/v1/nodes", listed(7, node(3)))
    server.answers("GET", "/api/v1/nodes", listed(9, node(8, namespace="team")))
    server.answers("GET", "/api/v1/nodes", listed(10, node(10)))

    for _ in range(3):
        nodes.relist()
        await nodes.step()

    assert told == [("upsert", "n1")] * 3


class running:
    """Runs an informer while the block lasts."""

    def __init__(self, informer: Informer[Pod]) -> None:
        self._informer = informer

    async def __aenter__(self) -> None:
        self._task = asyncio.create_task(self._informer.run())

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        (outcome,) = await asyncio.gather(self._task, return_exceptions=True)
        assert isinstance(outcome, asyncio.CancelledError), outcome


async def test_it_tells_up_to_which_version_all_is_seen_only_after_the_handler_has_seen_it(
    server: FakeApiServer, client: HttpClient, recorder: Recorder
) -> None:
    reached: list[tuple[str, int]] = []

    def note(version: str) -> None:
        reached.append((version, len(recorder.told)))

    informer: Informer[Pod] = Informer(client, PODS, recorder, on_reached=note)
    server.answers("GET", ALL_PODS, listed(7, pod("a", 3), pod("b", 4)))
    server.streams(ALL_PODS, event("MODIFIED", pod("a", 8)), bookmark(50))

    await informer.step()
    await informer.step()
    informer.leave(())

    assert reached == [("7", 2), ("8", 3), ("50", 3), ("", 5)]


class Thing(msgspec.Struct, weakref=True):
    """An object whose end can be seen."""

    metadata: ObjectMeta


class Holding:
    """A client with one list; nobody else has its objects."""

    async def list(self, resource: Resource[Thing], **asked: Any) -> Listing[Thing]:
        names = [f"thing-{number:03}" for number in range(2 * BREATH)]
        return Listing([Thing(ObjectMeta(name=name, uid=name, resource_version="3")) for name in names], "7")


class Counting:
    """A handler that keeps nothing of an object, and counts the objects that are still there."""

    def __init__(self) -> None:
        self.seen: list[weakref.ref[Thing]] = []
        self.left: list[int] = []

    def upsert(self, thing: Thing, /) -> None:
        self.seen.append(weakref.ref(thing))
        self.left.append(sum(ref() is not None for ref in self.seen))

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        raise AssertionError(name)


async def test_an_object_of_a_list_is_freed_when_it_has_been_handled() -> None:
    counting = Counting()
    informer = Informer(cast(Client, Holding()), Resource("", "v1", "things", "Thing", Thing), counting)

    await informer.step()

    names = [name for _, name in informer.known]
    assert names == sorted(names) and len(names) == 2 * BREATH
    assert max(counting.left) <= 2 and informer.last_seen == 3
