"""An API server that has no time for events and conditions: they are written again after the pause that it asks for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from gangline.errors import GanglineError, NotFound, TooManyRequests
from gangline.kube.resources import Resource
from gangline.loop.reporting import AT_ONCE
from gangline.model import Event, TypedReference
from gangline.profile import recording
from gangline.profile.recording import Condition, EventRecorder
from gangline.simulate.time import run
from gangline.testing import FakeClock

from .test_reporting import POD, Desk, Writes


class LoopClock:
    """The time of the event loop."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    monotonic = now


class Busy(Writes):
    """Refuses every write until a moment, and says how long to wait."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self.until = until
        self.asked: list[float] = []

    def _refusal(self) -> TooManyRequests | None:
        now = asyncio.get_running_loop().time()
        self.asked.append(now)
        return TooManyRequests(429, "", "busy", 7.0) if now < self.until else None

    def _fail(self) -> None:
        if refusal := self._refusal():
            raise refusal

    async def create_all(self, resource: Resource[Any], objs: Sequence[Event]) -> Sequence[GanglineError | None]:
        refusal = self._refusal()
        if refusal is None:
            return await super().create_all(resource, objs)
        return [refusal for _ in objs]


def busy_desk(client: Busy) -> Desk:
    desk = Desk(LoopClock())
    desk.client = client
    desk.reporter._client = client  # type: ignore[assignment]  # only its writing part is there
    return desk


@pytest.mark.parametrize("number", [1, 5, 20], ids=["one", "a batch", "several batches"])
def test_events_that_are_refused_are_written_after_the_pause_and_nobody_asks_before(number: int) -> None:
    async def story() -> Desk:
        start = asyncio.get_running_loop().time()
        desk = busy_desk(client := Busy(start + 20.0))
        for i in range(number):
            desk.recorder.event(POD, "Normal", "Scheduled", str(i))
        desk.recorder.condition(Condition("default", "p", "uid-p", "Unschedulable", "no room"))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(desk.reporter.run())
            await asyncio.sleep(60.0)
            task.cancel()
        moments = sorted({round(moment - start, 1) for moment in client.asked if moment < client.until})
        assert all(later - earlier >= 7.0 for earlier, later in pairwise(moments))
        return desk

    desk = run(story())

    assert sorted(desk.notes, key=int) == [str(i) for i in range(number)]
    assert len(desk.client.patches) == 1
    assert not desk.recorder.waiting


async def test_of_a_batch_only_what_was_refused_is_written_again() -> None:
    desk = Desk()
    busy = TooManyRequests(429, "", "busy", 0.0)
    desk.client.failures = [busy, NotFound(404, "NotFound", "the namespace"), busy]
    for i in range(5):
        desk.say(str(i))

    await desk.reporter.flush()

    assert desk.client.at_once == [5, 2]
    assert desk.notes == ["3", "4", "0", "2"]


async def test_a_series_that_is_refused_is_counted_later() -> None:
    desk = Desk()
    desk.say()
    await desk.reporter.flush()
    desk.client.failures = [TooManyRequests(429, "", "busy", 0.0)]

    desk.say()
    await desk.reporter.flush()

    ((where, _, patch),) = desk.client.patches
    assert where == "events/" and patch["series"]["count"] == 2


def test_an_event_that_is_put_off_is_dropped_and_counted_if_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MOST_WAITING", 2)
    recorder = EventRecorder(FakeClock(), "host-1")
    for i in range(2):
        recorder.event(POD, "Normal", "Scheduled", str(i))
    event = recorder.next_event()
    recorder.event(POD, "Normal", "Scheduled", "2")

    assert event is not None
    recorder.put_off(event)

    assert (recorder.dropped, recorder.waiting) == (1, 2)


class Limited(Busy):
    """Takes no event of the namespace `noisy`, as an API server with the admission plugin EventRateLimit."""

    def __init__(self) -> None:
        super().__init__(0.0)

    async def create_all(self, resource: Resource[Any], objs: Sequence[Event]) -> Sequence[GanglineError | None]:
        others = [each for each in objs if each.metadata.namespace != "noisy"]
        await super().create_all(resource, others)
        refused = TooManyRequests(429, "", "limit reached on type Namespace", 1.0)
        return [refused if each.metadata.namespace == "noisy" else None for each in objs]

    async def create(self, resource: Resource[Any], obj: Any, *, namespace: str | None = None) -> Any:
        if namespace == "noisy":
            raise TooManyRequests(429, "", "limit reached on type Namespace", 1.0)
        return await super().create(resource, obj, namespace=namespace)


@pytest.mark.parametrize("most", [1000, 120], ids=["few", "more than may wait"])
def test_events_that_are_refused_again_and_again_keep_no_others_waiting(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MOST_WAITING", most)
    monkeypatch.setattr(recording, "MOST_PUT_OFF", most // 2)
    noise = 160

    async def story() -> Desk:
        desk = busy_desk(Limited())
        noisy = TypedReference(kind="Pod", namespace="noisy", name="p", uid="uid-noisy", api_version="v1")
        for i in range(noise):
            desk.recorder.about(noisy, "gangline", "Normal", "Scheduled", str(i), "Binding")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(desk.reporter.run())
            await asyncio.sleep(noise / AT_ONCE)
            desk.recorder.event(POD, "Normal", "Scheduled", "of another namespace")
            await asyncio.sleep(3.0)
            task.cancel()
        return desk

    assert run(story()).notes == ["of another namespace"]
