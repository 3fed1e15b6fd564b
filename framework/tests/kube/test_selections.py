"""A plugin may watch some objects of a kind: those of a namespace that bear certain labels."""

from __future__ import annotations

import asyncio
from typing import Any

from gangline import Handle, NodeView, Reason, hookimpl, resources
from gangline.config import load
from gangline.kube.resources import LEASES, PODS
from gangline.loop.scheduler import Scheduler
from gangline.profile.registry import Catalog
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, run

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: one
  plugins: {multiPoint: {enabled: [{name: Watcher}]}}
"""


class Watcher:
    """Watches marked leases of one namespace, and pods, which the scheduler follows anyway."""

    name = "Watcher"
    reasons = (Reason("never"),)
    watches = (resources.Selection(LEASES, "locks", "mark=yes"), resources.Selection(PODS, "locks"))

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @hookimpl
    def filter(self, nodes: NodeView) -> Any:
        return nodes.full(False).astype("uint8")


def test_a_selection_brings_what_it_selects_and_nothing_else() -> None:
    clock = VirtualClock()
    server = InMemoryServer(clock)
    for namespace, name, mark in (("locks", "a", "yes"), ("locks", "b", "no"), ("other", "c", "yes")):
        server.create(LEASES, {"metadata": {"name": name, "namespace": namespace, "labels": {"mark": mark}}})

    async def story() -> tuple[list[str], list[str]]:
        catalog = Catalog.discover().with_classes(Watcher)
        scheduler = Scheduler(load(CONFIG, "config.yaml"), SimulatedClient(server), clock, catalog)
        task = asyncio.create_task(scheduler.run())
        await asyncio.sleep(1)
        server.patch(LEASES, "b", {"metadata": {"labels": {"mark": "yes"}}}, namespace="locks")
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        seen = sorted(lease.metadata.name for lease in scheduler.cache.store(resources.LEASES))
        return seen, [informer.resource.plural for informer in scheduler.informers]

    seen, followed = run(story(), clock)

    assert seen == ["a", "b"]
    assert followed.count("pods") == 1
