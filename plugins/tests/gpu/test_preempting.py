"""A pod for which room was made has its devices once, whatever comes first: the watch or the answer to its binding."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from gangline import resources
from gangline.simulate import Kubelet, SimulatedClient, SimulatedCluster, running
from gangline.testing import make_node, make_pod

from .gpu_cases import report

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gpus
  plugins: {multiPoint: {enabled: [{name: GpuClaim}]}}
"""


class SlowToAnswer(SimulatedClient):
    """Binds at once, and says so seconds later."""

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        await super().bind(namespace, name, uid, node, annotations)
        await asyncio.sleep(3.0)


def test_a_pod_that_preempted_others_is_counted_once_while_its_binding_is_not_answered() -> None:
    cluster = SimulatedCluster()
    cluster.create(resources.NODES, make_node("a"))
    cluster.create(resources.GPU_NODE_STATUSES, report("a"))
    cluster.create(resources.PODS, make_pod("low", 8, scheduler_name="gpus"))

    async def story() -> None:
        kubelet = Kubelet(cluster.server, cluster.clock)
        async with running(kubelet.run()), cluster.scheduling(PROFILE, SlowToAnswer(cluster.server)):
            await cluster.until(lambda: "low" in cluster.bound())
            await asyncio.sleep(5.0)  # in virtual time: its binding is answered
            cluster.create(resources.PODS, make_pod("urgent", 2, scheduler_name="gpus", priority=10))
            await cluster.until(lambda: "urgent" in cluster.bound())
            cluster.create(resources.PODS, make_pod("other", 1, scheduler_name="gpus"))
            await cluster.until(lambda: "other" in cluster.bound(), seconds=2.0)
            cluster.server.delete(resources.PODS, "urgent", namespace="default")
            cluster.create(resources.PODS, make_pod("rest", 7, scheduler_name="gpus"))
            await cluster.until(lambda: "rest" in cluster.bound())

    cluster.play(story)
