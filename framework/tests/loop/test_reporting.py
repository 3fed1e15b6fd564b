"""Bind first, tell later: when conditions and events are written, and what a failure costs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gangline.api.plugin import Clock
from gangline.errors import (
    ApiError,
    Conflict,
    Forbidden,
    GanglineError,
    InvalidObject,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from gangline.kube.interface import Client, PatchKind
from gangline.kube.resources import EVENTS, NODES, PODS, Resource
from gangline.loop.reporting import AT_ONCE, CONCURRENCY, IDLE, PATIENCE, SERIES_LOOK, Reporter
from gangline.model import Event, PodCondition, TypedReference
from gangline.profile.recording import SERIES_PAUSE, Condition, EventRecorder, GroupCondition
from gangline.simulate import SimulatedCluster
from gangline.simulate.time import run
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.telemetry.metrics import Metrics
from gangline.testing import FakeClock, make_node, make_pod

from ..eventually import until

POD = Cache().record(make_pod("p"))


class Writes:
    """The writing part of an API server: keeps events and patches, and fails as told."""

    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.patches: list[tuple[str, str, Mapping[str, Any]]] = []
        self.failures: list[GanglineError] = []
        self.at_once: list[int] = []

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    async def create(self, resource: Resource[Any], obj: Event, *, namespace: str | None = None) -> Event:
        self._fail()
        self.events[obj.metadata.name] = obj
        return obj

    async def create_all(self, resource: Resource[Any], objs: Sequence[Event]) -> Sequence[GanglineError | None]:
        self.at_once.append(len(objs))
        failures = [self.failures.pop(0) if self.failures else None for _ in objs]
        self.events |= {obj.metadata.name: obj for obj, failure in zip(objs, failures, strict=True) if failure is None}
        return failures

    async def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
    ) -> None:
        self._fail()
        if resource.plural == "events" and name not in self.events:
            raise NotFound(404, "NotFound", name)
        self.patches.append((f"{resource.plural}/{subresource or ''}", name, patch))


class Desk:
    """A reporter with everything at hand."""

    def __init__(self, clock: Clock | None = None) -> None:
        self.client, self.clock, self.metrics = Writes(), FakeClock(), Metrics()
        used = clock or self.clock
        self.pending = self.asked = 0
        self.recorder = EventRecorder(used, "host-1")
        self.still_waiting = {"uid-p": POD}
        self.reporter = Reporter(
            cast(Client, self.client),
            self.recorder,
            used,
            self.metrics,
            self._pending,
            self.still_waiting.get,
        )

    def _pending(self) -> int:
        self.asked += 1
        return self.pending

    async def looks_around(self) -> None:
        """Wait until each of the reporter's writers has asked whether it may write, and the first one again."""
        seen = self.asked
        await until(lambda: self.asked > seen + CONCURRENCY)

    def say(self, note: str = "no room") -> None:
        self.recorder.event(POD, "Warning", "FailedScheduling", note)

    @property
    def notes(self) -> list[str]:
        return [event.note for event in self.client.events.values()]


async def test_conditions_are_written_before_events() -> None:
    desk = Desk()
    desk.say()
    desk.recorder.condition(Condition("default", "p", "uid-p", "Unschedulable", "no room", "a"))

    assert await desk.reporter.write_one() and desk.notes == []
    assert await desk.reporter.write_one() and desk.notes == ["no room"]

    assert not await desk.reporter.write_one()
    ((what, name, patch),) = desk.client.patches
    assert (what, name, patch["metadata"]) == ("pods/status", "p", {"uid": "uid-p", "resourceVersion": ""})
    (condition,) = patch["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "PodScheduled",
        "False",
        "Unschedulable",
        "no room",
    )
    assert patch["status"]["nominatedNodeName"] == "a"


@pytest.mark.parametrize(
    ("nominated", "status"), [(None, {}), ("", {"nominatedNodeName": None})], ids=["left alone", "taken back"]
)
async def test_a_nomination_is_written_only_when_it_changed(nominated: str | None, status: dict[str, Any]) -> None:
    desk = Desk()
    desk.recorder.condition(Condition("default", "p", "uid-p", "Unschedulable", "no room", nominated))

    await desk.reporter.flush()

    patch = dict(desk.client.patches[0][2]["status"])
    del patch["conditions"]
    assert patch == status


SAID = Condition("default", "p", "uid-p", "Unschedulable", "no room")


def told(message: str = "no room", version: str = "7", nominated: str = "", status: str = "False") -> PodInfo:
    """The pod with this condition in its status, of which another part has been true since 2020."""
    pod = make_pod("p")
    pod.metadata.resource_version, pod.status.nominated_node_name = version, nominated
    since = "2020-01-01T00:00:00Z"
    pod.status.conditions = [PodCondition("PodScheduled", status, "Unschedulable", message, since)]
    return Cache().record(pod)


@pytest.mark.parametrize(
    ("pod", "said"),
    [
        (told("other"), SAID),
        (told(nominated="a"), replace(SAID, nominated_node_name="")),
        (told(), replace(SAID, nominated_node_name="a")),
        (told(), replace(SAID, reason="SchedulerError")),
        (told(status="True"), SAID),
        (told(), replace(SAID, nominated_node_name="")),
    ],
    ids=[
        "another message",
        "nomination taken back",
        "nomination",
        "another reason",
        "another status",
        "a nomination taken back that the record does not show yet",
    ],
)
async def test_a_condition_that_is_new_to_a_pod_is_written(pod: PodInfo, said: Condition) -> None:
    desk = Desk()
    desk.still_waiting["uid-p"] = pod
    desk.recorder.condition(said)

    await desk.reporter.flush()

    assert len(desk.client.patches) == 1


async def test_a_condition_that_a_pod_has_is_not_written_again() -> None:
    desk = Desk()
    for pod, said in ((told(), SAID), (told(nominated="a"), replace(SAID, nominated_node_name="a"))):
        desk.still_waiting["uid-p"] = pod
        desk.recorder.condition(said)
        await desk.reporter.flush()

    assert desk.client.patches == []


async def test_a_condition_is_written_if_the_record_of_the_pod_is_older_than_the_last_write() -> None:
    desk = Desk()
    desk.still_waiting["uid-p"] = told("no room", "7")
    for message in ("other", "no room"):
        desk.recorder.condition(replace(SAID, message=message))
        await desk.reporter.flush()
    assert [_condition(patch)["message"] for _, _, patch in desk.client.patches] == ["other", "no room"]

    desk.still_waiting["uid-p"] = told("no room", "9")
    desk.recorder.condition(SAID)
    await desk.reporter.flush()
    assert len(desk.client.patches) == 2


async def test_a_condition_is_written_if_it_is_unknown_whether_another_one_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gangline.loop.reporting.PAUSE", 0.0)
    desk = Desk()
    desk.still_waiting["uid-p"] = told("no room", "7")
    desk.client.failures = [Unavailable(0, "", "no answer")]
    desk.recorder.condition(replace(SAID, message="other"))
    await desk.reporter.write_one()

    desk.recorder.condition(SAID)
    await desk.reporter.flush()

    assert [_condition(patch)["message"] for _, _, patch in desk.client.patches] == ["no room"]


async def test_the_time_of_the_transition_stays_while_a_pod_is_not_scheduled() -> None:
    desk = Desk()
    times = []
    for pod in (POD, told("other"), told("other", status="True")):
        desk.still_waiting["uid-p"] = pod
        desk.recorder.condition(SAID)
        await desk.reporter.flush()
        times.append(_condition(desk.client.patches[-1][2]).get("lastTransitionTime"))

    assert times[0] is not None and times[1] is None and times[2] is not None


def _condition(patch: Mapping[str, Any]) -> Mapping[str, Any]:
    (found,) = patch["status"]["conditions"]
    return cast(Mapping[str, Any], found)


async def test_a_repetition_is_counted_in_the_series_of_the_first() -> None:
    desk = Desk()
    for _ in range(2):
        desk.say()
        await desk.reporter.flush()

    ((_, name, patch),) = desk.client.patches
    assert list(desk.client.events) == [name] and patch["series"]["count"] == 2


async def test_an_event_that_the_api_server_no_longer_has_is_created_again() -> None:
    desk = Desk()
    desk.say()
    await desk.reporter.flush()
    desk.client.events.clear()

    desk.say()
    await desk.reporter.flush()

    (event,) = desk.client.events.values()
    assert event.series is not None and event.series.count == 2


async def test_nothing_is_written_while_bindings_are_pending_until_patience_runs_out() -> None:
    desk = Desk()
    task = asyncio.create_task(desk.reporter.run())
    desk.say()
    desk.pending = 1
    await desk.looks_around()
    assert desk.notes == []

    desk.clock.advance(PATIENCE + 0.1)
    await until(lambda: len(desk.notes) == 1)

    assert desk.notes == ["no room"]
    await ended(task)


async def test_everything_is_written_once_no_binding_is_pending() -> None:
    desk = Desk()
    desk.pending = 1
    for i in range(20):
        desk.say(str(i))
    task = asyncio.create_task(desk.reporter.run())
    await desk.looks_around()
    assert desk.notes == []

    desk.pending = 0
    await until(lambda: len(desk.notes) == 20)

    assert sorted(desk.notes, key=int) == [str(i) for i in range(20)]
    await ended(task)


@pytest.mark.parametrize(
    "failure",
    [Forbidden(403, "Forbidden", "no"), ApiError(500, "Oops", "down"), InvalidObject("event", 1, "does not fit")],
    ids=["forbidden", "down", "does not fit"],
)
async def test_telling_is_best_effort_and_a_run_of_failures_is_logged_once(
    failure: GanglineError, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    desk.client.failures = [failure, failure]
    for i in range(3):
        desk.say(str(i))

    await desk.reporter.flush()

    assert desk.notes == ["2"]
    assert [record.levelname for record in caplog.records if "could not write" in record.message] == ["WARNING"]


async def test_events_that_wait_are_sent_at_once_and_a_failure_concerns_one_of_them() -> None:
    desk = Desk()
    desk.client.failures = [NotFound(404, "NotFound", "the namespace"), Forbidden(403, "Forbidden", "no")]
    for i in range(AT_ONCE + 3):
        desk.say(str(i))

    await desk.reporter.flush()

    assert desk.client.at_once == [AT_ONCE, 3]
    assert desk.notes == [str(i) for i in range(2, AT_ONCE + 3)]


async def test_a_condition_of_a_pod_that_is_gone_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.client.failures = [NotFound(404, "NotFound", "p")]
    desk.recorder.condition(Condition("default", "p", "uid-p", "Unschedulable", "no room"))

    await desk.reporter.flush()

    assert not caplog.records


async def test_dropped_events_are_counted() -> None:
    desk = Desk()
    desk.recorder.dropped = 3
    await desk.reporter.write_one()
    desk.recorder.dropped = 4
    await desk.reporter.write_one()

    assert desk.metrics.registry.get_sample_value("gangline_events_dropped_total") == 4


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_no_condition_is_written_on_a_pod_that_is_being_bound() -> None:
    desk = Desk()
    desk.recorder.condition(Condition("default", "p", "uid-p", "Unschedulable", "no room"))
    desk.still_waiting.clear()

    await desk.reporter.flush()

    assert desk.client.patches == []


@pytest.mark.parametrize(
    "failure", [Conflict(409, "Conflict", "stale"), Unavailable(503, "", "down")], ids=["conflict", "outage"]
)
async def test_a_condition_that_could_not_be_written_is_written_later(
    failure: ApiError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.loop.reporting.PAUSE", 0.0)
    desk = Desk()
    desk.client.failures = [failure]
    desk.recorder.condition(Condition("default", "p", "uid-p", "Unschedulable", "no room"))

    await desk.reporter.flush()

    ((where, name, patch),) = desk.client.patches
    assert (where, name) == ("pods/status", "p")
    assert patch["metadata"] == {"uid": "uid-p", "resourceVersion": POD.resource_version}


def of_group(scheduled: bool, uid: str = "uid-g") -> GroupCondition:
    group = TypedReference(
        api_version="scheduling.x-k8s.io/v1alpha1", kind="PodGroup", namespace="default", name="g", uid=uid
    )
    return GroupCondition(group, scheduled, "Scheduled" if scheduled else "Unschedulable", "")


@pytest.mark.parametrize(
    "failure",
    [Conflict(409, "Conflict", "stale"), TooManyRequests(429, "", "busy", 1.0), Unavailable(503, "", "down")],
    ids=["conflict", "busy", "outage"],
)
async def test_a_condition_of_a_group_that_could_not_be_written_is_written_later(
    failure: ApiError, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gangline.loop.reporting.PAUSE", 0.0)
    desk = Desk()
    desk.client.failures = [failure]
    desk.recorder.group_condition(of_group(scheduled=True))

    await desk.reporter.flush()

    assert [(where, name) for where, name, _ in desk.client.patches] == [("podgroups/status", "g")]


async def test_a_group_that_is_gone_is_told_nothing_more() -> None:
    desk = Desk()
    desk.client.failures = [NotFound(404, "NotFound", "g")]
    desk.recorder.group_condition(of_group(scheduled=True))

    await desk.reporter.flush()

    assert not desk.client.patches and not desk.recorder.waiting


def test_of_two_conditions_of_a_group_the_latest_is_written_last_whatever_the_first_meets() -> None:
    recorder = EventRecorder(FakeClock(), "host-1")
    recorder.group_condition(of_group(scheduled=False))
    first = recorder.next_group_condition()
    assert first is not None
    recorder.group_condition(of_group(scheduled=True))
    recorder.group_condition(of_group(scheduled=False, uid="uid-other"))
    other, nothing = recorder.next_group_condition(), recorder.next_group_condition()
    recorder.group_written(first, again=True)

    assert other is not None and other.object.uid == "uid-other" and nothing is None
    assert recorder.next_group_condition() == of_group(scheduled=True)


def test_a_reporter_that_has_nothing_to_write_sleeps() -> None:
    desk = Desk()

    async def day() -> int:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(desk.reporter.run())
            desk.say()
            await until(lambda: desk.notes == ["no room"])
            await asyncio.sleep(1.0)
            asked = desk.asked
            await asyncio.sleep(86_400.0)
            task.cancel()
        return desk.asked - asked

    assert run(day()) == 0


def test_one_writer_looks_for_room_and_wakes_the_others() -> None:
    desk = Desk()
    at_work: list[int] = []

    async def create_all(resource: Any, objs: Sequence[Event]) -> None:
        at_work.append(len(objs))
        await asyncio.Event().wait()

    desk.client.create_all = create_all  # type: ignore[method-assign, assignment]  # each write takes for ever

    async def story() -> int:
        desk.pending = 1
        for i in range(2 * CONCURRENCY * AT_ONCE):
            desk.recorder.event(POD, "Normal", "Scheduled", str(i))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(desk.reporter.run())
            await asyncio.sleep(10.0)
            asked, desk.pending = desk.asked, 0
            await asyncio.sleep(2 * IDLE)
            task.cancel()
        return asked

    assert run(story()) < 10 / IDLE + CONCURRENCY * 12
    assert at_work == [AT_ONCE] * CONCURRENCY


PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: default-scheduler
"""


def test_a_pod_that_is_rejected_again_and_again_costs_few_writes_and_none_is_left_uncounted() -> None:
    cluster = SimulatedCluster()
    cluster.create(NODES, make_node("a", cpu=1))
    cluster.create(PODS, make_pod("p", cpu=4))

    async def story() -> tuple[int, int]:
        async with cluster.scheduling(PROFILE) as scheduler:
            await cluster.until(lambda: bool(cluster.message("p")) and bool(cluster.notes("p")))
            pod, writes = cluster.get(PODS, "p").metadata, cluster.server.version
            for _ in range(360):
                await asyncio.sleep(10.0)
                scheduler.try_all_again()
            await asyncio.sleep(SERIES_PAUSE + SERIES_LOOK)
            assert cluster.get(PODS, "p").metadata.resource_version == pod.resource_version
            unit = scheduler.queue.get(pod.uid)
            assert unit is not None
            return unit.attempts, cluster.server.version - writes

    attempts, writes = cluster.play(story)

    (event,) = cluster.list(EVENTS)
    assert event.series is not None and event.series.count == attempts > 300
    assert writes <= 3600 / SERIES_PAUSE + 2


def test_a_newer_condition_stands_when_an_older_one_comes_back() -> None:
    recorder = EventRecorder(FakeClock(), "host-1")
    recorder.condition(Condition("default", "p", "uid-p", "Unschedulable", "newer"))

    recorder.restore(Condition("default", "p", "uid-p", "Unschedulable", "older"))

    condition = recorder.next_condition()
    assert condition is not None and condition.message == "newer"


def test_a_condition_of_a_group_waits_for_the_one_that_is_being_written_and_nobody_asks_meanwhile() -> None:
    """The writers woke each other without a pause for as long as the API server took."""
    desk = Desk()
    written: list[str] = []

    async def patch(resource: Any, name: str, patch: Mapping[str, Any], **how: Any) -> None:
        await asyncio.sleep(20.0)
        written.append(name)

    desk.client.patch = patch  # type: ignore[method-assign]

    async def story() -> int:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(desk.reporter.run())
            desk.recorder.group_condition(of_group(scheduled=False))
            await asyncio.sleep(1.0)
            desk.recorder.group_condition(of_group(scheduled=True))
            await asyncio.sleep(0.1)
            asked = desk.asked
            await asyncio.sleep(15.0)
            meanwhile = desk.asked - asked
            await asyncio.sleep(60.0)
            task.cancel()
        return meanwhile

    assert run(story()) == 0
    assert len(written) == 2
