"""An informer for a kind whose definition comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gangline.errors import Forbidden, Unavailable
from gangline.kube.informer import Informer
from gangline.kube.optional import OptionalInformer
from gangline.kube.resources import GPU_CLAIMS
from gangline.model import ObjectMeta
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run
from gangline.wire.custom_resources import GpuClaim

PLURAL = GPU_CLAIMS.plural


class SometimesServed(SimulatedClient):
    """A client of a server that knows GpuClaims only while `kinds` says so."""

    def __init__(self, server: InMemoryServer) -> None:
        super().__init__(server, faults=lambda verb, resource, name: self._fails())
        self.kinds: set[str] = set()
        self.forbidden = False
        self.asked = 0
        self.fault: Exception | None = None

    def _fails(self) -> Exception | None:
        return Forbidden(403, "Forbidden", "no right to list") if self.forbidden else self.fault

    async def served(self, group: str, version: str) -> set[str]:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        return self.kinds


class Names:
    """A handler that keeps the names that are there."""

    def __init__(self) -> None:
        self.there: list[str] = []

    def upsert(self, obj: GpuClaim, /) -> None:
        self.there.append(obj.metadata.name)

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        self.there.remove(name)


class Case:
    """A server with one claim, and an informer at work."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.server = InMemoryServer(self.clock)
        self.client = SometimesServed(self.server)
        self.names = Names()
        self.informer: Informer[GpuClaim] = OptionalInformer(
            self.client, GPU_CLAIMS, self.names, clock=self.clock.monotonic
        )
        self.server.create(GPU_CLAIMS, {"metadata": {"name": "c", "namespace": "default"}})

    async def started(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.informer.run())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def play(case: Case, story: AsyncIterator[None]) -> None:
    async def whole() -> None:
        running = case.started()
        await anext(running)
        async for _ in story:
            pass
        async for _ in running:
            pass

    run(whole(), case.clock)


def test_nobody_waits_for_a_kind_that_is_not_served() -> None:
    case = Case()

    async def story() -> AsyncIterator[None]:
        await case.informer.synced.wait()
        yield

    play(case, story())
    assert case.names.there == []


@pytest.mark.parametrize("is_needed", [True, False])
def test_what_may_not_be_listed_is_waited_for_only_where_it_is_needed(is_needed: bool) -> None:
    case = Case()
    case.informer = OptionalInformer(
        case.client, GPU_CLAIMS, case.names, clock=case.clock.monotonic, is_needed=is_needed
    )
    synced = []

    async def story() -> AsyncIterator[None]:
        case.client.kinds = {PLURAL}
        case.client.forbidden = True
        await asyncio.sleep(60)
        synced.append(case.informer.synced.is_set())
        case.client.forbidden = False
        await asyncio.sleep(60)
        yield

    play(case, story())
    assert synced == [not is_needed]
    assert case.names.there == ["c"]


def test_a_kind_that_comes_later_is_followed_from_then_on() -> None:
    case = Case()

    async def story() -> AsyncIterator[None]:
        await case.informer.synced.wait()
        case.client.kinds = {PLURAL}
        await asyncio.sleep(31)
        yield

    play(case, story())
    assert case.names.there == ["c"]


def test_asking_for_a_new_list_finds_a_kind_at_once() -> None:
    case = Case()

    async def story() -> AsyncIterator[None]:
        await case.informer.synced.wait()
        case.client.kinds = {PLURAL}
        case.informer.relist()
        await case.informer.synced.wait()
        yield

    play(case, story())
    assert case.names.there == ["c"]
    assert case.clock.monotonic() < 1.0


def test_the_objects_of_a_kind_that_goes_are_gone() -> None:
    case = Case()
    seen: list[list[str]] = []

    async def story() -> AsyncIterator[None]:
        case.client.kinds = {PLURAL}
        await case.informer.synced.wait()
        await asyncio.sleep(1)
        seen.append(list(case.names.there))
        case.client.kinds = set()
        case.client.fault = Unavailable(0, "", "no answer")
        case.server.disconnect()
        await asyncio.sleep(1)
        case.client.fault = None
        await asyncio.sleep(31)
        seen.append(list(case.names.there))
        case.client.kinds = {PLURAL}
        await asyncio.sleep(31)
        seen.append(list(case.names.there))
        yield

    play(case, story())
    assert seen == [["c"], [], ["c"]]


def test_a_server_that_does_not_answer_says_nothing_about_a_kind() -> None:
    case = Case()
    case.client.fault = Unavailable(0, "", "no answer")

    async def story() -> AsyncIterator[None]:
        await asyncio.sleep(5)
        yield

    play(case, story())
    assert not case.informer.synced.is_set()
    assert case.client.asked > 2


def test_an_answer_that_nobody_understands_ends_nothing() -> None:
    case = Case()
    case.client.fault = RecursionError("nested too deeply")

    async def story() -> AsyncIterator[None]:
        await asyncio.sleep(5)
        case.client.fault = None
        case.client.kinds = {PLURAL}
        await asyncio.sleep(60)
        yield

    play(case, story())
    assert case.names.there == ["c"]


@pytest.mark.parametrize("name", ["c", "d"])
def test_changes_are_seen_like_those_of_any_kind(name: str) -> None:
    case = Case()

    async def story() -> AsyncIterator[None]:
        case.client.kinds = {PLURAL}
        await case.informer.synced.wait()
        other = GpuClaim(ObjectMeta(name="d", namespace="default"))
        await case.client.create(GPU_CLAIMS, other)
        await case.client.delete(GPU_CLAIMS, name, namespace="default")
        await asyncio.sleep(1)
        yield

    play(case, story())
    assert case.names.there == [other for other in ("c", "d") if other != name]


def test_the_log_says_once_that_a_kind_behind_a_gate_is_not_served(caplog: pytest.LogCaptureFixture) -> None:
    case = Case()
    gated = replace(GPU_CLAIMS, gate="Claims")
    case.informer = OptionalInformer(case.client, gated, case.names, clock=case.clock.monotonic)

    async def story() -> AsyncIterator[None]:
        await asyncio.sleep(100)
        yield

    play(case, story())
    assert case.client.asked > 3
    assert [each.getMessage() for each in caplog.records] == [
        "the API server does not serve gpuclaims.v1.gpu.scheduling (feature gate Claims); none are read"
    ]
