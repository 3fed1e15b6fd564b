"""ProvisioningRequests of cluster-autoscaler: where they are, and what an autoscaler writes on one."""

from __future__ import annotations

from datetime import UTC, datetime

from gangline_e2e.api import Api

GROUP, VERSION, PLURAL = "autoscaling.x-k8s.io", "v1", "provisioningrequests"
CONSUMED = f"{GROUP}/consume-provisioning-request"
CLASS = f"{GROUP}/provisioning-class-name"


def path_of(api: Api) -> str:
    """The path of the requests in a client's namespace."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{api.namespace}/{PLURAL}"


async def answer(api: Api, request: str, *types: str, message: str = "") -> None:
    """Write these conditions on a request, as an autoscaler does."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    conditions = [
        {"type": each, "status": "True", "reason": each, "message": message, "lastTransitionTime": now}
        for each in types
    ]
    await api.merge(f"{path_of(api)}/{request}/status", {"status": {"conditions": conditions}})
