"""Stories of gangs for tests of plugins: leaves of four nodes on a simulated cluster, gangs on them, and a profile.

cluster = GangCluster(leaves=2)
cluster.add_gang("train", 4)

async def story() -> None:
    async with cluster.scheduling(profile_with("MyPlugin", some_argument=3), plugins=[MyPlugin]):
        await cluster.until(lambda: len(cluster.bound("train")) == 4)

cluster.play(story)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec

from gangline import model
from gangline.kube.resources import NODES, PODS, SCHEDULER_PLUGINS_POD_GROUPS
from gangline.simulate import Faults, Scheduler, SimulatedClient, SimulatedCluster, no_faults
from gangline.testing import make_node, make_pod
from gangline.testing.gangs import GROUP, LEAF, REQUIRED, SPINE

ONE_LEAF = {REQUIRED: "leaf"}
"""The annotations of a gang whose pods have to be in one leaf."""
PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gangs
  plugins:
    multiPoint:
      enabled: [{name: GangPermit}, {name: TopologyPlacement}]
"""
"""A configuration with a profile "gangs"."""


def profile_with(plugin: str, **args: Any) -> str:
    """The profile with one more plugin."""
    given = msgspec.json.encode({"name": plugin, "args": args}).decode()
    return PROFILE.replace("}]", f"}}, {{name: {plugin}}}]") + f"  pluginConfig: [{given}]\n"


class GangCluster(SimulatedCluster):
    """Leaves of four nodes with eight GPUs each, and gangs of pods that want a node each, in virtual time."""

    def __init__(self, leaves: int = 2) -> None:
        super().__init__()
        for leaf in range(leaves):
            self.create(NODES, *(self.make_node(f"l{leaf}-n{n}") for n in range(4)))

    @staticmethod
    def make_node(name: str) -> model.Node:
        """A node such as l0-n3, which is in leaf-0."""
        labels = {SPINE: "spine-0", LEAF: f"leaf-{name[1:].split('-')[0]}"}
        return make_node(name, cpu=64, memory="512Gi", labels=labels)

    def add_group(self, name: str, min_member: int) -> None:
        """A PodGroup."""
        meta = model.ObjectMeta(name=name, namespace="default")
        self.create(SCHEDULER_PLUGINS_POD_GROUPS, model.PodGroup(meta, model.PodGroupSpec(min_member=min_member)))

    def add_pods(self, group: str, *numbers: int, annotations: Mapping[str, str] = ONE_LEAF, **spec: Any) -> None:
        """Members of a group with these numbers; each wants the GPUs of a node."""
        spec = {"labels": {GROUP: group}, "annotations": annotations, "scheduler_name": "gangs", **spec}
        self.create(PODS, *(make_pod(f"{group}-{number}", gpus=8, **spec) for number in numbers))

    def add_gang(self, name: str, size: int, annotations: Mapping[str, str] = ONE_LEAF, **spec: Any) -> None:
        """A group of this many pods."""
        self.add_group(name, size)
        self.add_pods(name, *range(size), annotations=annotations, **spec)

    def phase(self, group: str) -> str:
        """The phase in the status of a group."""
        return self.get(SCHEDULER_PLUGINS_POD_GROUPS, group).status.phase

    def scheduler(self, faults: Faults = no_faults) -> AbstractAsyncContextManager[Scheduler]:
        """A scheduler with the profile PROFILE that runs until the block ends."""
        return self.scheduling(PROFILE, SimulatedClient(self.server, latency={"bind": 0.2}, faults=faults))
