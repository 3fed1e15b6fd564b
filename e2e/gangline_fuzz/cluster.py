"""Plays a case on a cluster in memory, and says what did not hold: the scheduler goes on, whatever it is told.

After each input
- the scheduler runs, and a healthy pod that comes now is bound in time, with devices where it asks for some;
- no more than some CPU and memory was used;
- no device that the scheduler gave out is held twice, and no node that it filled is over capacity;
and in the end the columns are what the objects say, another scheduler that starts on the same objects works too, and
nobody holds either of them once they have ended (`rooms`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from weakref import WeakSet

import msgspec

from gangline import config
from gangline.config import SchedulerConfiguration
from gangline.kube.resources import GPU_NODE_STATUSES, NODES, PODS
from gangline.loop.scheduler import Options, Scheduler
from gangline.profile.registry import Catalog
from gangline.simulate import VirtualClock
from gangline_fuzz import answers, oracle, vocabulary
from gangline_fuzz.budget import Spent, measured
from gangline_fuzz.inputs import RESOURCES, Case, Delete, Input, Line, Relist, Several, Write
from gangline_fuzz.oracle import Found, Kind
from gangline_fuzz.ordinary import ORIGIN, reported
from gangline_fuzz.server import OddClient, OddServer
from gangline_profiles import read as read_profile

HAVEN = "haven"
"""The name of nodes that are kept for healthy pods, and the key of their taint and label."""
SECONDS = 60.0
"""Of virtual time, until a healthy pod must be bound: longer than an informer backs off."""
QUIET = 35.0
"""Seconds of virtual time after which nothing is on its way: an informer backs off for 30."""
STEP = 0.05
made: WeakSet[Scheduler] = WeakSet()
"""The schedulers that have been made and are still in memory."""
CPU_OF_ONE, CPU_OF_GANG = 1.0, 5.0
"""Seconds of CPU for one object, and for several at once."""
MEMORY = 100.0
"""MiB that one input may take."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one input may take."""

    one: float = CPU_OF_ONE
    several: float = CPU_OF_GANG
    mib: float = MEMORY


@cache
def configuration() -> SchedulerConfiguration:
    """All profiles that come with Gangline, in one scheduler."""
    loaded = [
        config.load(read_profile(name), name) for name in ("default", "gpu-scheduler", "topology-aware-scheduler")
    ]
    profiles = [profile for each in loaded for profile in each.profiles]
    return msgspec.structs.replace(loaded[0], profiles=profiles)


def _with_plugin(plan: Mapping[str, str]) -> tuple[SchedulerConfiguration, Catalog]:
    """What is installed and, where there is a plan, a profile of one more plugin."""
    if not plan:
        return configuration(), catalog()
    more = config.load(answers.configuration(plan), answers.PROFILE)
    profiles = [*configuration().profiles, *more.profiles]
    return msgspec.structs.replace(configuration(), profiles=profiles), catalog().with_classes(answers.plugin(plan))


@cache
def catalog() -> Catalog:
    """What is installed."""
    return Catalog.discover()


class FuzzCluster:
    """One cluster, one scheduler for all profiles, and somebody who does odd things."""

    def __init__(self, bounds: Bounds, plan: Mapping[str, str]) -> None:
        self.clock = VirtualClock()
        self.server = OddServer(self.clock)
        self.at = -1
        """The number of the input that is being looked at; -1 before the first."""
        self.is_refused = True
        """Whether the scheduler does not take the configuration, as it may with an odd plugin."""
        self._bounds = bounds
        self._configuration, self._catalog = _with_plugin(plan)
        self._healthy = 0
        self._havens = 0
        self._lost: list[BaseException] = []
        for name in vocabulary.NODES:
            labels = {
                "kubernetes.io/hostname": name,
                "rack": "a",
                vocabulary.LEVELS[0]: "s0",
                vocabulary.LEVELS[1]: "l0",
            }
            self._add_node(name, labels, [])
        self._haven = self._add_haven()

    async def story(self, case: Case) -> None:
        """What happens. Raises Failed, or whatever ended the scheduler."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._note_lost)
        kept, client = self._scheduler()
        async with self._running(kept) as task:
            await self._settle(task, client)
            for self.at, each in enumerate(case.inputs):
                with measured() as spent:
                    self._do(each, client)
                    await self._settle(task, client)
                self._judge(each, spent)
                oracle.check_devices(self.server, client, self.at)
                oracle.check_capacity(self.server, client, self.at)
            for informer in kept.informers:
                informer.relist()
            await asyncio.sleep(QUIET)  # so that nothing is on its way
            self._is_alive(task)
        await self._start_anew(case, kept)
        if self._lost:
            raise oracle.Failed(oracle.raised(Kind.BACKGROUND, self.at, self._lost[0]))

    async def _start_anew(self, case: Case, kept: Scheduler) -> None:
        """Another scheduler lists the same objects: it sees what the first one has kept, and binds a healthy pod."""
        fresh, client = self._scheduler()
        for informer in fresh.informers:
            await informer.step()
        if not any(isinstance(each, Write) and each.damage for each in case.inputs):  # two stories of one version
            oracle.check_columns(kept, fresh, self.server, self.at)
        async with self._running(fresh) as task:
            await self._settle(task, client)

    def _scheduler(self) -> tuple[Scheduler, OddClient]:
        client = OddClient(self.server)
        scheduler = Scheduler(self._configuration, client, self.clock, self._catalog, Options(seed=0))
        made.add(scheduler)
        self.is_refused = False
        return scheduler, client

    @asynccontextmanager
    async def _running(self, scheduler: Scheduler) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(scheduler.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # looked at: whoever raised out of the block knows better

    def _note_lost(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._lost.append(context.get("exception") or RuntimeError(context["message"]))

    # Doing

    def _do(self, each: Input, client: OddClient) -> None:
        match each:
            case Write():
                self.server.send(RESOURCES[each.resource], each.object, each.damage)
            case Delete():
                self.server.drop(RESOURCES[each.resource], each.name, each.namespace)
            case Line():
                self.server.say(RESOURCES[each.resource], each.text.encode("utf-8", "surrogateescape"))
            case Relist():
                client.next_list[each.resource] = each.how
                client.cut[each.resource] = RESOURCES[each.resource]
                self.server.say(RESOURCES[each.resource], b"{}")
            case Several():
                for one in each.inputs:
                    self._do(one, client)
            case _:
                self.server.disconnect()

    def _add_node(self, name: str, labels: dict[str, str], taints: list[dict[str, str]], gpus: int = 8) -> None:
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", vocabulary.GPU: str(gpus)}
        metadata = {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": ORIGIN}
        status = {"allocatable": amounts, "capacity": amounts}
        self.server.send(NODES, {"metadata": metadata, "spec": {"taints": taints}, "status": status})
        reports = {
            "metadata": {"name": name, "uid": f"uid-gns-{name}"},
            "spec": {"nodeName": name},
            "status": reported(name, gpus),
        }
        self.server.send(GPU_NODE_STATUSES, reports)

    def _add_haven(self) -> str:
        self._havens += 1
        name = f"{HAVEN}-{self._havens}"
        labels = {"kubernetes.io/hostname": name, HAVEN: name}
        self._add_node(name, labels, [{"key": HAVEN, "value": name, "effect": "NoSchedule"}])
        return name

    # Looking

    async def _settle(self, task: asyncio.Task[None], client: OddClient) -> None:
        """A healthy pod comes, is bound, and goes. Somebody may have filled its node by right: then on another one."""
        for _ in range(3):
            name = self._add_healthy()
            if await self._is_bound(task, client, name):
                self.server.drop(PODS, name, HAVEN)
                return
            self.server.drop(PODS, name, HAVEN)
            if not oracle.others_on(self.server, self._haven, HAVEN):
                break
            self._haven = self._add_haven()
        raise oracle.Failed(Found(Kind.STALLED, self.at, f"a healthy pod was not bound in {SECONDS:g} s", ""))

    async def _is_bound(self, task: asyncio.Task[None], client: OddClient, name: str) -> bool:
        until = self.clock.monotonic() + SECONDS
        while self.clock.monotonic() < until:
            self._is_alive(task)
            if (HAVEN, name) in client.given:
                return True
            await asyncio.sleep(STEP)
        return False

    def _is_alive(self, task: asyncio.Task[None]) -> None:
        if task.done():
            task.result()
            raise oracle.Failed(Found(Kind.ENDED, self.at, "the scheduler returned", ""))

    def _add_healthy(self) -> str:
        self._healthy += 1
        name = f"healthy-{self._healthy}"
        of_gpus = self._healthy % 2
        requests = {"cpu": "100m", "memory": "64Mi"} | ({vocabulary.GPU: "1"} if of_gpus else {})
        spec = {
            "schedulerName": vocabulary.SCHEDULERS[of_gpus],
            "containers": [{"name": "main", "image": "main:1", "resources": {"requests": requests}}],
            "nodeSelector": {HAVEN: self._haven},
            "tolerations": [{"key": HAVEN, "operator": "Exists"}],
            "priority": 2_000_001_000,
        }
        metadata = {"name": name, "namespace": HAVEN, "uid": f"uid-{name}", "creationTimestamp": ORIGIN}
        self.server.send(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
        return name

    def _judge(self, each: Input, spent: Spent) -> None:
        cpu = self._bounds.several if isinstance(each, Several) else self._bounds.one
        if spent.seconds > cpu:
            raise oracle.Failed(
                Found(Kind.CPU, self.at, f"{spent.seconds:.1f} s of CPU, where {cpu:g} s are the bound", "")
            )
        if spent.mib > self._bounds.mib:
            said = f"{spent.mib:.0f} MiB, where {self._bounds.mib:g} MiB are the bound"
            raise oracle.Failed(Found(Kind.MEMORY, self.at, said, ""))
