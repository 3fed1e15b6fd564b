"""Two schedulers at once, and one that is killed in the middle: no device goes to two pods, and none is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from gangline.failpoints import VARIABLE
from gangline_e2e.api import Api
from gangline_e2e.devices import CLAIM, LEASES, devices_of, disagreements, locked
from gangline_e2e.errors import WaitedTooLong
from gangline_e2e.gpu_crds import claim
from gangline_e2e.gpu_fleet import SCHEDULER, configuration, fleet
from gangline_e2e.harness import ControlPlane
from gangline_e2e.ledger import PodLedger
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound

EVENTS = "/apis/events.k8s.io/v1/namespaces/{}/events"
COUNTS = {1: 10, 2: 6, 4: 3, 8: 1}
"""Devices of a pod, and how many pods of twenty want so many."""
ALLOCATIONS = 1000
"""Of each granularity."""
STANDING, WAITING = 150, 150
"""How many pods have devices at a time, and how many wait for some."""
PODS = 180
DEATHS = ("lock.after-write=exit@10", "bind.before-write=exit@20", "lock.after-write=exit@15")
"""Where the scheduler dies, one time after the other: devices are locked, and their pod is not bound."""
STALLED_S = 60.0
SETTLED_S = 90.0
"""Most is settled at once; the reaper's sweep, which finds whatever a death has left, comes every 30 s."""

pytestmark = pytest.mark.timeout(480)
StartGangline = Callable[..., Gangline]


@pytest.mark.parametrize("granularity", ["device", "node"])
async def test_two_schedulers_give_no_device_to_two_pods_in_2000_allocations(
    granularity: str, empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, tmp_path: Path
) -> None:
    kubeconfig = own_control_plane.kubeconfig
    async with fleet(empty, kubeconfig, tmp_path, dgx_h100=100), _ledger(empty) as ledger:
        for _ in range(2):
            start_gangline(kubeconfig, configuration(empty.namespace, granularity))
        async with asyncio.TaskGroup() as group:
            churn = group.create_task(_churn(empty, ledger))
            ever = ledger.ever_bound
            await empty.until(_says(churn.done), "all pods have come and gone", STALLED_S, lambda: len(ever))
        await _settle(empty)

        assert ledger.doubles == []
        assert len(ledger.ever_bound) == ALLOCATIONS
        await empty.until(lambda: _have_said_so(empty), "events tell that both have bound pods")


@pytest.mark.parametrize("granularity", ["device", "node"])
async def test_a_scheduler_killed_while_it_reserves_strands_neither_devices_nor_pods(
    granularity: str, empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, tmp_path: Path
) -> None:
    kubeconfig = own_control_plane.kubeconfig
    async with fleet(empty, kubeconfig, tmp_path, dgx_h100=60), _ledger(empty) as ledger:
        await _create_claims(empty)
        dice = random.Random(3)
        config = configuration(empty.namespace, granularity)
        scheduler = start_gangline(kubeconfig, config, env={VARIABLE: DEATHS[0]})
        await empty.create_many(_pod(f"pod-{number}", dice) for number in range(PODS))
        stranded = []
        for death in (*DEATHS[1:], ""):
            assert await asyncio.to_thread(scheduler.process.wait, STALLED_S), scheduler.env
            stranded.append(await _locked_for_waiting(empty))
            scheduler.env = {VARIABLE: death}
            scheduler.launch()
        await _settle(empty)

        assert all(stranded), "a death did not come between a lease and its binding"
        assert ledger.doubles == []


async def test_what_bound_pods_lack_is_made_good(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, tmp_path: Path
) -> None:
    kubeconfig = own_control_plane.kubeconfig
    async with fleet(empty, kubeconfig, tmp_path, dgx_h100=2):
        await _create_claims(empty)
        there = {"nodeName": "dgx-h100-0"}  # bound by somebody who chose no devices
        await empty.create(gpu_pod("bare", gpus=2, scheduler_name=SCHEDULER, spec=there))
        start_gangline(kubeconfig, configuration(empty.namespace))
        await empty.until(lambda: _has_devices(empty, "bare"), "the pod that was bound without devices has some", 60.0)
        await empty.create(gpu_pod("claims", gpus=0, scheduler_name=SCHEDULER, annotations={CLAIM: "gpus-4"}))
        await _settle(empty)

        leases = await empty.list(LEASES.format(empty.namespace))
        await empty.delete_many(f"{LEASES.format(empty.namespace)}/{lease['metadata']['name']}" for lease in leases)
        await _settle(empty)

        assert len(leases) == len(await empty.list(LEASES.format(empty.namespace))) == 6


def _says(holds: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """A condition to wait for that asks nobody."""

    async def condition() -> bool:
        return holds()

    return condition


async def _has_devices(api: Api, pod: str) -> bool:
    """Whether the annotation of a pod names devices."""
    return bool(devices_of(await api.get(f"{api.pods}/{pod}")))


async def _have_said_so(api: Api) -> bool:
    """Whether both schedulers have bound pods, as their events say."""
    events = await api.list(EVENTS.format(api.namespace))
    return len({event["reportingInstance"] for event in events if event["reason"] == "Scheduled"}) == 2


async def _churn(api: Api, ledger: PodLedger) -> None:
    """Pods come, are bound and go in random order, so many at a time that most devices are in use."""
    await _create_claims(api)
    dice, standing = random.Random(7), list[Manifest]()
    names = iter(range(ALLOCATIONS))

    async def work() -> None:
        for number in names:
            made = await api.create(_pod(f"pod-{number}", dice))
            await ledger.until_bound(made["metadata"]["uid"])
            standing.append(made)
            if len(standing) > STANDING:
                await drop()
        while standing:  # those that still wait may need the room
            await drop()

    async def drop() -> None:
        gone = standing.pop(dice.randrange(len(standing)))
        await api.delete(f"{api.pods}/{gone['metadata']['name']}", at_once=True)

    async with asyncio.TaskGroup() as group:
        for _ in range(WAITING):
            group.create_task(work())


async def _create_claims(api: Api) -> None:
    """A claim for each number of devices, which all pods of that size share."""
    await api.create_many(claim(f"gpus-{count}", devices={"count": count}) for count in COUNTS)


async def _locked_for_waiting(api: Api) -> int:
    """How many devices are locked for pods that have no node."""
    leases, pods = await api.list(LEASES.format(api.namespace)), await api.list(api.pods)
    waiting = {pod["metadata"]["uid"] for pod in pods if not is_bound(pod)}
    return sum(bool(uids & waiting) for uids in locked(leases).values())


async def _settle(api: Api) -> None:
    """Wait until all pods are bound and leases are as they say, and fail with what is not."""
    with suppress(WaitedTooLong):
        await api.until(lambda: _is_settled(api), "all pods are bound, and leases are as they say", SETTLED_S)
    assert await _unsettled(api) == []


async def _is_settled(api: Api) -> bool:
    return not await _unsettled(api)


async def _unsettled(api: Api) -> list[str]:
    """Pods without a node and why, and devices of which leases and pods do not say the same."""
    pods, leases = await api.list(api.pods), await api.list(LEASES.format(api.namespace))
    waiting = [f"{pod['metadata']['name']}: {pod['status'].get('conditions')}" for pod in pods if not is_bound(pod)]
    return [*waiting, *disagreements(pods, leases)]


def _pod(name: str, dice: random.Random) -> Manifest:
    (count,) = dice.choices(list(COUNTS), list(COUNTS.values()))
    return gpu_pod(name, gpus=0, scheduler_name=SCHEDULER, annotations={CLAIM: f"gpus-{count}"})


@asynccontextmanager
async def _ledger(api: Api) -> AsyncIterator[PodLedger]:
    """What becomes of the pods in this block."""
    ledger = PodLedger(api)
    task = asyncio.create_task(ledger.follow())
    yield ledger
    task.cancel()
