"""Runs the scheduler on an API server in memory, with agents that report GPUs, for what the pages show."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from gangline.config import SchedulerConfiguration
from gangline.kube.resources import NODES
from gangline.loop.scheduler import Options, Scheduler
from gangline.model import ObjectMeta
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, Kubelet, SimulatedClient, VirtualClock, Workloads
from gangline.wire.custom_resources import GpuNodeStatus, GpuNodeStatusSpec, GpuNodeStatusStatus
from gangline_agent import templates

HARDWARE = "dgx-h100"


async def settle(
    server: InMemoryServer, clock: VirtualClock, config: SchedulerConfiguration, seconds: float
) -> SimulatedClient:
    """Schedule what is on the server for so long, in virtual time; the client that sees what has become of it."""
    client = SimulatedClient(server, latency={"bind": 0.002})
    template = templates.read(HARDWARE)
    for node in (await client.list(NODES)).items:
        status = template.status_of(node.metadata.name, "", clock.now())
        server.apply_manifest(_report(node.metadata.name, status))
    scheduler = Scheduler(config, client, clock, Catalog.discover(), Options(seed=0))
    works = (scheduler.run(), Kubelet(server, clock).run(), Workloads(server).run())
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return client
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _report(node: str, status: GpuNodeStatusStatus) -> dict[str, Any]:
    report = GpuNodeStatus(ObjectMeta(name=node), GpuNodeStatusSpec(node), status)
    return {"apiVersion": report.api_version, "kind": report.kind, **msgspec.to_builtins(report)}
