"""Which pods get devices chosen follows from the configuration in use, whatever others came before or were refused."""

from __future__ import annotations

import asyncio

import pytest

from gangline import ConfigError, custom_resources, resources
from gangline.testing import make_pod
from gangline.testing.configured import configuration

from .gpu_cases import report
from .lease_cases import LeaseCluster

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: gpus
  plugins: {{multiPoint: {{enabled: [{enabled}, {{name: DeviceLease}}]}}}}
  pluginConfig:
  - name: DeviceLease
    args: {{namespace: locks}}
{more}"""
WITHOUT_CLAIMS = PROFILE.format(enabled="{name: NodeName}", more="")
REFUSED = PROFILE.format(
    enabled="{name: GpuClaim}, {name: TopologyPlacement}",
    more="""\
  - name: GpuClaim
    args: {implicitClaims: false}
  - name: TopologyPlacement
    args: {levels: [{name: rack, nodeLabel: a}, {name: rack, nodeLabel: b}]}
""",
)


@pytest.mark.parametrize(
    ("then", "is_refused"), [(REFUSED, True), (WITHOUT_CLAIMS, False)], ids=["refused", "without GpuClaim"]
)
def test_a_pod_that_was_bound_without_devices_gets_them_as_the_configuration_in_use_says(
    then: str, is_refused: bool
) -> None:
    cluster = LeaseCluster(nodes=1)
    cluster.server.delete(resources.GPU_NODE_STATUSES, "node-0")
    cluster.create(resources.PODS, make_pod("train", gpus=2, scheduler_name="gpus"))

    async def story() -> None:
        async with cluster.scheduler() as scheduler:
            await cluster.until_bound("train", seconds=5)
            try:
                scheduler.use(configuration(then))
            except ConfigError as error:
                assert "rack is there twice" in str(error)
            cluster.create(resources.GPU_NODE_STATUSES, report("node-0"))
            await asyncio.sleep(90)

    cluster.play(story)

    assert (custom_resources.ALLOCATED in (cluster.pod("train").metadata.annotations or {})) == is_refused
