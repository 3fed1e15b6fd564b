"""Expected placements: status.nominatedNodeName of pods whose node is decided, while their binding takes long.

kube-scheduler does the same with the feature gate NominatedNodeNameForExpectation (KEP-5278). Autoscalers then see for
which nodes pods are meant, and another leader goes on where this one has stopped. A binding that nothing delays needs
no such write. The API server removes the nomination with the binding.
"""

from __future__ import annotations

import logging

from gangline.deciding.scheduling import Decision
from gangline.errors import GanglineError
from gangline.failpoints import failpoint
from gangline.kube.interface import Client, PatchKind
from gangline.kube.resources import PODS
from gangline.status import SUCCESS, Status

log = logging.getLogger(__name__)


class ExpectedPlacements:
    """Writes for which nodes pods are meant."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def write(self, decision: Decision) -> Status:
        """Nominate the chosen node; SUCCESS also if that fails, because the binding does not depend on the write."""
        pod, node = decision.pod, decision.node
        if pod.nominated_in_status == node:
            return SUCCESS
        decision.is_expected = True
        failpoint("nominate.before-write")
        patch = {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}}
        try:
            await self._client.patch(
                PODS, pod.name, patch, namespace=pod.namespace, subresource="status", kind=PatchKind.MERGE
            )
        except GanglineError as error:
            log.warning("pod %s: could not write its nomination to node %s: %s", pod.key, node, error)
        failpoint("nominate.after-write")
        return SUCCESS
