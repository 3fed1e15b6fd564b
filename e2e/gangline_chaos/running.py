"""One run: a control plane, schedulers and a workload, fault after fault, and the history that is judged afterwards."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from gangline_chaos.answering import RoughServer
from gangline_chaos.faults import FAULTS, LANES, Fault, Lane
from gangline_chaos.judge import objects as told
from gangline_chaos.judge.history import HistoryFile, Mark
from gangline_chaos.network import Gates
from gangline_chaos.recorder import Recorder
from gangline_chaos.schedulers import Replicas
from gangline_chaos.site import ELECTION, LEASE_S, Site
from gangline_chaos.units import FABRIC, driver_objects
from gangline_chaos.workload import Workload
from gangline_e2e.api import Api
from gangline_e2e.day import fabric
from gangline_e2e.devices import LEASES, MANAGED, disagreements
from gangline_e2e.errors import Refused, WaitedTooLong
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.gpu_crds import install
from gangline_e2e.gpu_fleet import configuration
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import election
from gangline_e2e.workloads import Manifest, is_bound

OPTIONS = Options(apiserver_args=("--storage-media-type=application/json", "--etcd-compaction-interval=0"))
"""etcd has JSON, and the whole history."""
REPLICAS = 2
STAYS_S = (1.5, 12.0)
RECOVERY = {"graceSeconds": 1.0, "roomSeconds": 20.0}
"""Arguments of the plugin Recovery: a node is lost after a second, as faults are shorter than its usual grace."""
STORM_S = 60.0
"""Faults come in storms of this length; after each storm all that has been broken recovers."""
RECOVERS_S = 90.0
"""Seconds within which waiting pods have to get nodes: after each storm, and after each fault of schedulers. The run
goes on in any case; the judge says whether a rule was broken.
"""
SETTLES_S = 150.0
POLL_S = 0.4
LONGEST_PAUSE_S = 0.5
SURGE_S = 0.6
"""New units come within this time before each fault."""
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long a run is, and of which faults it consists."""

    seed: int
    seconds: float = 480.0
    faults: tuple[str, ...] = tuple(FAULTS)
    """Names; those of a lane come in a random order, each as often as the others of the lane."""
    at_least: int = 0
    """Go on until so many faults have come."""
    rounds: int = 0
    """Go on until each fault has come so many times."""
    replicas: int = REPLICAS
    elect: bool = True
    """Whether the schedulers elect a leader; otherwise all of them bind pods at the same time."""
    stays_s: tuple[float, float] = STAYS_S
    lease_s: float = LEASE_S


def chosen(plan: Plan, lane: Lane) -> Iterator[Fault]:
    """The faults of a lane without end, in their order; none if the plan has none of the lane."""
    rng = random.Random(f"faults {lane} {plan.seed}")
    found = [FAULTS[name] for name in plan.faults]
    faults = [fault for fault in found if fault.lane == lane and (plan.elect or not fault.is_elected)]
    while faults:
        rng.shuffle(faults)
        yield from faults


async def run(plan: Plan, folder: Path, say: Say) -> Path:
    """Play a plan; the file with its history."""
    path = folder / "history.jsonl.gz"
    with HistoryFile(path) as history:
        async with built(plan, folder, history) as site:
            await _play(site, plan, history, say)
            await settle(site, history, say)
    return path


@asynccontextmanager
async def built(plan: Plan, folder: Path, history: HistoryFile) -> AsyncIterator[Site]:
    """Start all parts of a run; they end with the block."""
    async with AsyncExitStack() as stack:
        plane = await asyncio.to_thread(ControlPlane(folder / "control-plane", OPTIONS).__enter__)
        stack.push_async_callback(asyncio.to_thread, plane.close)
        recorder = Recorder(plane.etcd_url, plane.tls_for(plane.etcd_url), history.add)
        port = urlsplit(plane.url).port
        assert port is not None
        gates = await stack.enter_async_context(Gates(port, plan.replicas))
        rough = RoughServer(plane.url, plane.tls_for(plane.url), random.Random(f"answers {plan.seed}"))
        await stack.enter_async_context(rough.running(plane.server_tls()))
        api = await stack.enter_async_context(isolated(plane))
        await stack.enter_async_context(_in_background(recorder.run()))
        await _furnish(api)
        config = _configuration(plan, api)

        def ended(name: str, how: str) -> None:
            history.add(Mark(recorder.now(), "ended", name, how))

        replicas = Replicas(plane.kubeconfig, folder, config, gates.each, ended, plan.elect)
        workload = Workload(api, random.Random(f"units {plan.seed}"), plan.stays_s)
        await stack.enter_async_context(_in_background(replicas.run()))
        yield Site(plane, api, recorder, gates, rough, replicas, workload)


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Do some work until the block ends; a fault in the work ends the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()


def _configuration(plan: Plan, api: Api) -> Manifest:
    config = configuration(api.namespace)
    config["profiles"][0]["pluginConfig"].append({"name": "Recovery", "args": RECOVERY})
    config["leaderElection"] = election(api, ELECTION, plan.lease_s, plan.lease_s / 4, 0.75 * plan.lease_s)
    return config


async def _furnish(api: Api) -> None:
    """Nodes with reports, and devices of a driver."""
    await install(api)
    await install_foreign(api)
    await fabric.build(api, FABRIC)
    await api.create_many(driver_objects(FABRIC))


async def _play(site: Site, plan: Plan, history: HistoryFile, say: Say) -> None:
    """Storm after storm, until the time is over."""
    await site.replicas.leader()
    play = _Play(site, plan, history, say, time.monotonic() + plan.seconds)
    lanes = [_Lane(plan, lane) for lane in LANES]
    async with _in_background(site.workload.run()):
        while not all(map(play.is_over, lanes)):
            storm = time.monotonic() + STORM_S
            async with asyncio.TaskGroup() as group:
                for lane in lanes:
                    group.create_task(play.storm(lane, storm))
            await play.recover()


class _Lane:
    """The faults that come one after the other."""

    def __init__(self, plan: Plan, lane: Lane) -> None:
        self.rng = random.Random(f"times {lane} {plan.seed}")
        self.faults = chosen(plan, lane)
        self.due = plan.rounds * sum(FAULTS[name].lane == lane for name in plan.faults)
        """How many more faults of this lane have to come before the run may end."""
        self.next = next(self.faults, None)


class _Play:
    """The faults of a run."""

    def __init__(self, site: Site, plan: Plan, history: HistoryFile, say: Say, end: float) -> None:
        self._site = site
        self._plan = plan
        self._history = history
        self._say = say
        self._end = end
        self._count = 0

    def is_over(self, lane: _Lane) -> bool:
        """Whether no more faults of a lane have to come."""
        is_late = self._count >= self._plan.at_least and time.monotonic() > self._end
        return lane.next is None or (lane.due <= 0 and is_late)

    async def storm(self, lane: _Lane, until: float) -> None:
        """Faults of a lane, one after the other, for some time."""
        while time.monotonic() < until:
            await asyncio.sleep(lane.rng.uniform(0.0, LONGEST_PAUSE_S))
            if self.is_over(lane) or lane.next is None:
                return
            fault, lane.next = lane.next, next(lane.faults, None)
            lane.due -= 1
            self._count += 1
            await self._fault(fault, lane.rng, f"{fault.name}-{self._count}")

    async def recover(self) -> None:
        """Let the pods that wait now come to nodes."""
        began = time.monotonic()
        how = "all that waited is bound" if await _recovered(self._site, RECOVERS_S) else "pods wait still"
        self._say(f"{self._site.recorder.now():7.1f} s  {how}, {time.monotonic() - began:.1f} s after the storm")

    async def _fault(self, fault: Fault, rng: random.Random, name: str) -> None:
        """Play one fault from its begin to its end. After a fault of schedulers, wait until pods have their nodes."""
        site = self._site
        self._history.add(Mark(site.recorder.now(), "begin", name))
        seconds = rng.uniform(fault.shortest_s, fault.longest_s)
        site.workload.surge = 1
        await asyncio.sleep(rng.uniform(0.0, SURGE_S))
        async with fault.begin(site, rng) as what:
            site.workload.surge = 2
            await asyncio.sleep(seconds)
        await site.recorder.caught_up()
        self._history.add(Mark(site.recorder.now(), "end", name, what))
        said = f"{site.recorder.now():7.1f} s  {name} ({what}) for {seconds:.1f} s"
        if fault.lane == "schedulers":
            began = time.monotonic()
            how = "recovered in" if await _recovered(site, RECOVERS_S) else "pods wait after"
            said += f", {how} {time.monotonic() - began:.1f} s"
        self._say(said)


async def _recovered(site: Site, within_s: float) -> bool:
    """Wait until the pods that wait now have nodes or are gone; False if that takes too long."""
    waiting: set[str] | None = None
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            found = await site.api.list(site.api.pods)
        except (aiohttp.ClientError, OSError, Refused):
            await asyncio.sleep(POLL_S)
            continue
        now = {pod["metadata"]["uid"] for pod in found if not is_bound(pod)}
        waiting = now if waiting is None else waiting & now
        if not waiting:
            return True
        await asyncio.sleep(POLL_S)
    return False


async def settle(site: Site, history: HistoryFile, say: Say) -> None:
    """No more faults: all pods get nodes, all locks agree, all units go, all locks go."""
    site.workload.grows = False
    await site.replicas.leader()
    async with _in_background(site.workload.run()):
        await _until(site, lambda: _all_bound(site), "all pods are bound", say)
        await _until(site, lambda: _locks_agree(site), "all have their devices, and locks agree with annotations", say)
    await site.recorder.caught_up()
    history.add(Mark(site.recorder.now(), "quiet", "all bound"))
    await site.workload.end()
    await _until(site, lambda: _locks_agree(site, empty=True), "no locks are left", say)
    for name, text in (await asyncio.to_thread(site.replicas.tracebacks)).items():
        history.add(Mark(site.recorder.now(), "ended", name, f"a traceback in its log: {text}"))
    for process in site.plane.processes.values():
        if not process.alive():
            history.add(Mark(site.recorder.now(), "ended", process.name, "it does not run any more"))
    await site.recorder.caught_up()
    history.add(Mark(site.recorder.now(), "quiet", "all gone"))


async def _until(site: Site, holds: Callable[[], Awaitable[bool]], what: str, say: Say) -> None:
    """Wait for a condition, at most as long as a run may take to settle; the judge reports what is wrong otherwise."""
    began = time.monotonic()
    try:
        await site.api.until(holds, what, SETTLES_S)
        say(f"{site.recorder.now():7.1f} s  {what}, after {time.monotonic() - began:.1f} s")
    except WaitedTooLong as error:
        say(f"{site.recorder.now():7.1f} s  {error}")


async def _all_bound(site: Site) -> bool:
    return all(map(is_bound, await site.api.list(site.api.pods)))


async def _locks_agree(site: Site, empty: bool = False) -> bool:
    leases = await site.api.list(LEASES.format(site.api.namespace), labelSelector=MANAGED)
    pods = await site.api.list(site.api.pods)
    if empty and (pods or leases):
        return False
    live = [pod for pod in pods if pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")]
    seen = [told.pod_of("", pod, 0.0) for pod in live]
    return not disagreements(live, leases) and not any(pod.node and pod.wants and pod.devices is None for pod in seen)
