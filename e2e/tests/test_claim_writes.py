"""Writes to ResourceClaims on a real API server, with the chart's rights, in each version that a server may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangline import model
from gangline.errors import Conflict, Invalid
from gangline.kube import auth
from gangline.kube.claim_writing import FINALIZER, ClaimWriter
from gangline.kube.client import HttpClient
from gangline.kube.resources import RESOURCE_CLAIMS, RESOURCE_SLICES
from gangline.kube.versions import newest
from gangline_e2e.api import Api, connect
from gangline_e2e.asking import is_allowed
from gangline_e2e.chart import Helm, one
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.versions import ALL_VERSIONS, GROUP, OneVersion
from gangline_e2e.workloads import Manifest

DRIVER = "gpu.example.com"
USER = "gangline"
ROLE = "gpu-scheduler-scheduler"
ASKED = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
ALLOCATION = model.ResourceClaimAllocation(
    model.AllocatedDevices([model.AllocatedDevice(DRIVER, "a", "gpu-0", request="gpu")]),
    model.NodeSelector([model.NodeSelectorTerm(match_fields=[model.Requirement("metadata.name", "In", ["a"])])]),
    "2026-01-02T03:04:05Z",
)
FIRST = model.ResourceClaimConsumerReference(resource="pods", name="p", uid="uid-p")
SECOND = model.ResourceClaimConsumerReference(resource="pods", name="q", uid="uid-q")

pytestmark = pytest.mark.timeout(300)


def _claim(version: str) -> Manifest:
    request = {"name": "gpu", **ASKED} if version == "v1beta1" else {"name": "gpu", "exactly": ASKED}
    spec = {"devices": {"requests": [request]}}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": spec}


def _slice(version: str) -> Manifest:
    inner = {"attributes": {"model": {"string": "h"}}}
    device = {"name": "gpu-0", "basic": inner} if version == "v1beta1" else {"name": "gpu-0", **inner}
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "a", "pool": pool, "devices": [device]}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "ResourceSlice", "metadata": {"name": "a"}, "spec": spec}


async def _let(api: Api, helm: Helm) -> None:
    """Give a user the cluster-wide rights that the chart gives the scheduler."""
    role = one(await helm.render(), "ClusterRole", ROLE)
    await api.create({**role, "metadata": {"name": ROLE}})
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE}
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": ROLE}}
    await api.create({**head, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": ref})
    await api.until(lambda: _may(api), "the rights are in force")


async def _may(api: Api) -> bool:
    """Whether the API server knows of the rights."""
    asked = {"group": GROUP, "resource": "resourceclaims", "verb": "list"}
    return await is_allowed(api, USER, resourceAttributes=asked)


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_a_claim_is_read_and_written_in_the_version_that_the_server_has(
    start_control_plane: Callable[[Options], ControlPlane], helm: Helm, version: str
) -> None:
    plane = start_control_plane(ALL_VERSIONS)
    path = f"/apis/{GROUP}/{version}/namespaces/default/resourceclaims/c"
    async with connect(plane.kubeconfig) as api, OneVersion(plane.kubeconfig_for(USER), version) as client:
        await _let(api, helm)
        await api.create_many([_claim(version), _slice(version)])
        claims, slices = await newest(client, RESOURCE_CLAIMS), await newest(client, RESOURCE_SLICES)
        assert claims is not None and claims.version == version and slices is not None
        (slice_,) = (await client.list(slices)).items
        assert slice_.spec.devices[0].attributes["model"].string == "h"
        (stale,) = (await client.list(claims)).items
        assert stale.spec.devices.requests[0].exactly == model.ExactDeviceRequest("gpu", [], "ExactCount", 1)

        writer = ClaimWriter(client)
        claim = await writer.allocate(await writer.protect(stale), ALLOCATION, FIRST)
        assert claim.metadata.finalizers == [FINALIZER]
        assert claim.status.allocation == ALLOCATION and claim.status.reserved_for == [FIRST]
        told = [{"driver": DRIVER, "pool": "a", "device": "gpu-0", "data": {"own": [1]}}]
        await api.merge(f"{path}/status", {"status": {"devices": told}})
        with pytest.raises(Conflict):
            await writer.reserve(claim, SECOND)
        claim = await writer.reserve(await writer.read(claim), SECOND)
        assert sorted(each.name for each in claim.status.reserved_for) == [FIRST.name, SECOND.name]
        claim = await writer.release(stale, FIRST.uid)
        assert claim.status.reserved_for == [SECOND]
        assert (await api.get(path))["status"]["devices"] == [{**told[0], "conditions": None}]
        with pytest.raises(Invalid):
            await writer.deallocate(claim)
        claim = await writer.deallocate(claim, SECOND.uid)
        assert claim.status == model.ResourceClaimStatus()
        assert (await writer.unprotect(claim)).metadata.finalizers == []


async def test_allocations_need_the_right_to_bind_claims(
    start_control_plane: Callable[[Options], ControlPlane], helm: Helm
) -> None:
    plane = start_control_plane(Options(kwok=False))
    async with connect(plane.kubeconfig) as api, HttpClient(auth.load(str(plane.kubeconfig_for(USER)))) as client:
        await _let(api, helm)
        await api.create(_claim("v1"))
        writer = ClaimWriter(client)
        claim = await writer.protect(await client.get(RESOURCE_CLAIMS, "c", namespace="default"))
        role = await api.get(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ROLE}")
        rules: list[dict[str, Any]] = [
            {**rule, "resources": [each for each in rule["resources"] if each != "resourceclaims/binding"]}
            for rule in role["rules"]
            if "resources" in rule
        ]
        await api.merge(f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{ROLE}", {"rules": rules})

        await api.until(lambda: _is_refused(writer, claim), "the right is gone")


async def _is_refused(writer: ClaimWriter, claim: model.ResourceClaim) -> bool:
    """Whether an allocation is refused, or its end, if the right goes between the two."""
    try:
        allocated = await writer.allocate(claim, ALLOCATION, FIRST)
        freed = await writer.deallocate(allocated, FIRST.uid)
    except Invalid as error:
        return 'resource="resourceclaims/binding", verb="patch"' in str(error)
    claim.metadata.resource_version = freed.metadata.resource_version
    return False
