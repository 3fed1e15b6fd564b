"""A control plane with the policies of the rendered chart in force, without webhook and without scheduler.

`alice` may do everything in the namespace `team`, as the best that a tenant can be.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gangline_e2e import binaries
from gangline_e2e.api import Api, connect
from gangline_e2e.asking import is_allowed
from gangline_e2e.chart import RELEASE, Helm
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import NODE_STATUSES, claim, install, node_status
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.workloads import Manifest, binding, gpu_pod, kwok_node

ALLOCATED = "gpu.scheduling/allocated"
UUIDS = "gpu.scheduling/allocated-uuids"
MAP = "gpu-scheduling-map"
MIN_RUNTIME = "gangline.dev/min-runtime"
TEAM = "team"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{TEAM}/leases"
CLAIMS = f"/apis/gpu.scheduling/v1/namespaces/{TEAM}/gpuclaims"
SCHEDULER = f"system:serviceaccount:{RELEASE}:gpu-scheduler"
SECOND = "system:serviceaccount:elsewhere:second-scheduler"
"""Another scheduler, which the chart's values trust."""
AGENT = f"system:serviceaccount:{RELEASE}:gpu-scheduler-agent"
RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, slots=True)
class User:
    """Requests as somebody else, whom the administrator impersonates."""

    api: Api
    name: str
    groups: tuple[str, ...] = ()

    async def ask(self, method: str, path: str, body: object = None, **params: str) -> Any:
        """One request; a PATCH is a JSON merge patch."""
        headers = {"Impersonate-User": self.name}
        if self.groups:
            headers["Impersonate-Group"] = self.groups[0]
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        return await self.api.request(method, path, body, headers=headers, **params)

    async def create(self, manifest: Manifest, path: str = "") -> Manifest:
        """A pod of the team, unless the path says otherwise."""
        made: Manifest = await self.ask("POST", path or self.api.pods, manifest)
        return made

    async def patch(self, path: str, patch: Mapping[str, Any]) -> Manifest:
        """A merge patch of a pod or of what lies below one, unless the path is a full one."""
        changed: Manifest = await self.ask("PATCH", path if path[0] == "/" else f"{self.api.pods}/{path}", patch)
        return changed


@dataclass(frozen=True, slots=True)
class Guarded:
    """A cluster with the policies in force; ``old`` is the name of a pod that was bound before the policies were
    created.
    """

    api: Api
    old: str

    def user(self, name: str, *groups: str) -> User:
        """Somebody."""
        return User(self.api, name, groups)

    @property
    def alice(self) -> User:
        """A tenant with every right in her namespace."""
        return self.user("alice")

    @property
    def scheduler(self) -> User:
        """The scheduler's account."""
        return self.user(SCHEDULER)


@asynccontextmanager
async def guarded(folder: Path, helm: Path) -> AsyncIterator[Guarded]:
    """A cluster on which each policy has refused something by now, until the block ends."""
    with ControlPlane(folder / "control-plane", Options(controller_manager=True), binaries.find()) as control_plane:
        async with connect(control_plane.kubeconfig, TEAM) as api:
            await _prepare(api)
            await _bound(api, User(api, SCHEDULER), "older")
            for each in await Helm(helm, folder / "helm").render({"policies": {"trustedUsers": [SECOND]}}):
                if each["kind"].startswith("ValidatingAdmissionPolicy"):
                    await api.create(each)
            found = Guarded(api, "older")
            await _until_in_force(found)
            yield found


async def warnings(api: Api, pod: Manifest) -> list[str]:
    """What the API server warns of when a pod is made, as a trial."""
    async with api._session.post(api.pods, json=pod, params={"dryRun": "All"}) as answer:
        assert answer.status == 201, await answer.text()
        return [re.sub(r"\\(.)", r"\1", each) for each in answer.headers.getall("Warning", [])]


def plain_pod(
    name: str,
    annotations: dict[str, str] | None = None,
    scheduler: str = "gpu-scheduler",
    labels: dict[str, str] | None = None,
) -> Manifest:
    """A pod without GPUs; without a name it gets one."""
    pod = gpu_pod(name, gpus=0, scheduler_name=scheduler, annotations=annotations or {}, labels=labels)
    if not name:
        del pod["metadata"]["name"]
        pod["metadata"]["generateName"] = "some-"
    return pod


def annotated(annotations: Mapping[str, str | None]) -> Manifest:
    """A merge patch that sets annotations, and removes those that are None."""
    return {"metadata": {"annotations": dict(annotations)}}


def lease(name: str, labels: Mapping[str, str] | None = None) -> Manifest:
    """A Lease of nobody."""
    metadata = {"name": name, "labels": dict(labels or {})}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


async def _prepare(api: Api) -> None:
    await install(api)
    for name in (TEAM, RELEASE):
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await api.create(kwok_node("node-a"))
    await give(api, "RoleBinding", "alice", "cluster-admin")
    for name in (SCHEDULER, SECOND, AGENT):
        await give(api, "ClusterRoleBinding", name, "cluster-admin")
    for name in ("alice", SCHEDULER, SECOND, AGENT):
        await api.until(partial(_may_create_pods, api, name), f"the role of {name} counts")

    async def has_account() -> bool:
        return bool(await api.list(f"/api/v1/namespaces/{TEAM}/serviceaccounts"))

    await api.until(has_account, "pods can be made")


async def _may_create_pods(api: Api, user: str) -> bool:
    """Whether the API server lets a user do so by now: roles count a moment after they are given."""
    wanted = {"namespace": TEAM, "verb": "create", "resource": "pods"}
    return await is_allowed(api, user, resourceAttributes=wanted)


async def give(api: Api, kind: str, user: str, role: str) -> None:
    """Bind a cluster role to a user, by a RoleBinding in the team's namespace or a ClusterRoleBinding."""
    await api.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": kind,
            "metadata": {"name": user.rpartition(":")[2]},
            "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        }
    )


async def _bound(api: Api, scheduler: User, name: str) -> None:
    await api.create(plain_pod(name))
    await scheduler.create(
        binding(name, "node-a", {ALLOCATED: "0,1", UUIDS: "GPU-1,GPU-2"}), f"{api.pods}/{name}/binding"
    )


async def _until_in_force(guarded: Guarded) -> None:
    """Wait until each policy has refused something: the API server learns of them by a watch."""
    await guarded.alice.create(claim("probe"), CLAIMS)
    admin = guarded.user("admin", "system:masters")
    agent = guarded.user(AGENT)
    lock = lease("probe", {"gpu.scheduling/managed": "true"})
    status = {"status": {"phase": "Bound"}}
    await _until_refused(guarded, admin, "POST", guarded.api.pods, plain_pod("", {ALLOCATED: "0"}))
    await _until_refused(guarded, admin, "POST", guarded.api.pods, plain_pod("", {MAP: "0=node-a:0"}))
    await _until_refused(guarded, admin, "POST", LEASES, lock)
    await _until_refused(guarded, admin, "PATCH", f"{CLAIMS}/probe/status", status)
    await _until_refused(guarded, admin, "POST", NODE_STATUSES, node_status("probe"))
    await _until_refused(guarded, agent, "POST", NODE_STATUSES, node_status("probe"))
    await _until_refused(guarded, agent, "PATCH", "/api/v1/nodes/node-a", {"metadata": {"labels": {"a": "b"}}})

    async def warned() -> bool:
        return bool(await warnings(guarded.api, plain_pod("", {MIN_RUNTIME: "1h"})))

    await guarded.api.until(warned, "the policy about protection is in force")


async def _until_refused(guarded: Guarded, user: User, method: str, path: str, body: Manifest) -> None:
    async def refused() -> bool:
        try:
            await user.ask(method, path, body, dryRun="All")
        except Refused as error:
            return error.status == 403 and "ValidatingAdmissionPolicy" in error.message
        return False

    await guarded.api.until(refused, f"a policy refuses {method} {path}")
