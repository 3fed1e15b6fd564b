"""Put Gangline's custom resources on a cluster, and write manifests of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import yaml

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.workloads import Manifest, Manifests

CHART = Path(__file__).parents[2] / "charts/gpu-scheduler"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NODE_STATUSES = "/apis/gpu.scheduling/v1/gpunodestatuses"


async def install(api: Api) -> None:
    """Create the chart's custom resource definitions, or bring them up to date, and wait until they are served.

    They stay on the cluster: other tests use them too.
    """
    for file in sorted((CHART / "crds").glob("*.yaml")):
        crd = yaml.safe_load(file.read_text())
        await _put(api, crd)
        await api.until(partial(_served, api, crd), f"{file.name} is served")


def claim(name: str, **spec: Any) -> Manifest:
    """A GpuClaim; ``spec`` are the fields of its spec."""
    return {"apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim", "metadata": {"name": name}, "spec": spec}


def node_status(name: str, node: str | None = None) -> Manifest:
    """A GpuNodeStatus without a status, for the node of that name or of another one."""
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuNodeStatus",
        "metadata": {"name": name},
        "spec": {"nodeName": node or name},
    }


def agent_policies() -> Manifests:
    """The validating admission policies of the chart that hold an agent to its node, and their bindings."""
    files = [CHART / "policies" / f"{name}.yaml" for name in ("node-labels", "node-status", "resource-slices")]
    return [each for file in files for each in yaml.safe_load_all(file.read_text())]


async def _put(api: Api, crd: Manifest) -> None:
    """Create a definition, or replace one that differs: a replacement stops its API for a moment."""
    try:
        await api.request("POST", CRDS, crd)
        return
    except Refused as error:
        if error.status != 409:
            raise
    path = f"{CRDS}/{crd['metadata']['name']}"
    old = (await api.get(path))["metadata"]
    new = {**crd, "metadata": {**crd["metadata"], "resourceVersion": old["resourceVersion"]}}
    if (await api.request("PUT", path, new, dryRun="All"))["metadata"]["generation"] != old["generation"]:
        await api.request("PUT", path, new)


async def _served(api: Api, crd: Manifest) -> bool:
    """Whether the API server knows the definition and answers for its objects."""
    conditions = (await api.get(f"{CRDS}/{crd['metadata']['name']}")).get("status", {}).get("conditions") or []
    if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
        return False
    try:
        spec = crd["spec"]
        await api.list(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}")
    except Refused as error:
        if error.status in (404, 429):  # not yet, or its storage is being made
            return False
        raise
    return True
