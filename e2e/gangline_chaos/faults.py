"""The faults: each is an async context manager that breaks something on entry and undoes that on exit.

Faults of one lane come one after the other, faults of different lanes at the same time.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Literal, get_args

import aiohttp

from gangline import failpoints
from gangline_chaos import skewing, strangers
from gangline_chaos.answering import CONFLICTS, ERRORS, MIXED, THROTTLING, Storm
from gangline_chaos.failing import UNREACHED, dies_at, hand_over
from gangline_chaos.network import Gate, Mode
from gangline_chaos.schedulers import Replica
from gangline_chaos.site import LEASE_S, Site
from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.harness import ControlPlane

MOST_PASSES = 3
ON_THE_WAY = tuple(name for name in failpoints.NAMES if not name.startswith(("annotation.", *UNREACHED)))
"""The failpoints that usual work passes."""
JUMPS_S = (-86400.0, -3600.0, -45.0, 45.0, 3600.0, 86400.0)
RETRY_S = 0.3
Lane = Literal["schedulers", "nodes", "pods", "leases"]
"""The lanes: schedulers, their connections and the control plane; nodes, agents and the webhook; other objects."""
Breaks = AbstractAsyncContextManager[str]
"""Its entry breaks something, and returns in words what is broken; its exit ends the fault."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault, and how many seconds it lasts."""

    name: str
    begin: Callable[[Site, random.Random], Breaks]
    shortest_s: float = 0.0
    longest_s: float = 0.0
    is_elected: bool = False
    """Whether the fault makes sense only if a leader is elected."""
    lane: Lane = "schedulers"


# Processes


@asynccontextmanager
async def _killed(site: Site, replica: Replica) -> AsyncIterator[str]:
    site.replicas.hold(replica)
    await asyncio.to_thread(replica.kill)
    try:
        yield replica.name
    finally:
        site.replicas.release(replica)


@asynccontextmanager
async def kill_leader(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The leader is killed, and started again at the end."""
    async with _killed(site, await site.replicas.leader()) as name:
        yield name


@asynccontextmanager
async def kill_standby(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The standby is killed, and started again at the end."""
    _, standby = await site.replicas.pair()
    async with _killed(site, standby) as name:
        yield name


@asynccontextmanager
async def kill_all_schedulers(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """All schedulers are killed."""
    async with AsyncExitStack() as stack:
        for replica in site.replicas.each:
            await stack.enter_async_context(_killed(site, replica))
        yield "all"


@asynccontextmanager
async def stop_leader(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The leader stands still, as on a machine that swaps, and goes on with what it was doing."""
    leader = await site.replicas.leader()
    leader.signal(signal.SIGSTOP)
    try:
        yield leader.name
    finally:
        leader.signal(signal.SIGCONT)


@asynccontextmanager
async def failpoint(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The next leader dies at a failpoint."""
    said = f"{rng.choice(ON_THE_WAY)}=exit@{rng.randint(1, MOST_PASSES)}"

    async def surge() -> None:
        site.workload.surge = 1

    died = await dies_at(site, said, surge)
    yield said if died else f"{said}, was not reached"


@asynccontextmanager
async def full_disk(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The next leader cannot write its log: each write fails, as on a full disk."""
    leader, doomed = await site.replicas.pair()
    async with _killed(site, doomed):
        doomed.start(is_full=True)
        site.replicas.hold(leader)
        try:
            await hand_over(site, leader, doomed)
        finally:
            site.replicas.release(leader)
        yield doomed.name
        if not doomed.scheduler.alive():
            site.replicas.ended(doomed)
        await asyncio.to_thread(doomed.kill)


@asynccontextmanager
async def jump_clock(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The wall clock of the leader, or of all schedulers, jumps, and jumps back at the end."""
    chosen = site.replicas.each if rng.random() < 0.3 else [await site.replicas.leader()]
    seconds = rng.choice(JUMPS_S)
    for replica in chosen:
        skewing.shift(replica.clock, seconds)
    try:
        yield f"{', '.join(replica.name for replica in chosen)} by {seconds:+g} s"
    finally:
        for replica in chosen:
            skewing.shift(replica.clock, 0.0)


@asynccontextmanager
async def kill_apiserver(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """kube-apiserver is killed, and started again at the end."""
    await asyncio.to_thread(site.plane.kill, "kube-apiserver")
    try:
        yield ""
    finally:
        await asyncio.to_thread(site.plane.restart_apiserver)


@asynccontextmanager
async def kill_etcd(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """etcd is killed, and started again at the end."""
    await asyncio.to_thread(site.plane.kill, "etcd")
    try:
        yield ""
    finally:
        await asyncio.to_thread(site.plane.restart, "etcd")
        await until_ready(site.plane, site.api)


@asynccontextmanager
async def compacted(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The schedulers are cut off, and when they come back the API server has no history any more: 410."""
    site.gates.all(lambda gate: gate.set("cut"))
    await asyncio.sleep(rng.uniform(0.5, 2.0))
    revision = await site.recorder.compact()
    await asyncio.to_thread(site.plane.restart_apiserver)
    try:
        yield f"up to revision {revision}"
    finally:
        site.gates.all(lambda gate: gate.set("open"))


# The network


def network(mode: Mode, everybody: bool = False) -> Callable[[Site, random.Random], Breaks]:
    """The connections of the leader, or of all schedulers, are in this mode."""

    @asynccontextmanager
    async def broken(site: Site, rng: random.Random) -> AsyncIterator[str]:
        leader = await site.replicas.leader()
        gates = site.gates.each if everybody else [leader.gate]
        for gate in gates:
            gate.set(mode)
        try:
            yield "all" if everybody else leader.name
        finally:
            for gate in gates:
                gate.set("open")

    return broken


def answers(storm: Storm) -> Callable[[Site, random.Random], Breaks]:
    """The requests of all schedulers are answered in this way."""

    @asynccontextmanager
    async def broken(site: Site, rng: random.Random) -> AsyncIterator[str]:
        refused, real = site.rough.refused, site.gates.each[0].target

        def lead_to(gate: Gate, port: int) -> None:
            gate.target = port
            gate.break_all()

        site.rough.storm = storm
        site.gates.all(lambda gate: lead_to(gate, site.rough.port))
        try:
            yield ""
        finally:
            site.gates.all(lambda gate: lead_to(gate, real))
            assert site.rough.refused >= refused

    return broken


async def until_ready(plane: ControlPlane, api: Api) -> None:
    """Wait until the API server answers again; start it if the loss of etcd has ended it."""
    while True:
        if (running := plane.processes.get("kube-apiserver")) is None or not running.alive():
            await asyncio.to_thread(plane.restart_apiserver)
        try:
            await api.list("/api/v1/nodes")
            return
        except (aiohttp.ClientError, OSError, Refused):
            await asyncio.sleep(RETRY_S)


_ALL = (
    Fault("kill-leader", kill_leader, 0.0, 2.0),
    Fault("kill-standby", kill_standby, 0.0, 2.0),
    Fault("kill-all-schedulers", kill_all_schedulers, 0.0, 2.0),
    Fault("stop-leader-briefly", stop_leader, 0.5, 0.6 * LEASE_S),
    Fault("stop-leader", stop_leader, 1.3 * LEASE_S, 2.5 * LEASE_S),
    Fault("failpoint", failpoint, is_elected=True),
    Fault("full-disk", full_disk, 1.0, 2.0, is_elected=True),
    Fault("jump-clock", jump_clock, 1.0, 3.0),
    Fault("kill-apiserver", kill_apiserver, 0.0, 2.0),
    Fault("kill-etcd", kill_etcd, 0.0, 2.0),
    Fault("compacted", compacted, 0.0, 0.5),
    Fault("cut-leader", network("cut"), 0.5, 2 * LEASE_S),
    Fault("cut-all", network("cut", everybody=True), 0.5, 2 * LEASE_S),
    Fault("stall-leader", network("stalled"), 0.5, 2 * LEASE_S),
    Fault("half-open-leader", network("dropping"), 0.5, 2 * LEASE_S),
    Fault("slow-leader", network("slow"), 2.0, 4.0),
    Fault("rough-answers", answers(MIXED), 2.0, 4.0),
    Fault("conflicts", answers(CONFLICTS), 1.0, 3.0),
    Fault("throttling", answers(THROTTLING), 1.0, 3.0),
    Fault("server-errors", answers(ERRORS), 1.0, 3.0),
    Fault("lose-node", strangers.lose_node, 0.5, 4.0, lane="nodes"),
    Fault("unready-nodes", strangers.unready_nodes, 0.5, 5.0, lane="nodes"),
    Fault("delete-reports", strangers.delete_reports, 0.5, 3.0, lane="nodes"),
    Fault("silent-agents", strangers.silent_agents, 0.5, 3.0, lane="nodes"),
    Fault("webhook-down", strangers.webhook_down, 0.5, 3.0, lane="nodes"),
    Fault("delete-pods", strangers.delete_pods, 0.5, 1.0, lane="pods"),
    Fault("delete-groups", strangers.delete_groups, 0.5, 1.0, lane="pods"),
    Fault("delete-locks", strangers.delete_locks, 0.0, 1.0, lane="leases"),
    Fault("delete-election", strangers.delete_election, 0.0, 1.0, is_elected=True, lane="leases"),
)
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}
"""All faults, by name."""
LANES: tuple[Lane, ...] = get_args(Lane)
