"""`helm install` gives a working scheduler, webhook and agent: quick starts, rotation, failover, upgrade, uninstall.

One release on one real control plane with the real kube-scheduler and controllers; the pods of the chart run as
processes, with their own words, volumes and tokens. The tests build on each other, in the order of this file.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import yaml

from gangline_e2e import binaries, egress, volumes
from gangline_e2e.api import Api, connect
from gangline_e2e.chart import CHART, CRDS, RELEASE, Helm, definitions, one
from gangline_e2e.errors import NoControlPlane, Refused, WaitedTooLong
from gangline_e2e.gpu_crds import NODE_STATUSES, node_status
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.kubelet import Kubelet
from gangline_e2e.workloads import (
    GPU,
    Manifest,
    Manifests,
    gpu_pod,
    is_bound,
    is_pod_ready,
    is_running,
    priority_class,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{REGISTRATIONS}/mutatingwebhookconfigurations/gpu-scheduler-webhook"
OWN = f"/api/v1/namespaces/{RELEASE}"
SECRET = f"{OWN}/secrets/gpu-scheduler-webhook-cert"
TEAM = "team"
CUDA = "CUDA_VISIBLE_DEVICES"
ALLOCATED = "gpu.scheduling/allocated"
VALUES: Manifest = {"agent": {"simulate": "dgx-h100"}}
AUDITED = {"level": "Metadata", "userGroups": [f"system:serviceaccounts:{RELEASE}"], "omitStages": ["RequestReceived"]}

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True)
class Installed:
    """The release, and what stood on the cluster before it."""

    api: Api
    helm: Helm
    kubelet: Kubelet
    audit: Path
    before: set[str]

    async def pods(self, app: str) -> Manifests:
        """The pods of a component that are not on their way out."""
        found = await self.api.list(f"{OWN}/pods", labelSelector=f"app={app}")
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    async def apply(self, *files: str) -> None:
        """What `kubectl apply -n team -f` does with examples."""
        for file in files:
            for manifest in yaml.safe_load_all((EXAMPLES / file).read_text()):
                await self.api.apply(manifest)

    async def clear(self) -> None:
        """Delete the team's pods and wait until they are gone."""
        await self.api.delete_many([f"{self.api.pods}/{each['metadata']['name']}" for each in await self._team()])

        async def gone() -> bool:
            return not await self._team()

        await self.api.until(gone, "the pods are gone")

    async def _team(self) -> Manifests:
        return await self.api.list(self.api.pods)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installed(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Installed]:
    """The chart with default values but for the agents, which report hardware that is not there."""
    folder = tmp_path_factory.mktemp("installed")
    try:
        program, programs = binaries.find_helm(), binaries.find()
    except NoControlPlane as error:
        pytest.fail(str(error), pytrace=False)
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
        helm = Helm(program, folder / "helm", control_plane.kubeconfig)
        before = await api.inventory()
        await helm.install(RELEASE, VALUES, CHART, "--wait", "--timeout", "90s")
        yield Installed(api, helm, kubelet, folder / "audit.log", before)
        assert not running.done(), running
    assert "Traceback" not in kubelet.logs(), kubelet.logs()[-10_000:]


async def test_install_returns_when_every_pod_is_ready_and_no_hook_is_left(installed: Installed) -> None:
    counts = {name: len(await installed.pods(name)) for name in ("gpu-scheduler", "gpu-scheduler-webhook")}
    agents = await installed.pods("gpu-scheduler-agent")

    assert counts == {"gpu-scheduler": 2, "gpu-scheduler-webhook": 2}
    assert {each["spec"]["nodeName"] for each in agents} == {"node1", "node2", "node3", "node4"}
    for pod in await installed.api.list(f"{OWN}/pods"):
        if "deletionTimestamp" not in pod["metadata"]:
            assert is_pod_ready(pod), pod["metadata"]["name"]
            assert pod["status"]["containerStatuses"][0]["restartCount"] == 0, installed.kubelet.logs()[-5000:]
    accounts = {each["metadata"]["name"] for each in await installed.api.list(f"{OWN}/serviceaccounts")}
    assert accounts - {"default"} == {f"gpu-scheduler{suffix}" for suffix in ("", "-webhook", "-agent", "-certs")}


async def test_the_definitions_are_established(installed: Installed) -> None:
    for file in sorted((CHART / "crds").glob("*.yaml")):
        name = yaml.safe_load(file.read_text())["metadata"]["name"]
        conditions = (await installed.api.get(f"{CRDS}/{name}"))["status"]["conditions"]
        assert ("Established", "True") in [(each["type"], each["status"]) for each in conditions], name


async def test_the_agents_label_their_nodes(installed: Installed) -> None:
    product = {"labelSelector": "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"}

    async def labelled() -> bool:
        return len(await installed.api.list("/api/v1/nodes", **product)) == 4

    await installed.api.until(labelled, "four nodes have the labels of their GPUs")


async def test_an_agent_may_write_the_status_of_its_own_node_only(installed: Installed) -> None:
    statuses = await installed.api.wait_for(NODE_STATUSES, lambda each: "status" in each, 4)
    assert {each["metadata"]["name"]: each["status"]["total"] for each in statuses} == {
        f"node{i}": 8 for i in range(1, 5)
    }
    agent = next(each for each in await installed.pods("gpu-scheduler-agent") if each["spec"]["nodeName"] == "node1")

    async with connect(installed.kubelet.kubeconfig(agent["metadata"]["name"])) as api:
        await api.merge(f"{NODE_STATUSES}/node1", {"metadata": {"labels": {"mine": "yes"}}})
        with pytest.raises(Refused, match="the agent of node node1 may not write the GpuNodeStatus node2"):
            await api.merge(f"{NODE_STATUSES}/node2", {"metadata": {"labels": {"mine": "yes"}}})
        with pytest.raises(Refused, match="may not write the GpuNodeStatus node9"):
            await api.request("POST", NODE_STATUSES, node_status("node9"))


@pytest.mark.parametrize(
    ("node", "patch", "message"),
    [
        pytest.param("node1", {"metadata": {"labels": {"nvidia.com/gpu.family": "hopper"}}}, "", id="own label"),
        pytest.param(
            "node1", {"metadata": {"labels": {"zone": "a"}}}, "may set no labels but those of", id="other label"
        ),
        pytest.param("node1", {"spec": {"unschedulable": True}}, "may change only the labels", id="spec"),
        pytest.param("node1", {"metadata": {"annotations": {"a": "b"}}}, "may change only the labels", id="annotation"),
        pytest.param(
            "node2", {"metadata": {"labels": {"nvidia.com/gpu.count": "9"}}}, "may not change", id="other node"
        ),
    ],
)
async def test_an_agent_may_label_its_own_node_only(
    installed: Installed, node: str, patch: Manifest, message: str
) -> None:
    agent = next(each for each in await installed.pods("gpu-scheduler-agent") if each["spec"]["nodeName"] == "node1")
    refused = pytest.raises(Refused, match=message) if message else nullcontext()

    async with connect(installed.kubelet.kubeconfig(agent["metadata"]["name"])) as api:
        with refused:
            await api.merge(f"/api/v1/nodes/{node}", patch)


async def test_a_pod_with_a_claim_gets_linked_devices_and_sees_them(installed: Installed) -> None:
    await installed.apply("claim/claim.yaml", "claim/pod.yaml")

    (pod,) = await installed.api.wait_for(installed.api.pods, is_running, 1)

    assert _env(pod) == {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{ALLOCATED}']"}}
    ids = pod["metadata"]["annotations"][ALLOCATED]
    assert ids == "0,1"
    path = f"/apis/gpu.scheduling/v1/namespaces/{TEAM}/gpuclaims/two-linked"

    async def bound() -> Manifest | None:
        status: Manifest = (await installed.api.get(path)).get("status", {})
        return status if status.get("phase") == "Bound" else None

    status = await installed.api.until(bound, "the claim says what it got")
    assert status["allocated"] == f"{pod['spec']['nodeName']}:{ids}"
    leases = await installed.api.list(f"/apis/coordination.k8s.io/v1/namespaces/{RELEASE}/leases")
    assert {f"gpu-{pod['spec']['nodeName']}-{index}" for index in (0, 1)} <= {
        each["metadata"]["name"] for each in leases
    }
    await installed.clear()


async def test_the_five_pods_of_the_canonical_map_go_where_it_says(installed: Installed) -> None:
    await installed.apply("scheduling-map/pods.yaml")

    pods = await installed.api.wait_for(installed.api.pods, is_running, 5)

    places = {each["metadata"]["name"]: (each["spec"]["nodeName"], _env(each)) for each in pods}
    assert places == {
        "check-0": ("node1", "0,1"),
        "check-1": ("node2", "2"),
        "check-2": ("node3", "0,1,2"),
        "check-3": ("node4", "3"),
        "check-4": ("node4", "3"),
    }
    await installed.clear()


async def test_a_forged_allocation_is_refused(installed: Installed) -> None:
    await installed.api.create(_pod("forger"))

    with pytest.raises(Refused, match=r"only the scheduler sets gpu\.scheduling/allocated"):
        await installed.api.merge(f"{installed.api.pods}/forger", {"metadata": {"annotations": {ALLOCATED: "0"}}})

    await installed.clear()


async def test_a_pod_of_higher_priority_evicts_others(installed: Installed) -> None:
    await installed.api.create(priority_class("high", 1000))
    there = {"nodeSelector": {"kubernetes.io/hostname": "node1"}}
    await installed.api.create(_pod("low", gpus=8, **there))
    await installed.api.wait_for(installed.api.pods, is_running, 1)

    await installed.api.create(_pod("high", gpus=8, priorityClassName="high", **there))

    (high,) = await installed.api.wait_for(installed.api.pods, lambda each: _name(each) == "high" and is_bound(each), 1)
    assert high["spec"]["nodeName"] == "node1"
    assert [_name(each) for each in await installed.api.list(installed.api.pods)] == ["high"]
    await installed.clear()


async def test_a_volume_is_bound_with_its_pod(installed: Installed) -> None:
    await installed.api.create(volumes.class_without_provisioner("late", "WaitForFirstConsumer"))
    await installed.api.create(volumes.local_volume("disk", "node3", "late"))
    await installed.api.create(volumes.claim("data", "late", "1Gi"))

    await installed.api.create(_pod("reader", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]))

    (pod,) = await installed.api.wait_for(installed.api.pods, is_running, 1)
    assert pod["spec"]["nodeName"] == "node3"
    await installed.clear()


async def test_a_pod_that_finds_no_node_is_told_why(installed: Installed) -> None:
    await installed.api.create(_pod("greedy", gpus=9))

    async def told() -> str | None:
        events = await installed.api.list(f"/apis/events.k8s.io/v1/namespaces/{TEAM}/events")
        notes = [each["note"] for each in events if each["regarding"]["name"] == "greedy"]
        return notes[0] if notes else None

    note = await installed.api.until(told, "an event says why")
    (pod,) = await installed.api.wait_for(installed.api.pods, _is_unschedulable, 1)
    assert "0/5 nodes are available" in note
    assert "Insufficient nvidia.com/gpu" in pod["status"]["conditions"][0]["message"]
    await installed.clear()


async def test_every_alert_asks_for_a_metric_that_there_is(installed: Installed) -> None:
    rendered = await installed.helm.render({"metrics": {"prometheusRule": {"enabled": True}}})
    (group,) = one(rendered, "PrometheusRule", "gpu-scheduler")["spec"]["groups"]

    served = ""
    for pod in [*await installed.pods("gpu-scheduler"), *await installed.pods("gpu-scheduler-webhook")]:
        served += await _metrics(pod)
    asked = {name for rule in group["rules"] for name in re.findall(r"\b[a-z]+(?:_[a-z]+)+(?=[{)])", rule["expr"])}
    assert len(asked) == 5
    assert {name for name in asked if name not in served} == set()


async def test_when_the_leader_is_gone_another_one_schedules(installed: Installed) -> None:
    (leader,) = [each for each in await installed.pods("gpu-scheduler") if await _leads(each)]

    await installed.api.delete(f"{OWN}/pods/{_name(leader)}")
    await installed.api.create(_pod("next", gpus=1))

    await installed.api.wait_for(installed.api.pods, is_running, 1, timeout_s=60)
    await installed.clear()
    await _until_ready(installed, "gpu-scheduler", 2)


async def test_a_broken_certificate_is_renewed_and_trusted_while_the_webhook_runs(installed: Installed) -> None:
    api = installed.api
    old = (await api.get(SECRET))["data"]
    webhooks = {_name(each) for each in await installed.pods("gpu-scheduler-webhook")}
    job = (await api.get(f"/apis/batch/v1/namespaces/{RELEASE}/cronjobs/gpu-scheduler-certs"))["spec"]["jobTemplate"]

    await api.merge(SECRET, {"data": {"tls.crt": "broken=="}})
    metadata = {"name": "renew-now", "namespace": RELEASE}
    await api.create({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": job["spec"]})

    async def renewed() -> bool:
        with suppress(Refused):
            done = await api.get(f"/apis/batch/v1/namespaces/{RELEASE}/jobs/renew-now")
            return bool(done["status"].get("succeeded"))
        return False

    async def reloaded() -> bool:
        logs = [installed.kubelet.log(name) for name in webhooks]
        return all("certificate reloaded" in log for log in logs)

    await api.until(renewed, "there is a new certificate")
    await api.until(reloaded, "the webhooks have read it")
    new = (await api.get(SECRET))["data"]
    assert new["tls.crt"] != old["tls.crt"]
    for webhook in (await api.get(MUTATING))["webhooks"]:
        assert _pem(new["ca.crt"]) <= _pem(webhook["clientConfig"]["caBundle"])
    pod = await api.request("POST", api.pods, _claim_pod(), dryRun="All")
    assert _env(pod) is not None
    assert {_name(each) for each in await installed.pods("gpu-scheduler-webhook")} == webhooks
    await api.delete(f"/apis/batch/v1/namespaces/{RELEASE}/jobs/renew-now?propagationPolicy=Background")


async def test_an_upgrade_brings_a_profile_without_restarting_the_schedulers(installed: Installed) -> None:
    schedulers = {_name(each) for each in await installed.pods("gpu-scheduler")}
    before = [each["clientConfig"]["caBundle"] for each in (await installed.api.get(MUTATING))["webhooks"]]
    profiles = yaml.safe_load((CHART / "values.yaml").read_text())["profiles"]

    values = {**VALUES, "profiles": [*profiles, {"schedulerName": "spread"}]}
    await installed.helm.upgrade(RELEASE, values, CHART, "--wait", "--timeout", "120s")
    await installed.api.create(gpu_pod("spread", scheduler_name="spread"))

    await installed.api.wait_for(installed.api.pods, is_running, 1)
    after = [each["clientConfig"]["caBundle"] for each in (await installed.api.get(MUTATING))["webhooks"]]
    assert after == before
    assert {_name(each) for each in await installed.pods("gpu-scheduler")} == schedulers
    await installed.clear()


async def test_no_component_was_ever_refused_what_it_asked_for(installed: Installed) -> None:
    lines = installed.audit.read_text().splitlines()

    requests = [json.loads(line) for line in lines]
    users = {each["user"]["username"].rpartition(":")[2] for each in requests}
    assert users == {f"gpu-scheduler{suffix}" for suffix in ("", "-webhook", "-agent", "-certs", "-certs-first")}
    denied = {
        (each["user"]["username"], each["verb"], each["requestURI"].partition("?")[0])
        for each in requests
        if each.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
    }
    assert denied == set()


async def test_uninstall_leaves_nothing_but_the_definitions_and_their_objects(installed: Installed) -> None:
    await installed.api.delete(f"/apis/gpu.scheduling/v1/namespaces/{TEAM}/gpuclaims/two-linked")
    await installed.helm.uninstall(RELEASE)
    left: set[str] = set()

    async def gone() -> bool:
        here = await installed.api.inventory() - installed.before - definitions()
        left.clear()
        left.update(path for path in here if not _is_of_the_tests(path))
        return not left

    with suppress(WaitedTooLong):
        await installed.api.until(gone, "all of the release is gone")
    assert left == set()
    assert definitions() <= await installed.api.inventory()


def _options(folder: Path, socket: Path) -> Options:
    """An API server that calls webhooks through the proxy, and writes down what the chart's accounts ask for."""
    policy = folder / "audit.yaml"
    rules = [AUDITED, {"level": "None"}]
    policy.write_text(yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    args = [
        f"--egress-selector-config-file={egress.write_configuration(folder / 'egress.yaml', socket)}",
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder / 'audit.log'}",
    ]
    return Options(kwok=False, controller_manager=True, apiserver_args=tuple(args))


async def _prepare(api: Api) -> None:
    """Namespaces, four nodes with GPUs and one without."""
    for name in (RELEASE, TEAM):
        await api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await api.create_many(_node(f"node{index}", gpus=8) for index in range(1, 5))
    await api.create(_node("control", gpus=0))

    async def accounts() -> bool:
        return all([await api.list(f"/api/v1/namespaces/{name}/serviceaccounts") for name in (RELEASE, TEAM)])

    await api.until(accounts, "the namespaces have service accounts")


def _node(name: str, gpus: int) -> Manifest:
    resources = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name}
    if gpus:
        resources[GPU] = str(gpus)
        labels["nvidia.com/gpu.present"] = "true"
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": resources, "allocatable": resources, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def _pod(name: str, gpus: int = 0, **spec: object) -> Manifest:
    return gpu_pod(name, gpus=gpus, scheduler_name="gpu-scheduler", spec=spec)


def _claim_pod() -> Manifest:
    pod = _pod("probe")
    pod["metadata"]["annotations"]["gpu.scheduling/claim"] = "two-linked"
    return pod


def _is_of_the_tests(path: str) -> bool:
    made = ("/priorityclasses/high", "/storageclasses/late", "/persistentvolumes/disk")
    return f"/namespaces/{TEAM}/" in path or path.endswith(made) or path.startswith(NODE_STATUSES)


def _name(manifest: Manifest) -> str:
    name: str = manifest["metadata"]["name"]
    return name


def _env(pod: Manifest) -> object:
    """What CUDA_VISIBLE_DEVICES is, or is read from; None if nothing was injected."""
    variables = pod["spec"]["containers"][0].get("env", [])
    return next((each.get("value") or each.get("valueFrom") for each in variables if each["name"] == CUDA), None)


def _is_unschedulable(pod: Manifest) -> bool:
    return any(each["reason"] == "Unschedulable" for each in pod["status"].get("conditions", []))


def _pem(text: str) -> set[str]:
    """The certificates in base64 of PEM."""
    return set(re.findall(r"-----BEGIN.*?-----END CERTIFICATE-----", base64.b64decode(text).decode(), re.DOTALL))


async def _metrics(pod: Manifest) -> str:
    async with aiohttp.request("GET", f"http://{pod['status']['podIP']}:8080/metrics") as answer:
        return await answer.text()


async def _leads(pod: Manifest) -> bool:
    return re.search(r"^leader_election_master_status\{.*\} 1\.0$", await _metrics(pod), re.MULTILINE) is not None


async def _until_ready(installed: Installed, app: str, count: int) -> None:
    async def ready() -> bool:
        return sum(is_pod_ready(each) for each in await installed.pods(app)) == count

    await installed.api.until(ready, f"{count} pods of {app} are ready")


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
