"""A whole cluster in virtual time: API server, controllers, kubelets, nodes, schedulers, and the judge of every write.

Rules:
- Time passes only in `pass_time`; in between all stands still, and anybody may be asked or told something.
- Everything follows from what is done to the site, in its order, so that a run can be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from typing import Any, TypeVar

from gangline.errors import NotFound
from gangline.kube.resources import LEASES, PODS
from gangline.simulate import ClaimController, InMemoryServer, Kubelet, VirtualClock, Workloads, looping
from gangline.simulate.history import Data
from gangline.wire.custom_resources import MANAGED
from gangline_chaos.judge import rules
from gangline_chaos.judge.judging import Judge
from gangline_chaos.virtual.feeding import Feed
from gangline_chaos.virtual.fleet import Fleet
from gangline_chaos.virtual.replicas import NAMESPACE, Replica
from gangline_e2e.day.fabric import Fabric

FABRIC = Fabric(nodes=8, gpus=8, leaves=4, spines=2)
"""Leaves of 2 nodes, spines of 2 leaves."""
COLLECT_S = 20.0
"""Seconds between two looks of the collector of garbage; it removes what it has seen twice."""
SETTLES_S = 160.0
"""Seconds to wait for order after the last fault: longer than the judge allows, so the judge reports what is late."""
LOOK_S = 1.0

Result = TypeVar("Result")


class Site:
    """One cluster; close it in the end."""

    def __init__(self, replicas: int) -> None:
        self.clock = VirtualClock()
        self.judge = Judge(is_crowded=True)
        self.feed = Feed(self.clock, self.judge.fold)
        self.server = InMemoryServer(self.clock, observe=self.feed.observe)
        self.fleet = Fleet(self.server, FABRIC)
        self.replicas = [
            Replica(f"scheduler-{n}", self.server, self.clock, self._replica_ended, self.fault) for n in range(replicas)
        ]
        self._stack = ExitStack()
        self._log = _Log(self)
        logging.getLogger().addHandler(self._log)
        self._stack.callback(logging.getLogger().removeHandler, self._log)
        self._loop = self._stack.enter_context(looping(self.clock))
        self._loop.set_exception_handler(self._note_lost)
        self._faults = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.do(self._open())

    def close(self) -> None:
        """Everything ends."""
        for replica in self.replicas:
            self.call(replica.kill)
        self._stack.close()

    def do(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run something to its end."""
        return self._loop.run_until_complete(work)

    def call(self, work: Callable[..., Any], *args: Any) -> None:
        """Call something that needs a running loop."""

        async def called() -> None:
            work(*args)

        self.do(called())

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside all else."""
        self.call(lambda: self._tasks.append(asyncio.create_task(work)))

    def pass_time(self, seconds: float) -> None:
        """Let so many virtual seconds pass, and have the judge look."""
        self.do(asyncio.sleep(seconds))
        self.feed.mark("time", "passes")

    # Faults

    def fault(self, name: str, seconds: float = 0.0) -> None:
        """A fault begins, and ends after so many seconds: the judge is patient until then."""
        self._faults += 1
        said = f"{name}-{self._faults}"
        self.feed.mark("begin", said)
        if seconds:
            self._loop.call_later(seconds, self.feed.mark, "end", said)
        else:
            self.feed.mark("end", said)

    def later(self, seconds: float, work: Any, *args: Any) -> None:
        """Call something after so many virtual seconds."""
        self._loop.call_later(seconds, work, *args)

    def leader(self) -> Replica | None:
        """The replica that leads, if one does."""
        return next((replica for replica in self.replicas if replica.leads), None)

    # Objects

    def pods(self) -> list[Data]:
        """The pods, by name."""
        return [each.data for each in self.server.list(PODS)]

    def locks(self) -> list[Data]:
        """The leases of devices, by name."""
        found = self.server.list(LEASES, namespace=NAMESPACE, label_selector=f"{MANAGED}=true")
        return [each.data for each in found]

    def told(self) -> list[str]:
        """A line for each pod: where it is, or why it waits."""
        lines = []
        for pod in self.pods():
            metadata, conditions = pod["metadata"], pod["status"].get("conditions", ())
            why = [each.get("message", "") for each in conditions if each["type"] == "PodScheduled"]
            where = pod["spec"].get("nodeName") or f"waits: {' '.join(why) or 'no reason yet'}"
            lines.append(f"{metadata['name']} {pod['status'].get('phase')} {where}")
        return lines

    def delete_pod(self, name: str, at_once: bool = True) -> None:
        """Somebody deletes a pod."""
        try:
            self.server.delete(PODS, name, namespace="default", grace_period_seconds=0 if at_once else None)
        except NotFound:
            return

    # The end

    def settle(self) -> None:
        """Everything works from now on; time passes until all is in order, or for as long as that may take."""
        for replica in self.replicas:
            self.call(replica.release)
        for number in range(FABRIC.nodes):
            self.fleet.report(number)
            self.fleet.make(number)
        self.fault("the last")
        self.wait_for_order()

    def wait_for_order(self, is_empty: bool = False) -> None:
        """Let time pass until no rule of the end is broken, or for as long as that may take; then judge the end.

        `is_empty`: no pod is left then, and no lock.
        """
        until = self.clock.monotonic() + SETTLES_S
        while self.clock.monotonic() < until and not (
            self.is_in_order() and not (is_empty and (self.pods() or self.locks()))
        ):
            self.pass_time(LOOK_S)
        self.feed.mark("quiet", "the end")

    def is_in_order(self) -> bool:
        """Whether no pod that has room waits, and locks and annotations agree."""
        world = self.judge.world
        looks = rules.left_waiting, rules.locks_that_differ, rules.devices_missing
        return not any(look(world) for look in looks)

    async def _open(self) -> None:
        parts = (
            Kubelet(self.server, self.clock).run(),
            Workloads(self.server).run(),
            ClaimController(self.server).run(),
            self._collect(),
        )
        for replica in self.replicas:
            replica.start()
        self._tasks += [asyncio.create_task(part) for part in parts]

    async def _collect(self) -> None:
        while True:
            await asyncio.sleep(COLLECT_S)
            self.fleet.collect()

    def _replica_ended(self, name: str, why: str) -> None:
        self.feed.mark("ended", name, why)

    def _note_lost(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.feed.mark("ended", "a task", repr(context.get("exception") or context["message"]))


class _Log(logging.Handler):
    """Each traceback that is logged breaks a rule."""

    def __init__(self, site: Site) -> None:
        super().__init__(logging.WARNING)
        self._site = site

    def emit(self, record: logging.LogRecord) -> None:
        """See the base class."""
        text = logging.Formatter().format(record)
        if "Traceback" in text:
            self._site.feed.mark("ended", record.name, f"a traceback in the log: {text}")
