"""An API server without resource.k8s.io, as before Kubernetes 1.32 or with the group switched off."""

from __future__ import annotations

import asyncio
from typing import Any

from gangline import NotFound, model, resources
from gangline.simulate import SimulatedClient, SimulatedCluster
from gangline.testing import make_node, make_pod

PROFILE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
"""


class Older(SimulatedClient):
    """A client of such a server."""

    async def list(self, resource: Any, **more: Any) -> Any:
        """See the interface."""
        if resource.group == resources.RESOURCE_CLAIMS.group:
            raise NotFound(404, "NotFound", f"the server could not find {resource.plural}")
        return await super().list(resource, **more)

    async def served(self, group: str, version: str) -> set[str]:
        """See the interface."""
        return set() if group == resources.RESOURCE_CLAIMS.group else await super().served(group, version)


def test_pods_without_claims_are_bound_and_others_wait() -> None:
    cluster = SimulatedCluster()
    cluster.create(resources.NODES, make_node("a"))
    cluster.create(resources.PODS, make_pod("plain"))
    entry = model.PodResourceClaim("gpu", resource_claim_name="gpu")
    cluster.create(resources.PODS, make_pod("with-claim", resource_claims=[entry]))

    async def story() -> None:
        async with cluster.scheduling(PROFILE, Older(cluster.server)):
            await cluster.until(lambda: cluster.bound() == {"plain": "a"}, 30)
            await asyncio.sleep(60)

    cluster.play(story)

    assert cluster.bound() == {"plain": "a"}
