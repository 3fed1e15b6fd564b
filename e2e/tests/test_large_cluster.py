"""A day on a large cluster: thousands of nodes, mixed work that comes and goes, losses and a rollout in the middle of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

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
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.scheduler import Gangline

OPTIONS = Options(
    apiserver_args=(
        "--feature-gates=GenericWorkload=true,TopologyAwareWorkloadScheduling=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ),
)
SIZE = size()
LOOK_S = 1.0
ROLLOUT = 0.3
"""When the scheduler is replaced, as a part of the day."""
STARTED_S = 120.0
"""After the day, until all that came has started: what runs has to end for some."""
SETTLED_S = 45.0
"""Until locks and claims say what pods have: the reaper's sweep comes every 30 s."""

pytestmark = pytest.mark.timeout(SIZE.day.seconds + 600)


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
        replicas = Replicas(api, plane.kubeconfig, start_gangline)
        await replicas.start(2)
        player = Player(api, judge)
        async with _judged(api, judge, player):
            try:
                await _play(player, replicas)
                await player.until(lambda: not judge.unstarted(), "all that came has started", STARTED_S)
            finally:
                replicas.measure()
                figures.show(judge, replicas.peak_rss, replicas.without, player.clock.held_s)
                print(*judge.faults, sep="\n")
                open("/tmp/apimetrics","w").write(await api.send_text("GET","/metrics")) #DEV
            assert judge.faults == []
            await player.until(lambda: not judge.final_faults(), "locks and claims say what pods have", SETTLED_S)

    assert judge.counts["pods lost with their nodes"]
    assert replicas.without


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


@asynccontextmanager
async def _judged(api: Api, judge: Judge, player: Player) -> AsyncIterator[None]:
    """Everything is followed and judged in this block, and what has ended is cleaned up."""

    def pod(event: str, seen: Pod, now: float) -> None:
        judge.pod(event, seen, now)
        if judge.settled or judge.orphans:
            player.wake()

    followers: list[Follower] = [
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
