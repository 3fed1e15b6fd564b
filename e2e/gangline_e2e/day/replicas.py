"""Replicas of the scheduler as the chart runs them: with its profiles, one leads, and a rollout replaces them all."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from gangline_e2e.api import Api
from gangline_e2e.chart import CHART
from gangline_e2e.scheduler import Gangline
from gangline_e2e.workloads import Manifest

NAMESPACE = "kube-system"
"""The namespace of the leader's Lease and of the leases of devices."""
LEADS = re.compile(r"^leader_election_master_status\{.*\} 1\.0$", re.MULTILINE)
STOPPING, RELEASED = "gangline.commands.run: stopping", "the leader is nobody"
"""What a leader logs when it is told to stop, and when it has released its Lease."""
LEADER_S = 60.0
START_S = 120.0
"""Seconds that a replica may take to start: it shares the machine with busy replicas."""


def chart_configuration() -> Manifest:
    """The configuration that the chart installs with its default values."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    name = values["scheduler"]["name"]
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {**values["leaderElection"], "resourceNamespace": NAMESPACE},
        **values["config"],
        "profiles": [{"schedulerName": name, **profile} for profile in values["profiles"]],
    }


class Replicas:
    """The processes of the scheduler; ``start`` starts one, like the fixture start_gangline."""

    def __init__(
        self, api: Api, kubeconfig: Path, start: Callable[..., Gangline], on_expired: Callable[[float], None]
    ) -> None:
        """`on_expired` is called with the time when another one leads because the Lease of a leader has expired."""
        self._api = api
        self._on_expired = on_expired
        self._make = lambda: start(kubeconfig, chart_configuration(), leader_elect=True, start_s=START_S)
        self.running: list[Gangline] = []
        self.peak_rss = 0
        """The resident memory of the largest process so far, in bytes."""
        self.cpu_s: dict[int, float] = {}
        """The CPU seconds that each process had used when it was last measured, by process id."""
        self.without: list[float] = []
        """Seconds from the end of each leader that was replaced until another one led."""

    async def start(self, count: int) -> None:
        """Start so many, and wait until one leads."""
        for _ in range(count):
            self.running.append(await asyncio.to_thread(self._make))
        await self._api.until(self._leader, "a scheduler leads", LEADER_S)

    async def roll(self) -> None:
        """Replace one after the other: a new one is ready before an old one goes."""
        for old in list(self.running):
            self.running.append(await asyncio.to_thread(self._make))
            led = await self._leader() is old
            self.measure()
            self.running.remove(old)
            began = time.monotonic()
            await asyncio.to_thread(old.stop)
            await self._api.until(self._leader, "another scheduler leads", LEADER_S)
            if led:
                self.without.append(time.monotonic() - began)
                if not has_released(old.logs()):
                    self._on_expired(time.monotonic())

    def measure(self) -> None:
        """Note the memory and the CPU time of those that run."""
        for each in self.running:
            used = each.process.usage()
            self.peak_rss = max(self.peak_rss, used.peak_rss_bytes)
            self.cpu_s[each.process.pid] = used.cpu_s

    async def _leader(self) -> Gangline | None:
        for each in self.running:
            if LEADS.search(await asyncio.to_thread(each.metrics)):
                return each
        return None


def has_released(logs: str) -> bool:
    """Whether a leader that was told to stop has released its Lease, as its log says."""
    return RELEASED in logs.rpartition(STOPPING)[2]
