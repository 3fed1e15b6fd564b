"""The faults: each is an async context manager that breaks something on entry and undoes that on exit."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import aiohttp

from gangline import failpoints
from gangline_chaos.failing import dies_at
from gangline_chaos.network import Gate, Mode
from gangline_chaos.schedulers import Replica
from gangline_chaos.site import ELECTION, LEASE_S, Site
from gangline_chaos.units import FABRIC
from gangline_e2e.api import Api
from gangline_e2e.day import fabric
from gangline_e2e.devices import LEASES, MANAGED
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import NODE_STATUSES, node_status
from gangline_e2e.harness import ControlPlane

MOST_PASSES = 3
ON_THE_WAY = tuple(name for name in failpoints.NAMES if not name.startswith("annotation."))
"""The failpoints that usual work passes."""
RETRY_S = 0.3
Breaks = AbstractAsyncContextManager[str]
"""Entered, it says what is broken."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault, and how many seconds it lasts."""

    name: str
    begin: Callable[[Site, random.Random], Breaks]
    shortest_s: float = 0.0
    longest_s: float = 0.0


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
    async with _killed(site, await site.replicas.standby()) as name:
        yield name


@asynccontextmanager
async def kill_all_schedulers(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """All schedulers are killed."""
    first, second = site.replicas.each[:2]
    async with _killed(site, first), _killed(site, second):
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


@asynccontextmanager
async def rough_answers(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """Half of the requests of all schedulers are answered with 409, 429 or 5xx, or not at all."""
    refused, real = site.rough.refused, site.gates.each[0].target

    def lead_to(gate: Gate, port: int) -> None:
        gate.target = port
        gate.break_all()

    site.gates.all(lambda gate: lead_to(gate, site.rough.port))
    try:
        yield ""
    finally:
        site.gates.all(lambda gate: lead_to(gate, real))
        assert site.rough.refused >= refused


# Objects that strangers delete


@asynccontextmanager
async def lose_node(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """A node with its report is deleted, and made anew at the end."""
    number = rng.randrange(FABRIC.nodes)
    await fabric.lose(site.api, FABRIC, number)
    try:
        yield FABRIC.name(number)
    finally:
        await fabric.make(site.api, FABRIC, number)


@asynccontextmanager
async def delete_reports(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """GpuNodeStatus objects are deleted, and reported anew at the end, as agents do."""
    numbers = rng.sample(range(FABRIC.nodes), rng.randint(1, 4))
    await site.api.delete_many(f"{NODE_STATUSES}/{FABRIC.name(number)}" for number in numbers)
    try:
        yield ", ".join(map(FABRIC.name, numbers))
    finally:
        for number in numbers:
            await site.api.create(node_status(FABRIC.name(number)))
            await site.api.merge(f"{NODE_STATUSES}/{FABRIC.name(number)}/status", FABRIC.report(number))


@asynccontextmanager
async def delete_pods(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """Pods are deleted, with and without a grace period."""
    names = sorted(site.workload.pods)
    chosen = rng.sample(names, min(len(names), rng.randint(1, 6)))
    for name in chosen:
        await site.api.delete(f"{site.api.pods}/{name}", at_once=rng.random() < 0.5)
    yield ", ".join(chosen)


@asynccontextmanager
async def delete_groups(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """PodGroups are deleted."""
    paths = site.workload.groups()
    chosen = rng.sample(paths, min(len(paths), 3))
    await site.api.delete_many(chosen)
    yield ", ".join(path.rpartition("/")[2] for path in chosen)


@asynccontextmanager
async def delete_locks(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """Leases of devices are deleted."""
    collection = LEASES.format(site.api.namespace)
    names = sorted(each["metadata"]["name"] for each in await site.api.list(collection, labelSelector=MANAGED))
    chosen = rng.sample(names, min(len(names), rng.randint(1, 12)))
    await site.api.delete_many(f"{collection}/{name}" for name in chosen)
    yield f"{len(chosen)} of {len(names)}"


@asynccontextmanager
async def delete_election(site: Site, rng: random.Random) -> AsyncIterator[str]:
    """The Lease by which the leader is elected is deleted."""
    await site.api.delete(f"{LEASES.format(site.api.namespace)}/{ELECTION}")
    yield ELECTION


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
    Fault("kill-all-schedulers", kill_all_schedulers, 0.0, 3.0),
    Fault("stop-leader-briefly", stop_leader, 0.5, 0.6 * LEASE_S),
    Fault("stop-leader", stop_leader, 1.3 * LEASE_S, 2.5 * LEASE_S),
    Fault("failpoint", failpoint),
    Fault("kill-apiserver", kill_apiserver, 0.0, 3.0),
    Fault("kill-etcd", kill_etcd, 0.0, 3.0),
    Fault("compacted", compacted, 0.0, 0.5),
    Fault("cut-leader", network("cut"), 0.5, 2 * LEASE_S),
    Fault("cut-all", network("cut", everybody=True), 0.5, 2 * LEASE_S),
    Fault("stall-leader", network("stalled"), 0.5, 2 * LEASE_S),
    Fault("half-open-leader", network("dropping"), 0.5, 2 * LEASE_S),
    Fault("slow-leader", network("slow"), 2.0, 6.0),
    Fault("rough-answers", rough_answers, 2.0, 6.0),
    Fault("lose-node", lose_node, 0.5, 4.0),
    Fault("delete-reports", delete_reports, 0.5, 4.0),
    Fault("delete-pods", delete_pods, 1.0, 2.0),
    Fault("delete-groups", delete_groups, 1.0, 2.0),
    Fault("delete-locks", delete_locks, 0.0, 1.0),
    Fault("delete-election", delete_election, 0.0, 1.0),
)
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in _ALL}
"""By name."""
