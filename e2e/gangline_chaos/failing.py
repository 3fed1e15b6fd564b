"""Lets schedulers die at failpoints: the next leader, and for a test one leader after the other at each failpoint."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Mapping

from gangline import failpoints
from gangline_chaos import units
from gangline_chaos.judge.history import HistoryFile, Mark
from gangline_chaos.schedulers import STOP_S, Replica
from gangline_chaos.site import Site
from gangline_chaos.units import FABRIC, Unit
from gangline_e2e.gangs import pod_of
from gangline_e2e.gpu_crds import NODE_STATUSES, node_status
from gangline_e2e.workloads import Manifest, is_bound

READY_S, LEADS_S = 60.0, 60.0
DIES_S = 15.0
"""How long a scheduler with a failpoint may live as the leader; then it is killed."""
MISSED_S = 60.0
"""The same where every failpoint has to be reached, on a slow machine too."""
WAIT_S = 60.0
LATE = "annotation."
"""Failpoints that are passed only when a pod gets its devices after it was bound."""
SECOND = frozenset({"bind.before-write", "bind.after-write", "lock.before-write", "lock.after-write"})
"""Failpoints that are passed for each pod or device: the process dies at the second pass."""
UNREACHED: Mapping[str, str] = {
    "recovery.": "only the recovery of a gang passes them; stories of lost nodes let leaders die there",
    "preemption.": "only a preemption passes them; stories of gang preemption let schedulers die there",
}
"""Failpoints that are not reached here, by how their names begin, and why."""
STAYS_S = 600.0


def reached() -> list[str]:
    """The failpoints at which leaders die here."""
    return [name for name in failpoints.NAMES if not name.startswith(tuple(UNREACHED))]


async def dies_at(site: Site, said: str, work: Callable[[], Awaitable[None]]) -> bool:
    """Let the standby die at a failpoint while it leads and there is work. False if it had to be killed."""
    replicas = site.replicas
    leader, doomed = await replicas.pair()
    replicas.hold(doomed)
    replicas.hold(leader)
    try:
        await asyncio.to_thread(doomed.kill)
        doomed.start({failpoints.VARIABLE: said})
        await hand_over(site, leader, doomed)
        replicas.release(leader)
        await work()
        return await _dies(doomed, DIES_S)
    finally:
        replicas.release(leader)
        replicas.release(doomed)


async def at_each(site: Site, seed: int, history: HistoryFile, say: Callable[[str], None]) -> list[str]:
    """Let one leader after the other die, each at the next failpoint; returns the failpoints that were not reached.

    Of three replicas one is doomed to die. The other ones are keepers: after each death the standby takes over and has
    all pods bound, and then hands over to the doomed one, which has started meanwhile.
    """
    rng, names = random.Random(seed), reached()
    leader = await site.replicas.leader()
    standby, doomed = (replica for replica in site.replicas.each if replica is not leader)
    for replica in site.replicas.each:
        site.replicas.hold(replica)
    await asyncio.to_thread(doomed.kill)
    missed: list[str] = []
    for number, name in enumerate(names):
        if not number:
            _arm(doomed, name)
        history.add(Mark(site.recorder.now(), "begin", name))
        await _hand_over_past(site, leader, standby, doomed)
        leader.start()
        if doomed.scheduler.alive():
            await (_fill_report(site, FABRIC.nodes + number) if name.startswith(LATE) else _churn(site, rng, number))
        died = await _dies(doomed, MISSED_S)
        if number + 1 < len(names):
            _arm(doomed, names[number + 1])
        await site.recorder.caught_up()
        history.add(Mark(site.recorder.now(), "end", name))
        began = site.recorder.now()
        await site.api.until(lambda: _is_quiet(site), f"all pods are bound after {name}", WAIT_S)
        leader, standby = await _roles(site, leader, standby)
        how, took = "died" if died else "NOT reached", site.recorder.now() - began
        say(f"{began:7.1f} s  {name}: {how}, recovered in {took:.1f} s")
        missed += [] if died else [name]
    for replica in site.replicas.each:
        site.replicas.release(replica)
    return missed


async def _hand_over_past(site: Site, leader: Replica, standby: Replica, doomed: Replica) -> None:
    """Let the doomed replica lead next, and not the standby, which is stopped meanwhile.

    If the doomed replica has led and died already, it need not lead again.
    """
    await site.api.until(lambda: _ready_or_ended(standby), f"{standby.name} is ready", READY_S)
    standby.signal(signal.SIGSTOP)
    try:
        if doomed.scheduler.alive():
            await hand_over(site, leader, doomed)
        else:
            await asyncio.to_thread(leader.kill)
    finally:
        standby.signal(signal.SIGCONT)


async def _roles(site: Site, one: Replica, other: Replica) -> tuple[Replica, Replica]:
    """The keeper that leads, and the other one."""
    leader = await site.replicas.leader(among=(one, other))
    return (one, other) if leader is one else (other, one)


async def _ready_or_ended(replica: Replica) -> bool:
    return not replica.scheduler.alive() or await asyncio.to_thread(replica.is_ready)


def _arm(replica: Replica, name: str) -> None:
    """Start a process that dies at a failpoint once it leads."""
    replica.start({failpoints.VARIABLE: f"{name}=exit@{2 if name in SECOND else 1}"})


async def _leads_or_died(replica: Replica) -> bool:
    return not replica.scheduler.alive() or await asyncio.to_thread(replica.leads)


async def _is_quiet(site: Site) -> bool:
    """Whether all pods are bound."""
    return all(map(is_bound, await site.api.list(site.api.pods)))


async def hand_over(site: Site, leader: Replica, doomed: Replica) -> None:
    """Stop the leader, and wait until the doomed replica leads or has died as the leader."""
    await site.api.until(lambda: _ready_or_ended(doomed), f"{doomed.name} is ready", READY_S)
    leader.is_expected_to_end = True
    leader.signal(signal.SIGTERM)
    if not await asyncio.to_thread(leader.scheduler.process.wait, STOP_S):
        await asyncio.to_thread(leader.kill)
    await site.api.until(lambda: _leads_or_died(doomed), f"{doomed.name} leads", LEADS_S)


async def _dies(doomed: Replica, seconds: float) -> bool:
    """Whether a process dies by itself in time; otherwise it is killed."""
    died = await asyncio.to_thread(doomed.scheduler.process.wait, seconds)
    if not died:
        await asyncio.to_thread(doomed.kill)
    return died


async def _churn(site: Site, rng: random.Random, number: int) -> None:
    """Delete the units of the last round, and create a gang and pods with claims."""
    await site.workload.end()
    await site.workload.add(units.gang(rng, f"gang-{number}", STAYS_S))
    await site.workload.add(units.with_claims(f"claims-{number}", [rng.randint(1, 2) for _ in range(3)], STAYS_S))


async def _fill_report(site: Site, number: int) -> None:
    """Bind a pod to a new node without a report, and then report the node's devices: the pod gets devices.

    A report is created empty and filled afterwards, as agents do.
    """
    await site.api.create(FABRIC.node(number))
    pod = pod_of(f"unseen-{number}", 0, 1, spec={"nodeSelector": {"kubernetes.io/hostname": FABRIC.name(number)}})
    await site.workload.add(Unit(f"unseen-{number}", 1, [], [], [pod], STAYS_S))
    await site.api.wait_for(site.api.pods, lambda each: is_bound(each) and _is(each, pod), 1, WAIT_S)
    await site.api.create(node_status(FABRIC.name(number)))
    await site.api.merge(f"{NODE_STATUSES}/{FABRIC.name(number)}/status", FABRIC.report(number))


def _is(found: Manifest, pod: Manifest) -> bool:
    return bool(found["metadata"]["name"] == pod["metadata"]["name"])
