"""Schedulers with an election, as processes in virtual time: started, killed as by SIGKILL, stopped as by SIGTERM."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import msgspec

from gangline import config
from gangline.config import LeaderElection, SchedulerConfiguration
from gangline.errors import LeadershipLost
from gangline.kube.outbox import Outbox
from gangline.loop.scheduler import Options, Scheduler
from gangline.process.leading import Elector
from gangline.process.tenure import Tenure
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, VirtualClock
from gangline_chaos.site import ELECTION
from gangline_chaos.virtual.client import TIMEOUT_S, Fate, FatefulClient, Wire
from gangline_e2e.gpu_fleet import configuration

NAMESPACE = "gangline-system"
"""The namespace of the Lease of the election and of the leases of devices."""
LEASE_S = 4.0
RESTART_S = 1.0
"""Seconds after which a process that has ended by itself is started again."""
_LOOK_S = 0.0015
"""The seconds that each decision counts as, for the pauses between decisions: measured times differ in each run."""
Ended = Callable[[str, str], None]
"""Called with the name of a replica that has ended by itself, and why."""
Fault = Callable[[str, float], None]
"""Called with the name of a fault that begins, and how many seconds it lasts."""


@dataclass(slots=True)
class _Process:
    """The parts of one process, from its start to its end."""

    scheduler: Scheduler
    client: FatefulClient
    elections: FatefulClient
    tenure: Tenure
    task: asyncio.Task[None]


class SkewedClock:
    """The clock of one machine: its wall clock may be off."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.skew = 0.0
        """Seconds by which the wall clock is fast."""

    def monotonic(self) -> float:
        """See `VirtualClock`."""
        return self._clock.monotonic()

    def now(self) -> float:
        """See `VirtualClock`."""
        return self._clock.now() + self.skew


class Replica:
    """A replica: one process of a scheduler after the other, under one name."""

    def __init__(self, name: str, server: InMemoryServer, clock: VirtualClock, ended: Ended, fault: Fault) -> None:
        self.name = name
        self.wire = Wire(clock)
        self._held_until = 0.0
        self._server = server
        self.clock = SkewedClock(clock)
        self._ended = ended
        self._fault = fault
        self._starts = 0
        self._process: _Process | None = None
        self._down = RESTART_S
        self._fates: list[tuple[int, Fate, float]] = []

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    @property
    def leads(self) -> bool:
        """Whether its process may write as the leader."""
        return self._process is not None and self._process.tenure.holds()

    def arm(self, writes: int, fate: Fate, down: float = RESTART_S) -> None:
        """After so many more writes, the next one meets this fate; a process that dies of it is down for a time."""
        self._fates.append((writes, fate, down))

    def start(self) -> None:
        """Start a process, unless there is one."""
        if self._process is not None:
            return
        self._starts += 1
        tenure, identity = Tenure(self.clock), f"{self.name}_{self._starts}"
        outbox = Outbox(tenure.holds, self.clock.monotonic)
        client = FatefulClient(self._server, self.wire, outbox=outbox, meets=self._meets, dies=self._dies)
        elections = FatefulClient(self._server, self.wire)
        looks = itertools.count(0.0, _LOOK_S)
        options = Options(
            identity=identity,
            term=lambda: tenure.term,
            seed=self._starts,
            stopwatch=lambda: next(looks),
            stop_writing=outbox.close,
        )
        scheduler = Scheduler(_configuration(), client, self.clock, _catalog(), options)
        elector = Elector(elections, self.clock, _ELECTION, identity, random.Random(identity), tenure=tenure)
        task = asyncio.create_task(_live(scheduler, elector), name=identity)
        process = self._process = _Process(scheduler, client, elections, tenure, task)
        task.add_done_callback(lambda _: self._gone(process))

    def kill(self, down: float = RESTART_S) -> None:
        """End the process as by SIGKILL: it does nothing more, and is started again after so many seconds."""
        process, self._process = self._process, None
        if process is not None:
            process.client.end()
            process.elections.end()
            process.task.cancel()
        self._start_in(down)

    def release(self) -> None:
        """End all faults of the replica, and start it if it does not run."""
        self._fates.clear()
        self.clock.skew = 0.0
        self.wire.heal()
        self._held_until = 0.0
        self.start()

    async def restart(self) -> None:
        """End the process as by SIGTERM, and start another one.

        The first carries out what it has begun, and gives up its Lease.
        """
        process = self._process
        if process is None:
            return
        finishing = asyncio.create_task(process.scheduler.finish())
        await asyncio.wait((process.task, finishing), return_when=asyncio.FIRST_COMPLETED)
        process.tenure.is_clean = finishing.done() and finishing.result()
        finishing.cancel()
        if self._process is process:
            self._process = None
            process.task.cancel()
            await asyncio.wait((process.task,))
            process.client.end()
            process.elections.end()
            self.start()

    def _meets(self) -> Fate | None:
        """The fate of the write that is about to be sent."""
        due = [(fate, down) for left, fate, down in self._fates if not left]
        self._fates = [(left - 1, fate, down) for left, fate, down in self._fates if left]
        if not due:
            return None
        fate, self._down = due[0]
        self._fault(fate.kind.name, max(fate.seconds, TIMEOUT_S, self._down))
        return fate

    def _dies(self) -> None:
        asyncio.get_running_loop().call_soon(self.kill, self._down)

    def _start_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._held_until = self.clock.monotonic() + seconds
        loop.call_later(seconds, self._restart)

    def _gone(self, process: _Process) -> None:
        """A process has ended; if nobody has ended it, it is started again."""
        error = None if process.task.cancelled() else process.task.exception()
        if self._process is not process:
            return
        self._process = None
        process.client.end()
        process.elections.end()
        if error is not None:
            self._ended(self.name, f"{error!r}")
        self._start_in(RESTART_S)

    def _restart(self) -> None:
        if self.clock.monotonic() >= self._held_until:
            self.start()


async def _live(scheduler: Scheduler, elector: Elector) -> None:
    """Run as `gangline run` does: a process that loses its Lease ends."""
    try:
        await scheduler.run(elector.run)
    except* LeadershipLost:
        pass  # it has ended, as the process does


@cache
def _configuration() -> SchedulerConfiguration:
    """The shipped profile, as the chaos on a real control plane has it."""
    return config.load(msgspec.json.encode(configuration(NAMESPACE)), "configuration")


@cache
def _catalog() -> Catalog:
    return Catalog.discover()


_ELECTION = LeaderElection(
    lease_duration=config.Seconds(LEASE_S),
    renew_deadline=config.Seconds(0.75 * LEASE_S),
    retry_period=config.Seconds(LEASE_S / 4),
    resource_name=ELECTION,
    resource_namespace=NAMESPACE,
)
