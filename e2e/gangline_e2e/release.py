"""The chart installed by helm on a control plane of its own, all of it at work.

The controllers make the pods and kube-scheduler places them; the pods of the chart run as processes, all others only
become Running. Four nodes have GPUs, of which a device plugin alone tells, and the agents report what hardware it is.
Pod groups of every system can be made.
"""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import yaml

from gangline_e2e import binaries, egress
from gangline_e2e.api import Api, connect
from gangline_e2e.chart import CHART, RELEASE, Helm, HelmFailed
from gangline_e2e.gang_crds import install_foreign
from gangline_e2e.harness import ADMINS, ControlPlane, Options
from gangline_e2e.kubelet import Kubelet
from gangline_e2e.workloads import GPU, Manifest, Manifests, is_pod_ready

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = f"/api/v1/namespaces/{RELEASE}"
TEAM = "team"
SIMULATOR = "simulator"
"""The user who reports the GPUs of nodes without an agent."""
PROMETHEUS = "prometheus"
VALUES: Manifest = {
    "metrics": {"readers": [{"name": PROMETHEUS, "namespace": TEAM}]},
    "agent": {"simulate": "dgx-h100"},
    "webhook": {"timeoutSeconds": 30},
    "policies": {"trustedUsers": [SIMULATOR]},
}
JOBS = f"/apis/batch/v1/namespaces/{TEAM}/jobs"
GPU_NODES = ("node1", "node2", "node3", "node4")
POD_GROUPS = ("--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1alpha2=true")
AUDITED = {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{RELEASE}"], "omitStages": ["RequestReceived"]}


@dataclass(frozen=True, slots=True)
class Release:
    """The release at work; ``api`` is an administrator's client for the namespace of a team that uses it.

    ``before`` is the inventory of the cluster before the release came, ``simulator`` the kubeconfig of SIMULATOR.
    """

    api: Api
    helm: Helm
    kubelet: Kubelet
    before: set[str]
    audit: Path
    simulator: Path

    async def pods(self, app: str) -> Manifests:
        """The pods of a component that are not on their way out."""
        found = await self.api.list(f"{OWN}/pods", labelSelector=f"app={app}")
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    async def agent(self, node: str) -> Path:
        """The credentials of the agent on a node."""
        (pod,) = [each for each in await self.pods("gpu-scheduler-agent") if each["spec"]["nodeName"] == node]
        return self.kubelet.kubeconfig(pod["metadata"]["name"])

    async def until_ready(self, app: str, count: int) -> None:
        """Wait until a component has that many ready pods."""

        async def ready() -> bool:
            return sum(is_pod_ready(each) for each in await self.pods(app)) == count

        await self.api.until(ready, f"{count} pods of {app} are ready")

    async def apply(self, *files: str) -> None:
        """Apply manifests of examples, as `kubectl apply -n team -f` does."""
        for file in files:
            for manifest in yaml.safe_load_all((EXAMPLES / file).read_text()):
                await self.api.apply(manifest)

    async def clear(self) -> None:
        """Delete the team's Jobs and pods and wait until they are gone."""
        for job in await self.api.list(JOBS):
            await self.api.delete(f"{JOBS}/{job['metadata']['name']}?propagationPolicy=Background")

        async def gone() -> bool:
            left = await self.api.list(self.api.pods)
            await self.api.delete_many(f"{self.api.pods}/{each['metadata']['name']}" for each in left)
            return not left

        await self.api.until(gone, "the team's pods are gone")

    async def metrics(self, pod: Manifest) -> str:
        """The metrics of a pod of the release, as Prometheus scrapes them."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        path = f"/api/v1/namespaces/{TEAM}/serviceaccounts/{PROMETHEUS}/token"
        made = await self.api.request("POST", path, request)
        headers = {"Authorization": f"Bearer {made['status']['token']}"}
        url = f"https://{pod['status']['podIP']}:10259/metrics"
        async with aiohttp.request("GET", url, headers=headers, ssl=False, raise_for_status=True) as answer:
            return await answer.text()

    async def leads(self, pod: Manifest) -> bool:
        """Whether a scheduler of the release is the leader, as its metrics say."""
        return (
            re.search(r"^leader_election_master_status\{.*\} 1\.0$", await self.metrics(pod), re.MULTILINE) is not None
        )

    def requests(self) -> Manifests:
        """All that the service accounts of the release have asked of the API server, as its audit log has it."""
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


@asynccontextmanager
async def release(folder: Path, program: Path) -> AsyncIterator[Release]:
    """`helm install --wait` of the chart, and everything that it needs, until the block ends; ``program`` is helm.

    HelmFailed ends with what the pods have printed. NoControlPlane if programs are missing.
    """
    programs = binaries.find()
    async with AsyncExitStack() as stack:
        short = stack.enter_context(tempfile.TemporaryDirectory(prefix="egress-"))  # as a socket's path has to be
        socket = Path(short) / "socket"
        control_plane = ControlPlane(folder / "control-plane", _options(folder, socket), programs)
        stack.callback(control_plane.close)
        await asyncio.to_thread(control_plane.start)
        await asyncio.to_thread(control_plane.start_scheduler)
        api = await stack.enter_async_context(connect(control_plane.kubeconfig, TEAM))
        await stack.enter_async_context(egress.proxy(api, socket))
        kubelet = Kubelet(api, control_plane.kubeconfig, folder / "pods", RELEASE)
        running = asyncio.create_task(kubelet.run())
        stack.push_async_callback(_end, running)
        await _prepare(api)
        before = await api.inventory()
        helm = Helm(program, folder / "helm", control_plane.kubeconfig)
        try:
            await helm.install(RELEASE, VALUES, CHART, "--wait", "--timeout", "300s")
        except HelmFailed as error:
            raise HelmFailed(f"{error}\n{kubelet.logs()[-10_000:]}") from None
        simulator = control_plane.kubeconfig_for(SIMULATOR, (ADMINS, f"{SIMULATOR}s"))
        yield Release(api, helm, kubelet, before, folder / "audit.log", simulator)


def _options(folder: Path, socket: Path) -> Options:
    """An API server that calls webhooks through the proxy, and writes down what the release's accounts ask for."""
    policy = folder / "audit.yaml"
    rules = [AUDITED, {"level": "None"}]
    policy.write_text(yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    args = (
        f"--egress-selector-config-file={egress.write_configuration(folder / 'egress.yaml', socket)}",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder / 'audit.log'}",
    )
    return Options(kwok=False, controller_manager=True, apiserver_args=(*args, *POD_GROUPS))


async def _prepare(api: Api) -> None:
    """Namespaces, the nodes with GPUs and one without, and the kinds of other systems."""
    await install_foreign(api)
    for name in (RELEASE, TEAM):
        metadata = {"name": name, "annotations": {"gangline.dev/allow": "scheduling-map"}}
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    await api.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": PROMETHEUS, "namespace": TEAM}}
    )
    await api.create_many(_node(name, gpus=8) for name in GPU_NODES)
    await api.create(_node("control", gpus=0))

    async def accounts() -> bool:
        paths = [f"/api/v1/namespaces/{name}/serviceaccounts" for name in (RELEASE, TEAM)]
        return all(["default" in [each["metadata"]["name"] for each in await api.list(path)] for path in paths])

    await api.until(accounts, "the namespaces have service accounts")


def _node(name: str, gpus: int) -> Manifest:
    resources = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    if gpus:
        resources[GPU] = str(gpus)  # as a device plugin says; nobody has labelled the node
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


async def _end(running: asyncio.Task[None]) -> None:
    """Stop the kubelet, and raise the failure in it, if there was one."""
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
