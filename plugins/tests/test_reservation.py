"""The group that waits longest gets a date, and nothing that lasts longer may take its room."""

from __future__ import annotations

import asyncio
import random

from framework.tests.gang_cluster import PROFILE, GangCluster, profile_with
from framework.tests.gangs import Gangs

from gangline.group_scheduling import GroupRejection
from gangline.kube.resources import NODES, PODS
from gangline.scheduler import Scheduler
from gangline.simulate import Kubelet, SimulatedClient, running
from gangline.testing import cluster, make_node, make_pod
from gangline_plugins.reservation import Reservation, ReservationArgs

NODES_IN_ALL = 64
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
        self.create(NODES, *(make_node(f"n{n}", gpus=8, cpu=64, memory="512Gi") for n in range(NODES_IN_ALL)))

    def add_job(self) -> None:
        """A pod that takes a node for 1 to 10 minutes, and says so."""
        seconds = self.random.randrange(60, 600)
        notes = {MAX_RUNTIME: f"{seconds}s", RUN: str(seconds)}
        self.create(PODS, make_pod(f"job-{self.jobs}", gpus=8, annotations=notes, scheduler_name="gangs"))
        self.jobs += 1

    def gang_is_bound(self, size: int) -> bool:
        return all(self.get(PODS, f"big-{n}").spec.node_name for n in range(size))

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
                unit = scheduler.queue.get(self.get(PODS, "big-0").metadata.uid)
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


def reserved(gpus_of_gang: int = 8) -> tuple[Gangs, float]:
    """Two nodes with a pod each that ends after 100 and 200 s, and a gang of two that waits; with its start."""
    cache = cluster(make_node(f"n{i}", gpus=8, cpu=64, memory="512Gi") for i in range(2))
    gangs = Gangs(cache, Reservation, args={"Reservation": ReservationArgs()})
    gangs.handle.waits = lambda key: True
    for i, seconds in enumerate((100, 200)):
        pod = make_pod(f"busy-{i}", gpus=8, node=f"n{i}", annotations={MAX_RUNTIME: f"{seconds}s"})
        cache.upsert_pod(cache.record(pod))
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
    gangs.handle.waits = lambda key: False

    assert small(gangs)["n0"]


def test_a_gang_that_came_later_waits_for_the_first_one() -> None:
    gangs, _ = reserved()

    second = gangs.decide(gangs.gang("second", 2))

    assert isinstance(second, GroupRejection)
    assert "room is kept for gang default/big before it" in second.message


def test_without_known_ends_there_is_no_estimate() -> None:
    cache = cluster([make_node("n0", gpus=8)], [make_pod("busy", gpus=8, node="n0")])
    gangs = Gangs(cache, Reservation, args={"Reservation": ReservationArgs()})
    gangs.handle.waits = lambda key: True

    rejected = gangs.decide(gangs.gang("big", 1))

    assert isinstance(rejected, GroupRejection) and "estimated" not in rejected.message


def test_planning_changes_nothing() -> None:
    gangs, _ = reserved()

    assert gangs.cache.nodes.view().requested("nvidia.com/gpu").tolist() == [8, 8]
