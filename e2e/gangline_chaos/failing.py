"""Lets schedulers die at failpoints: the next leader, and for a test one leader after the other at each failpoint."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable

from gangline import failpoints
from gangline_chaos import units
from gangline_chaos.judge.history import HistoryFile, Mark
from gangline_chaos.schedulers import STOP_S, Replica
from gangline_chaos.site import Site
from gangline_chaos.units import FABRIC, Unit
from gangline_e2e.gangs import pod_of
from gangline_e2e.gpu_crds import NODE_STATUSES, node_status
from gangline_e2e.workloads import Manifest, is_bound

READY_S, LEADS_S = 40.0, 30.0
DIES_S = 15.0
"""How long a scheduler with a failpoint may live as the leader; then it is killed."""
WAIT_S = 60.0
LATE = "annotation."
"""Failpoints that are passed only when a pod gets its devices after it was bound."""
SECOND = frozenset({"bind.before-write", "bind.after-write", "lock.before-write", "lock.after-write"})
"""Failpoints that are passed for each pod or device: the process dies at the second pass."""
STAYS_S = 600.0


async def dies_at(site: Site, said: str, work: Callable[[], Awaitable[None]]) -> bool:
    """Let the standby die at a failpoint while it leads and there is work; whether it died there and was not killed."""
    replicas = site.replicas
    leader, doomed = await replicas.leader(), await replicas.standby()
    replicas.hold(doomed)
    replicas.hold(leader)
    try:
        await asyncio.to_thread(doomed.kill)
        doomed.start({failpoints.VARIABLE: said})
        await _hand_over(site, leader, doomed)
        replicas.release(leader)
        await work()
        return await _dies(doomed)
    finally:
        replicas.release(leader)
        replicas.release(doomed)


async def at_each(site: Site, seed: int, history: HistoryFile, say: Callable[[str], None]) -> list[str]:
    """Let a leader die at each failpoint, and wait after each until all pods are bound; the failpoints not reached.

    One replica dies again and again. The other one takes over each time, and hands over to the next to die.
    """
    missed = []
    rng = random.Random(seed)
    keeper, doomed = await site.replicas.leader(), await site.replicas.standby()
    site.replicas.hold(doomed)
    await asyncio.to_thread(doomed.kill)
    for number, name in enumerate(failpoints.NAMES):
        doomed.start({failpoints.VARIABLE: f"{name}=exit@{2 if name in SECOND else 1}"})
        if name.startswith(LATE):
            await _bind_unseen(site, FABRIC.nodes + number)
        site.replicas.hold(keeper)
        history.add(Mark(site.recorder.now(), "begin", name))
        await _hand_over(site, keeper, doomed, FABRIC.nodes + number if name.startswith(LATE) else None)
        site.replicas.release(keeper)
        if not name.startswith(LATE):
            await _churn(site, rng, number)
        died = await _dies(doomed)
        await site.recorder.caught_up()
        history.add(Mark(site.recorder.now(), "end", name))
        began = site.recorder.now()
        await site.api.until(lambda: _all_there(site), f"all pods are bound after {name}", WAIT_S)
        how, took = "died" if died else "NOT reached", site.recorder.now() - began
        say(f"{began:7.1f} s  {name}: {how}, recovered in {took:.1f} s")
        missed += [] if died else [name]
        await site.replicas.leader()
    site.replicas.release(doomed)
    return missed


async def _hand_over(site: Site, leader: Replica, doomed: Replica, reports: int | None = None) -> None:
    """Stop the leader, and wait until the other one leads or has died of that. A node may report in between."""
    await site.api.until(lambda: asyncio.to_thread(doomed.is_ready), f"{doomed.name} is ready", READY_S)
    leader.is_expected_to_end = True
    leader.signal(signal.SIGTERM)
    if not await asyncio.to_thread(leader.scheduler.process.wait, STOP_S):
        await asyncio.to_thread(leader.kill)
    if reports is not None:
        await _report(site, reports)

    async def over() -> bool:
        return not doomed.scheduler.alive() or await asyncio.to_thread(doomed.leads)

    await site.api.until(over, f"{doomed.name} leads", LEADS_S)


async def _dies(doomed: Replica) -> bool:
    """Whether a process dies; it is killed if it does not."""
    died = await asyncio.to_thread(doomed.scheduler.process.wait, DIES_S)
    if not died:
        await asyncio.to_thread(doomed.kill)
    return died


async def _churn(site: Site, rng: random.Random, number: int) -> None:
    """The units of the round before go, and a gang and pods with claims come."""
    await site.workload.end()
    await site.workload.add(units.gang(rng, f"gang-{number}", STAYS_S))
    await site.workload.add(units.with_claims(f"claims-{number}", [rng.randint(1, 2) for _ in range(3)], STAYS_S))


async def _bind_unseen(site: Site, number: int) -> None:
    """Bind a pod to a new node, which has not reported its devices yet."""
    node = FABRIC.node(number)
    await site.api.create(node)
    pod = pod_of(f"unseen-{number}", 0, 1, spec={"nodeSelector": {"kubernetes.io/hostname": FABRIC.name(number)}})
    await site.workload.add(Unit(f"unseen-{number}", 1, [], [], [pod], STAYS_S))
    await site.api.until(lambda: _all_there(site), "the pod on a node without a report is bound", WAIT_S)


async def _report(site: Site, number: int) -> None:
    """The node reports its devices."""
    name = FABRIC.name(number)
    await site.api.create(node_status(name))
    await site.api.merge(f"{NODE_STATUSES}/{name}/status", FABRIC.report(number))


async def _all_there(site: Site) -> bool:
    """Whether there are pods, all of them bound."""
    found: list[Manifest] = await site.api.list(site.api.pods)
    return bool(found) and all(map(is_bound, found))
