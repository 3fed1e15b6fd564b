"""A day on a large cluster: mixed work comes and goes, nodes are lost, and the scheduler is replaced meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from gangline_e2e.api import Api, connect
from gangline_e2e.day import fabric, figures
from gangline_e2e.day.following import Follower
from gangline_e2e.day.judge import Judge
from gangline_e2e.day.objects import CLAIMS, priority_classes
from gangline_e2e.day.plan import losses, plan
from gangline_e2e.day.playing import Player
from gangline_e2e.day.replicas import NAMESPACE, Replicas
from gangline_e2e.day.sight import Claim, Lease, Node, Pod
from gangline_e2e.day.size import size
from gangline_e2e.devices import LEASES, MANAGED
from gangline_e2e.errors import WaitedTooLong
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import LARGEST_HEAP, ControlPlane, Options
from gangline_e2e.scheduler import Gangline

OPTIONS = Options(
    apiserver_args=(
        "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ),
    heap=LARGEST_HEAP,
)
SIZE = size()
LOOK_S = 1.0
ROLLOUT = 0.3
"""When the scheduler is replaced, as a part of the day."""
STARTED_S = 60.0 + 0.4 * SIZE.day.seconds
"""Until something more has started: for some of it what runs has to end."""
SETTLED_S = 90.0
"""Until one more lock is gone that nobody needs: the reaper's sweep comes every 30 s."""

pytestmark = [pytest.mark.timeout(3 * SIZE.day.seconds + 900), pytest.mark.alone]


async def test_a_day_of_mixed_work(
    start_control_plane: Callable[[Options], ControlPlane], start_gangline: Callable[..., Gangline]
) -> None:
    plane = start_control_plane(OPTIONS)
    judge = Judge(SIZE.fabric)
    async with connect(plane.kubeconfig, "day") as api:
        await _prepare(api)
        began = time.monotonic()
        await fabric.build(api, SIZE.fabric)
        print(f"{SIZE.fabric} made in {time.monotonic() - began:.0f} s")
        replicas = Replicas(api, plane.kubeconfig, start_gangline, judge.hand_over)
        await replicas.start(2)
        player = Player(api, judge)
        async with _judged(api, judge, player):
            try:
                await _play(player, replicas)
                await _until_started(player, judge)
            finally:
                replicas.measure()
                figures.show(judge, replicas, player.clock.held_s, _cpu_s(plane))
                print(*judge.faults, sep="\n")
            assert judge.faults == []
            assert await _unsettled(player, judge) == set()

    assert judge.counts["pods lost with their nodes"]
    assert replicas.without


def _cpu_s(plane: ControlPlane) -> dict[str, float]:
    """What the control plane and this process have used."""
    used = {name: process.usage().cpu_s for name, process in plane.processes.items()}
    return {**used, "this process": time.process_time()}


async def _prepare(api: Api) -> None:
    await install(api)
    await install_foreign(api)
    await api.create_many(priority_classes())
    await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": api.namespace}})


async def _play(player: Player, replicas: Replicas) -> None:
    """The day, until the last workload has come and every node is back."""

    async def rollout() -> None:
        await player.clock.until(SIZE.day.seconds * ROLLOUT)
        await replicas.roll()

    async with asyncio.TaskGroup() as group:
        group.create_task(player.users(plan(SIZE.day, SIZE.fabric)))
        group.create_task(player.cloud(losses(SIZE.day, SIZE.fabric)))
        group.create_task(rollout())


async def _until_started(player: Player, judge: Judge) -> None:
    """Wait until all that came has started; as long as something goes on starting, however slow this machine is."""
    while left := judge.unstarted():
        bound = len(judge.bindings)

        def goes_on(bound: int = bound) -> bool:
            return len(judge.bindings) > bound or not judge.unstarted()

        await player.until(goes_on, f"more has started, of {len(left)} that wait: {left[:20]}", STARTED_S)


async def _unsettled(player: Player, judge: Judge) -> set[str]:
    """What locks and claims say against the pods, and go on saying.

    Pods that end meanwhile have locks for a moment, and the reaper needs its time where the API server is busy: this
    waits as long as something is put right.
    """
    left = set(judge.final_faults())
    while left:
        before = left

        def is_better(before: set[str] = before) -> bool:
            return not before.issubset(judge.final_faults())

        with suppress(WaitedTooLong):
            await player.until(is_better, "locks say what pods have", SETTLED_S)
        left = before.intersection(judge.final_faults())
        if left == before:
            break
    return left


@asynccontextmanager
async def _judged(api: Api, judge: Judge, player: Player) -> AsyncIterator[None]:
    """Everything is followed and judged in this block, and what has ended is cleaned up."""

    def pod(event: str, seen: Pod, now: float) -> None:
        judge.pod(event, seen, now)
        if judge.settled or judge.orphans:
            player.wake()

    followers: list[Follower[Any]] = [
        Follower(api, "/api/v1/nodes", Node, judge.node),
        Follower(api, api.pods, Pod, pod),
        Follower(api, LEASES.format(NAMESPACE), Lease, judge.lease, labelSelector=MANAGED),
        Follower(api, CLAIMS.format(api.namespace), Claim, judge.claim),
    ]

    async def look() -> None:
        while True:
            await asyncio.sleep(LOOK_S)  # a sample, not a condition
            judge.look(time.monotonic())
            player.wake()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(follower.run()) for follower in followers]
        tasks += [group.create_task(look()), group.create_task(player.controllers())]
        for follower in followers:
            await follower.started.wait()
        yield
        for task in tasks:
            task.cancel()
