"""A running scheduler follows what configures leaves and spines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from gangline import resources
from gangline.simulate import InMemoryServer, SimulatedClient, VirtualClock, make_scheduler, run
from gangline_plugins.leaf_spine import LeafSpine

CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gangs
  plugins: {multiPoint: {enabled: [{name: LeafSpine}]}}
  pluginConfig:
  - name: LeafSpine
    args:
      apiVersion: topology.scheduler/v1alpha1
      kind: SchedulerConfig
      spec: {topologyConstraints: {maxNodesPerLeaf: 4}}
"""
MAPPED = """\
apiVersion: topology.scheduler/v1alpha1
kind: SchedulerConfig
spec: {topologyConstraints: {maxNodesPerLeaf: 3}}
"""


def limits_seen(server: InMemoryServer, clock: VirtualClock, *changes: Callable[[], Any]) -> list[int | None]:
    """The nodes that a group may use of a leaf, at first and after each change on the API server."""

    async def story() -> list[int | None]:
        scheduler = make_scheduler(CONFIG, SimulatedClient(server), clock)
        task = asyncio.create_task(scheduler.run())
        plugin: LeafSpine = scheduler.runtimes["gangs"].profile.plugins["LeafSpine"]
        seen = []
        for change in (lambda: None, *changes):
            change()
            await asyncio.sleep(1)
            plugin.pre_cycle()
            seen.append(plugin._configured.settings.max_nodes)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return seen

    return run(story(), clock)


@pytest.fixture(autouse=True)
def outside_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")


def test_changes_take_effect_without_a_restart() -> None:
    clock = VirtualClock()
    server = InMemoryServer(clock)

    def config_map(name: str) -> Any:
        meta = {"name": name, "namespace": "kube-system"}
        return server.create(resources.CONFIG_MAPS, {"metadata": meta, "data": {"config.yaml": MAPPED}})

    def custom_resource() -> Any:
        spec = {"topologyConstraints": {"maxNodesPerLeaf": 2}}
        return server.create(
            resources.SCHEDULER_CONFIGS, {"metadata": {"name": "any", "namespace": "kube-system"}, "spec": spec}
        )

    seen = limits_seen(
        server,
        clock,
        lambda: config_map("other"),
        lambda: config_map("topology-scheduler-config"),
        custom_resource,
        lambda: server.delete(resources.SCHEDULER_CONFIGS, "any", namespace="kube-system"),
    )

    assert seen == [4, 4, 3, 2, 3]
