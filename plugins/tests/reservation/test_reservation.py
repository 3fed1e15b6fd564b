"""The group that waits longest gets a date, and nothing that lasts longer may take its room."""

from __future__ import annotations

import asyncio
import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline import Deadline, custom_resources, model, resources
from gangline.simulate import Kubelet, Scheduler, SimulatedClient, running
from gangline.testing import FakeHandle, Groups, cluster, make_node, make_pod
from gangline.testing.deciding import GroupRejection, decide_group
from gangline.testing.gang_stories import PROFILE, GangCluster, profile_with
from gangline.testing.gangs import Gangs
from gangline_plugins.reservation import Reservation, ReservationArgs
from gangline_plugins.reservation.lifetimes import Lifetimes
from gangline_plugins.reservation.room import Leaving

NODES_IN_ALL = 8
MAX_RUNTIME, RUN = "gangline.dev/max-runtime", "gangline.dev/run-seconds"


class BusyCluster(GangCluster):
    """Nodes that are kept full by a stream of small jobs, while one gang wants all of them."""

    def __init__(self, reserves: bool) -> None:
        super().__init__(leaves=0)
        self.profile = profile_with("Reservation") if reserves else PROFILE
        self.random = random.Random(7)
        self.jobs = 0
        self.spare = 8
        """Waiting pods that there are always, the gang's among them."""
        self.create(resources.NODES, *(make_node(f"n{n}", gpus=8, cpu=64, memory="512Gi") for n in range(NODES_IN_ALL)))

    def add_job(self) -> None:
        """A pod that takes a node for 1 to 10 minutes, and says so."""
        seconds = self.random.randrange(60, 600)
        notes = {MAX_RUNTIME: f"{seconds}s", RUN: str(seconds)}
        self.create(resources.PODS, make_pod(f"job-{self.jobs}", gpus=8, annotations=notes, scheduler_name="gangs"))
        self.jobs += 1

    def gang_is_bound(self, size: int) -> bool:
        return all(self.get(resources.PODS, f"big-{n}").spec.node_name for n in range(size))

    def wait_of_gang(self, seconds: float, size: int) -> tuple[float | None, str]:
        """Virtual seconds that the gang waited, None if it never started, and what it was first told."""
        return self.play(lambda: self._story(seconds, size))

    async def _story(self, seconds: float, size: int) -> tuple[float | None, str]:
        client, kubelet = SimulatedClient(self.server, latency={"bind": 0.01}), Kubelet(self.server, self.clock)
        async with self.scheduling(self.profile, client) as scheduler, running(kubelet.run(), self._stream(scheduler)):
            await asyncio.sleep(300.0)
            self.spare += size
            self.add_gang("big", size, {})
            start = self.clock.monotonic()
            said = ""
            while self.clock.monotonic() - start < seconds:
                await asyncio.sleep(2.0)
                unit = scheduler.queue.get(self.get(resources.PODS, "big-0").metadata.uid)
                said = said or (unit.message if unit is not None else "")
                if self.gang_is_bound(size):
                    return self.clock.monotonic() - start, said
            return None, said

    async def _stream(self, scheduler: Scheduler) -> None:
        """Always some jobs more than there is room for."""
        while True:
            for _ in range(self.spare - sum(scheduler.queue.counts().values())):
                self.add_job()
            await asyncio.sleep(2.0)


def test_without_a_reservation_a_stream_of_small_jobs_starves_a_large_gang() -> None:
    waited, _ = BusyCluster(reserves=False).wait_of_gang(seconds=700.0, size=NODES_IN_ALL)

    assert waited is None


def test_with_one_it_starts_when_it_was_told() -> None:
    cluster = BusyCluster(reserves=True)

    waited, said = cluster.wait_of_gang(seconds=700.0, size=NODES_IN_ALL)

    assert "estimated start" in said
    assert waited is not None and waited <= 600.0 + 30.0


def busy(*runs: str, namespace: str = "default", allow: str = "", **args: Any) -> Gangs:
    """A node for each pod that is on it and says how long it runs."""
    cache = cluster(make_node(f"n{i}", gpus=8, cpu=64, memory="512Gi") for i in range(len(runs)))
    meta = model.ObjectMeta(name=namespace, annotations={custom_resources.ALLOW: allow})
    cache.store(resources.NAMESPACES).upsert(model.Namespace(meta))
    gangs = Gangs(cache, Reservation, args={"Reservation": ReservationArgs(**args)})
    gangs.handle.fake_pending.queued = lambda key: True
    for i, said in enumerate(runs):
        notes = {MAX_RUNTIME: said} if said else {}
        pod = make_pod(f"busy-{i}", gpus=8, node=f"n{i}", annotations=notes, namespace=namespace)
        cache.upsert_pod(cache.record(pod))
    return gangs


def reserved(gpus_of_gang: int = 8, **args: Any) -> tuple[Gangs, float]:
    """Two nodes with a pod each that ends after 100 and 200 s, and a gang of two that waits; with its start."""
    gangs = busy("100s", "200s", **args)
    rejected = gangs.decide(gangs.gang("big", 2, gpus=gpus_of_gang))
    assert isinstance(rejected, GroupRejection) and "estimated start" in rejected.message
    return gangs, gangs.handle.clock.now() + 200.0


def small(gangs: Gangs, gpus: int = 8, runs: str = "1h") -> dict[str, bool]:
    """Where a pod that would like to run now may go, once the pod on n0 is gone."""
    gangs.cache.remove_pod("pod-default-busy-0")
    pod = gangs.cache.record(make_pod("small", gpus=gpus, annotations={MAX_RUNTIME: runs}))
    feasible = gangs.runtime.filter(pod).feasible
    return {name: bool(feasible[row]) for row, name in enumerate(gangs.cache.nodes.names)}


def test_a_pod_that_ends_before_the_gang_starts_may_use_its_room() -> None:
    gangs, _ = reserved()

    assert small(gangs, runs="199s")["n0"]


def test_a_pod_that_lasts_longer_may_not() -> None:
    gangs, _ = reserved()

    assert not small(gangs, runs="201s")["n0"]


def test_a_pod_that_takes_what_the_gang_leaves_may() -> None:
    gangs, _ = reserved(gpus_of_gang=6)

    assert small(gangs, gpus=2)["n0"]


def test_a_pod_of_higher_priority_is_not_kept_out() -> None:
    gangs, _ = reserved()
    gangs.cache.remove_pod("pod-default-busy-0")
    pod = gangs.cache.record(make_pod("urgent", gpus=8, priority=10))

    assert gangs.runtime.filter(pod).feasible[0]


def test_a_gang_that_waits_no_longer_keeps_no_room() -> None:
    gangs, _ = reserved()
    gangs.handle.fake_pending.queued = lambda key: False

    assert small(gangs)["n0"]


def test_a_gang_that_came_later_waits_for_the_first_one() -> None:
    gangs, _ = reserved()

    second = gangs.decide(gangs.gang("second", 2))

    assert isinstance(second, GroupRejection)
    assert "room is kept for gang default/big before it" in second.message


def test_a_gang_of_another_namespace_is_not_told_for_whom_room_is_kept() -> None:
    gangs, _ = reserved()

    meta = model.ObjectMeta(name="other", namespace="elsewhere", uid="group-other")
    gangs.cache.store(resources.SCHEDULER_PLUGINS_POD_GROUPS).upsert(
        model.PodGroup(meta, model.PodGroupSpec(min_member=2))
    )

    other = gangs.decide([gangs.pod("other", number, namespace="elsewhere") for number in range(2)])

    assert isinstance(other, GroupRejection)
    assert "room is kept for a gang of another namespace before it" in other.message
    assert "big" not in other.message


def test_without_known_ends_there_is_no_estimate() -> None:
    cache = cluster([make_node("n0", gpus=8)], [make_pod("busy", gpus=8, node="n0")])
    gangs = Gangs(cache, Reservation, args={"Reservation": ReservationArgs()})
    gangs.handle.fake_pending.queued = lambda key: True

    rejected = gangs.decide(gangs.gang("big", 1))

    assert isinstance(rejected, GroupRejection) and "estimated" not in rejected.message


def test_planning_changes_nothing() -> None:
    gangs, _ = reserved()

    assert gangs.cache.nodes.view().requested("nvidia.com/gpu").tolist() == [8, 8]


# When it ends


def events(gangs: Gangs) -> list[tuple[str, str]]:
    """Reason and note of what was told, each once."""
    return list(dict.fromkeys((event.reason, event.note) for event in gangs.handle.fake_recorder.events))


def gauge(gangs: Gangs, name: str) -> list[tuple[dict[str, str], float]]:
    """The series of a metric."""
    families = gangs.handle.fake_metrics.registry.collect()
    return [(dict(each.labels), each.value) for family in families for each in family.samples if each.name == name]


def test_a_reservation_is_told_in_events_and_gauges() -> None:
    gangs, _ = reserved()

    assert events(gangs) == [
        ("ReservationBegan", "Room is kept on 2 nodes for gang default/big, which is to start at 1970-01-01T00:20:00Z")
    ]
    whose = {"namespace": "default", "gang": "big"}
    assert gauge(gangs, "gangline_reserved_nodes") == [(whose, 2.0)]
    assert gauge(gangs, "gangline_reserved_gpus") == [(whose, 16.0)]
    assert gauge(gangs, "gangline_reservation_start_time_seconds") == [(whose, 1000.0)]


def test_a_gang_that_is_incomplete_keeps_no_room_and_is_told_why() -> None:
    gangs, _ = reserved()
    gangs.handle.fake_pending.queued = lambda key: False

    assert small(gangs)["n0"]
    reason, note = events(gangs)[-1]
    assert (reason, note) == (
        "ReservationEnded",
        "Room is kept no longer for gang default/big: the gang is not complete any more",
    )
    assert gauge(gangs, "gangline_reserved_nodes") == []
    assert ({"reason": "incomplete"}, 1.0) in gauge(gangs, "gangline_reservations_ended_total")
    assert [event.resource for event in gangs.handle.fake_pending.announced] == ["gangline.dev/reservations"]


def test_a_reservation_and_the_ends_of_pods_are_shown_to_people() -> None:
    gangs, at = reserved()
    ((plugin, outlook),) = gangs.handle.outlooks

    (start,) = outlook.starts()
    assert plugin == "Reservation"
    assert (start.at, start.since, start.gpus, start.nodes) == (at, 1000.0, 16, ("n0", "n1"))
    running = make_pod("running", annotations={MAX_RUNTIME: "1h"})
    running.status.start_time = "1970-01-01T00:10:00Z"
    assert outlook.end_of(gangs.cache.record(running)) == 600.0 + 3600.0
    assert math.isinf(outlook.end_of(gangs.cache.record(make_pod("new", annotations={MAX_RUNTIME: "1h"}))))
    gangs.handle.fake_clock.seconds = at + 61.0
    small(gangs)
    assert not outlook.starts()


def test_a_reservation_ends_when_its_time_has_passed() -> None:
    gangs, at = reserved()
    gangs.handle.fake_clock.seconds = at + 61.0

    assert small(gangs)["n0"]
    assert "has passed" in events(gangs)[-1][1]


@pytest.mark.parametrize("is_tried", [True, False], ids=["the gang is tried", "the gang is not tried"])
def test_a_plan_of_a_clock_that_was_a_day_fast_ends_when_the_clock_is_put_right(is_tried: bool) -> None:
    gangs = busy("100s", "200s")
    gangs.handle.fake_clock.seconds = right = 90_000.0
    gangs.handle.fake_clock.now = lambda: right + 86_400.0  # type: ignore[method-assign]  # monotonic stays right
    pods = gangs.gang("big", 2, gpus=8)
    assert isinstance(gangs.decide(pods), GroupRejection) and gangs.cache.shared(Leaving).kept is not None

    gangs.handle.fake_clock.now = lambda: right  # type: ignore[method-assign]
    if is_tried:
        rejected = gangs.decide(pods)
        assert isinstance(rejected, GroupRejection) and "estimated start 1970-01-02T01:03:20Z" in rejected.message
        kept = gangs.cache.shared(Leaving).kept
        assert kept is not None and (kept.at, kept.since) == (right + 200.0, right)
        assert not small(gangs)["n0"]
    else:
        assert small(gangs)["n0"]
        assert "nobody knows any more" in events(gangs)[-1][1]


def test_a_reservation_lasts_no_longer_than_the_profile_allows_and_then_pauses_as_long() -> None:
    gangs, _ = reserved(max_reservation_seconds=50.0)
    pods = [gangs.pod("big", i) for i in range(2)]
    seen = []

    for seconds in (1049.0, 1050.0, 1099.0, 1100.0):
        gangs.handle.fake_clock.seconds = seconds
        rejected = gangs.decide(pods)
        assert isinstance(rejected, GroupRejection)
        seen.append("room is kept on 2 nodes" in rejected.message)
        if seconds == 1050.0:
            assert "no room is kept for it before 1970-01-01T00:18:20Z" in rejected.message

    assert seen == [True, False, False, True]


def test_a_plan_that_takes_too_long_leaves_the_reservation_as_it_was() -> None:
    gangs, _ = reserved()
    gangs.handle.fake_clock.seconds += 30.0  # it is time to plan anew
    leaving = gangs.cache.shared(Leaving)
    pods = [gangs.pod("big", i) for i in range(2)]
    while_planning = Deadline(1.0, lambda: 0.0 if leaving.kept is not None else 2.0)

    rejected = decide_group(gangs.runtime, pods, deadline=while_planning)

    assert isinstance(rejected, GroupRejection) and rejected.is_late
    assert leaving.kept is not None and leaving.kept.gang == "big"
    assert not small(gangs)["n0"]


def test_a_reservation_that_has_served_is_over() -> None:
    gangs, _ = reserved()
    for i in range(2):
        gangs.cache.remove_pod(f"pod-default-busy-{i}")

    placed = gangs.place([gangs.pod("big", i) for i in range(2)])

    assert len(placed) == 2
    assert events(gangs)[-1][1] == "Room is kept no longer for gang default/big: the gang has its place"
    assert gauge(gangs, "gangline_reserved_gpus") == []


# What others say


@pytest.mark.parametrize(
    ("allow", "is_believed"), [("", False), ("min-runtime", False), ("max-runtime", True), ("*", True)]
)
def test_what_another_namespace_promises_counts_where_it_may_promise(allow: str, is_believed: bool) -> None:
    gangs = busy("100s", "200s", namespace="other", allow=allow)

    rejected = gangs.decide(gangs.gang("big", 2))

    assert isinstance(rejected, GroupRejection)
    assert ("estimated start" in rejected.message) is is_believed


@pytest.mark.parametrize("text", ["99999999h", "9" * 63 + "h", "9" * 5000 + "h", "infh", "1e400s", "-1h", "\u0663h"])
def test_no_promise_of_anybody_fails_a_gang(text: str) -> None:
    gangs = busy("100s", text, namespace="other", allow="*")

    rejected = gangs.decide(gangs.gang("big", 2))

    assert isinstance(rejected, GroupRejection) and not rejected.is_error, rejected


def test_a_promise_that_is_too_long_is_cut_and_the_pod_is_told() -> None:
    gangs = busy("99999999h")

    rejected = gangs.decide(gangs.gang("big", 1))

    assert isinstance(rejected, GroupRejection)
    assert "estimated start 1970-01-08T00:16:40Z" in rejected.message
    assert "MaxRuntimeCut" in [reason for reason, _ in events(gangs)]


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "soon", "9" * 5000])
def test_no_start_of_a_pod_fails_a_gang(start: str) -> None:
    gangs = busy("")
    pod = make_pod("busy-0", gpus=8, node="n0", annotations={MAX_RUNTIME: "1h"})
    pod.status.start_time = start
    gangs.cache.upsert_pod(gangs.cache.record(pod))

    rejected = gangs.decide(gangs.gang("big", 1))

    assert isinstance(rejected, GroupRejection) and not rejected.is_error, rejected


def test_gangs_need_permission_for_a_reservation_where_the_profile_says_so() -> None:
    gangs = busy("100s", require_reservation_permission=True)

    rejected = gangs.decide(gangs.gang("big", 1))

    assert isinstance(rejected, GroupRejection)
    assert 'does not list "reservation"' in rejected.message and "estimated" not in rejected.message


# A whole story


class TwoTenants(GangCluster):
    """Four nodes, two of them full for ten minutes; a gang that needs all, and pods of another namespace."""

    def __init__(self) -> None:
        super().__init__(leaves=0)
        self.create(resources.NODES, *(make_node(f"n{n}", gpus=8, cpu=64, memory="512Gi") for n in range(4)))
        notes = {MAX_RUNTIME: "10m"}
        self.create(
            resources.PODS,
            *(make_pod(f"busy-{n}", 8, node=f"n{n}", annotations=notes, scheduler_name="gangs") for n in range(2)),
        )

    def seconds_to_start(self, delete: str, **args: Any) -> float:
        """Virtual seconds from the deletion of a member to the start of the others' pods."""
        return self.play(lambda: self._story(delete, **args))

    async def _story(self, delete: str, **args: Any) -> float:
        async with self.scheduling(profile_with("Reservation", **args)):
            self.add_gang("big", 4, {})
            await self.until(lambda: "room is kept on" in self.message("big-0"))
            self.create(
                resources.PODS, *(make_pod(f"job-{n}", 8, namespace="other", scheduler_name="gangs") for n in range(2))
            )
            await self.until(lambda: "reserved for a waiting group" in self.message("job-0", "other"))
            if delete:
                self.server.delete(resources.PODS, delete, namespace="default")
            return await self.until(lambda: len(self.bound("job-")) == 2, seconds=700.0)


def test_other_tenants_start_at_once_when_a_member_of_the_reserved_gang_is_deleted() -> None:
    assert TwoTenants().seconds_to_start("big-3") <= 12.0


def test_other_tenants_start_when_the_reservation_has_lasted_as_long_as_it_may() -> None:
    assert 20.0 <= TwoTenants().seconds_to_start("", maxReservationSeconds=30.0) <= 45.0


class LateCluster(GangCluster):
    """A node with a pod that runs longer than it says, and a gang that room is kept for meanwhile."""

    def __init__(self) -> None:
        super().__init__(leaves=0)
        self.create(resources.NODES, *(make_node(f"n{n}", gpus=8, cpu=64, memory="512Gi") for n in range(2)))
        self.create(resources.PODS, make_pod("busy", 8, node="n0", annotations={MAX_RUNTIME: "2m"}))

    async def said(self) -> str:
        """The message on the gang soon after its time has passed, while nothing else happens."""
        profile = profile_with("Reservation", maxReservationSeconds=100.0)
        async with self.scheduling(profile, SimulatedClient(self.server)):
            self.add_gang("big", 2, {})
            await self.until(lambda: "room is kept on" in self.message("big-0"))
            await asyncio.sleep(130.0)
            return self.message("big-0")


def test_a_gang_is_not_told_that_room_is_kept_when_it_is_kept_no_longer() -> None:
    story = LateCluster()

    assert "no room is kept for it before" in story.play(story.said)


@pytest.mark.parametrize("default", [None, 60.0])
def test_the_pods_that_end_are_those_whose_end_is_known(default: float | None) -> None:
    gangs = busy("100s", "", "soon", "50s")
    cache, handle = gangs.cache, gangs.handle
    job = model.OwnerReference("Job", "train", "uid-train", "batch/v1", controller=True)
    owned = make_pod("owned", node="n1")
    owned.metadata.owner_references = [job]
    cache.store(resources.JOBS).upsert(
        model.Job(model.ObjectMeta("train", "default", uid="uid-train", annotations={MAX_RUNTIME: "5s"}))
    )
    bounded = make_pod("bounded", node="n1")
    bounded.spec.active_deadline_seconds = 7
    leaving = make_pod("leaving", node="n1")
    leaving.metadata.deletion_timestamp = "2026-01-01T00:00:00Z"
    for pod in (owned, bounded, leaving, make_pod("waiting", annotations={MAX_RUNTIME: "5s"})):
        cache.upsert_pod(cache.record(pod))
    lifetimes = Lifetimes(handle, ReservationArgs(default_max_runtime_seconds=default))

    found = {pod.name: end for end, pod in lifetimes.endings(1000.0, "default")}

    ends = {pod.name: lifetimes.end_of(pod, 1000.0, "default") for pod in cache.pods.values() if pod.row >= 0}
    assert found == {name: end for name, end in ends.items() if end < float("inf")}
    assert {"owned", "bounded", "leaving", "busy-0", "busy-3"} <= found.keys()
    assert ("busy-1" in found) == bool(default)


@given(st.data())
def test_no_pod_is_missed_whose_end_is_known(data: st.DataObject) -> None:
    cache = cluster(make_node(f"n{n}", gpus=8) for n in range(2))
    handle = FakeHandle(cache, grouping=Groups(cache))
    lifetimes = Lifetimes(handle, ReservationArgs())
    for _ in range(data.draw(st.integers(1, 12))):
        number = data.draw(st.integers(0, 5))
        said = data.draw(st.sampled_from([{}, {MAX_RUNTIME: "5s"}]))
        if data.draw(st.integers(0, 3)) == 0:
            meta = model.ObjectMeta(f"job-{number % 2}", "default", uid=f"uid-{number % 2}", annotations=said)
            cache.store(resources.JOBS).upsert(model.Job(meta))
            continue
        owner = model.OwnerReference("Job", f"job-{number % 2}", f"uid-{number % 2}", "batch/v1", controller=True)
        pod = make_pod(f"p{number}", node=f"n{number % 2}", annotations=said)
        pod.metadata.owner_references = data.draw(st.sampled_from([[], [owner]]))
        pod.spec.active_deadline_seconds = data.draw(st.sampled_from([None, None, 7]))
        pod.metadata.deletion_timestamp = data.draw(st.sampled_from([None, None, "2026-01-01T00:00:00Z"]))
        if data.draw(st.booleans()):
            cache.upsert_pod(cache.record(pod))
        else:
            cache.remove_pod(pod.metadata.uid)

    found = {pod.uid: end for end, pod in lifetimes.endings(1000.0, "default")}

    ends = {pod.uid: lifetimes.end_of(pod, 1000.0, "default") for pod in cache.pods.values() if pod.row >= 0}
    assert found == {uid: end for uid, end in ends.items() if end < float("inf")}
