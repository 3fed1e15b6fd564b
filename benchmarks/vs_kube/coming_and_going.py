"""The workload `churn`: pods come at a fixed rate, and each is deleted a second after it was bound.

The scheduler runs and has bound a pod before. A pod is created when it is due, whether or not earlier ones are bound,
so a scheduler that falls behind shows long waits. A wait begins with the creation and ends with the binding, both as
the watch of another process shows them (observing.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from gangline_e2e import workloads
from gangline_e2e.processes import usage
from vs_kube.alone import CPU, RSS
from vs_kube.figures import Metric, percentile
from vs_kube.gangs import idle
from vs_kube.observing import observer
from vs_kube.setting import Setting, Workload, node_names, ready_node

STAYS_S = 1.0
"""Seconds for which a pod stays after its binding."""
WARM_S = 2.0
"""Seconds at the start whose pods are not counted."""
MOST_AT_ONCE = 256
"""The most requests under way at the same time."""
LONGEST_WAIT_S = 120
"""Seconds to wait, after the last pod has come, for pods that are not bound yet."""
RATE, MEDIAN, P99 = (
    Metric("pods/s that came", "{:.0f}", less_is_better=False),
    Metric("created to bound: p50 ms", "{:.1f}"),
    Metric("created to bound: p99 ms", "{:.1f}"),
)


@dataclass(slots=True)
class Pods:
    """The pods of the workload: how long each has waited, and the requests that are under way."""

    setting: Setting
    tasks: asyncio.TaskGroup
    waits: dict[str, float] = field(default_factory=dict)
    """The seconds that each bound pod has waited, by name."""
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_AT_ONCE))
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def follow(self, reader: asyncio.StreamReader) -> None:
        """Take note of bound pods, and let them be deleted in time, until cancelled."""
        while line := await reader.readline():
            name, seconds = line.decode().split()
            self.waits[name] = float(seconds)
            self.changed.set()
            self.tasks.create_task(self._delete(name))
        raise RuntimeError("the observer of the pods has ended")

    async def create(self, name: str) -> None:
        """Create a pod."""
        async with self.slots:
            pod = workloads.gpu_pod(name, scheduler_name=self.setting.scheduler)
            await self.setting.cluster.create(pod)

    async def _delete(self, name: str) -> None:
        await asyncio.sleep(STAYS_S)
        async with self.slots:
            await self.setting.cluster.delete(f"{self.setting.cluster.pods}/{name}", at_once=True)

    async def until(self, number: int) -> None:
        """Wait until so many pods have been bound."""
        async with asyncio.timeout(LONGEST_WAIT_S):
            while len(self.waits) < number:
                self.changed.clear()
                await self.changed.wait()

    async def come(self, names: list[str]) -> float:
        """Create pods, each when it is due; returns how many came per second."""
        began, creations = time.perf_counter(), []
        for number, name in enumerate(names):
            delay = began + number / self.setting.rate - time.perf_counter()
            if delay > 0:
                await asyncio.sleep(delay)
            creations.append(self.tasks.create_task(self.create(name)))
        async with asyncio.timeout(LONGEST_WAIT_S):
            await asyncio.gather(*creations)
        return len(names) / (time.perf_counter() - began)


async def _prepare(setting: Setting) -> None:
    await setting.cluster.create_many(map(ready_node, node_names(setting.nodes)))


async def measure(setting: Setting) -> Mapping[str, float]:
    """Start the scheduler, and let pods come and go; returns the figures, with waits in milliseconds."""
    names = [f"{setting.scheduler}-{number:06}" for number in range(int(setting.rate * (WARM_S + setting.seconds)))]
    counted = names[int(setting.rate * WARM_S) :]
    async with observer(setting.plane.kubeconfig, setting.cluster.namespace) as reader, asyncio.TaskGroup() as tasks:
        pods = Pods(setting, tasks)
        following = tasks.create_task(pods.follow(reader))
        pid = setting.start()
        await pods.create("first")
        await pods.until(1)
        await idle(pid)
        before = usage(pid).cpu_s
        rate = await pods.come(names)
        await pods.until(1 + len(names))
        await idle(pid)
        used = usage(pid)
        following.cancel()
    waits = [pods.waits[name] for name in counted]
    return {
        RATE.title: rate,
        MEDIAN.title: percentile(waits, 0.5) * 1e3,
        P99.title: percentile(waits, 0.99) * 1e3,
        CPU.title: (used.cpu_s - before) / len(names) * 1e3,
        RSS.title: used.peak_rss_bytes / 2**20,
    }


WORKLOADS = (
    Workload(
        "churn",
        "pods for one GPU that come at a fixed rate and are deleted a second after their binding",
        (RATE, MEDIAN, P99, CPU, RSS),
        _prepare,
        measure,
        pods=lambda nodes: 0,
        takes_pods=False,
    ),
)
