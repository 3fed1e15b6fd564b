"""`helm install` gives a working scheduler, webhook and agent: quick starts, rotation, failover, upgrade, uninstall.

One release on one real control plane with the real kube-scheduler and controllers; the pods of the chart run as
processes, with their own words, volumes and tokens. The tests build on each other, in the order of this file.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
import yaml

from gangline.groups import WATCHES
from gangline.kube.resources import DOMAIN_CONFIGS
from gangline_e2e import gangs, quick_start, volumes
from gangline_e2e.api import connect
from gangline_e2e.chart import CHART, CRDS, RELEASE, definitions, one
from gangline_e2e.egress import container_port
from gangline_e2e.errors import Refused, WaitedTooLong
from gangline_e2e.gpu_crds import NODE_STATUSES, node_status
from gangline_e2e.leaf_spine import LEAF, leaf_spine
from gangline_e2e.release import EXAMPLES, GPU_NODES, OWN, TEAM, VALUES, Release, release
from gangline_e2e.workloads import (
    Manifest,
    cuda_devices,
    gpu_pod,
    is_bound,
    is_pod_ready,
    is_running,
    priority_class,
)

REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{REGISTRATIONS}/mutatingwebhookconfigurations/gpu-scheduler-webhook"
SECRET = f"{OWN}/secrets/gpu-scheduler-webhook-cert"
ALLOCATED = "gpu.scheduling/allocated"
POD_GROUPS = {"upstream": "scheduling.k8s.io/v1alpha2", "scheduler-plugins": "scheduling.x-k8s.io/v1alpha1"}
"""The groups whose status is ours to write."""
DOMAINS = "/apis/topology.scheduler/v1alpha1/namespaces/kube-system/domainconfigs"
HISTORY = f"{OWN}/configmaps/gangline-domain-history"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(helm_program: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Release]:
    """The release that all tests share; none of its pods may have printed a traceback at the end."""
    async with release(tmp_path_factory.mktemp("release"), helm_program) as running:
        yield running
    logs = running.kubelet.logs()
    assert "Traceback" not in logs, logs[-10_000:]


@pytest_asyncio.fixture(loop_scope="module")
async def installed(whole: Release) -> AsyncIterator[Release]:
    """The release; the team's pods are deleted after the test."""
    yield whole
    await whole.clear()


@pytest_asyncio.fixture(loop_scope="module")
async def leaves(installed: Release, tmp_path: Path) -> AsyncIterator[dict[str, set[str]]]:
    """The nodes of four more leaves, by leaf."""
    async with leaf_spine(installed, tmp_path) as leaves:
        await _until_scheduler_knows(installed, sorted(set().union(*leaves.values())))
        yield leaves


async def test_install_returns_when_every_pod_is_ready(installed: Release) -> None:
    await installed.until_ready("gpu-scheduler-agent", 5)  # for helm, one agent may be missing
    replicas = [*await installed.pods("gpu-scheduler"), *await installed.pods("gpu-scheduler-webhook")]
    agents = await installed.pods("gpu-scheduler-agent")

    assert len(replicas) == 4
    assert {each["spec"]["nodeName"] for each in agents} == {*GPU_NODES, "control"}
    for pod in [*replicas, *agents]:
        assert is_pod_ready(pod), pod["metadata"]["name"]
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0, installed.kubelet.logs()[-5000:]
    reported = {_name(each) for each in await installed.api.list(NODE_STATUSES) if "devices" in each.get("status", {})}
    assert reported == set(GPU_NODES)


@pytest.mark.parametrize("app", ["gpu-scheduler", "gpu-scheduler-webhook", "gpu-scheduler-agent"])
async def test_every_pod_answers_its_probes(installed: Release, app: str) -> None:
    for pod in await installed.pods(app):
        (container,) = pod["spec"]["containers"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[probe]["httpGet"]
            url = f"http://{pod['status']['podIP']}:{container_port(pod, asked['port'])}{asked['path']}"
            async with aiohttp.request("GET", url) as answer:
                assert answer.status == 200, url


async def test_install_leaves_no_hook_behind(installed: Release) -> None:
    jobs = await installed.api.list(f"/apis/batch/v1/namespaces/{RELEASE}/jobs")
    # The CronJob makes a Job once a day, which may be now.
    assert [job for job in jobs if "ownerReferences" not in job["metadata"]] == []
    accounts = {each["metadata"]["name"] for each in await installed.api.list(f"{OWN}/serviceaccounts")}
    assert accounts - {"default"} == {f"gpu-scheduler{suffix}" for suffix in ("", "-webhook", "-agent", "-certs")}


async def test_the_definitions_are_established(installed: Release) -> None:
    for file in sorted((CHART / "crds").glob("*.yaml")):
        name = yaml.safe_load(file.read_text())["metadata"]["name"]
        conditions = (await installed.api.get(f"{CRDS}/{name}"))["status"]["conditions"]
        assert ("Established", "True") in [(each["type"], each["status"]) for each in conditions], name


async def test_the_agents_label_their_nodes(installed: Release) -> None:
    product = {"labelSelector": "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3"}

    async def labelled() -> bool:
        return len(await installed.api.list("/api/v1/nodes", **product)) == 4

    await installed.api.until(labelled, "four nodes have the labels of their GPUs")


async def test_an_agent_may_write_the_status_of_its_own_node_only(installed: Release) -> None:
    statuses = await installed.api.wait_for(NODE_STATUSES, lambda each: "status" in each, 4)
    assert {each["metadata"]["name"]: each["status"]["total"] for each in statuses} == dict.fromkeys(GPU_NODES, 8)

    async with connect(await installed.agent("node1")) as api:
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
    installed: Release, node: str, patch: Manifest, message: str
) -> None:
    refused = pytest.raises(Refused, match=message) if message else nullcontext()

    async with connect(await installed.agent("node1")) as api:
        with refused:
            await api.merge(f"/api/v1/nodes/{node}", patch)


async def test_the_first_steps_work_beside_the_release_with_a_claim_and_a_limit(installed: Release) -> None:
    api = installed.api
    await api.create(quick_start.CLAIM)
    await _until_told(installed, quick_start.pod("cuda-a"), "0")
    await api.create(quick_start.pod("cuda-a"))
    (first,) = await api.wait_for(f"{OWN}/pods", lambda each: _name(each) == "cuda-a" and is_running(each), 1)
    node = first["spec"]["nodeName"]
    await api.create(quick_start.pod("cuda-b", node))
    (second,) = await api.wait_for(f"{OWN}/pods", lambda each: _name(each) == "cuda-b" and is_running(each), 1)

    ids = [pod["metadata"]["annotations"][ALLOCATED] for pod in (first, second)]
    assert len(set(ids)) == 2, "each has a device of its own"
    for pod, uid in zip((first, second), ids, strict=True):
        await _until_said(installed, _name(pod), "CVD=0 order=PCI_BUS_ID\n")
        assert pod["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}
        lease = await api.get(f"/apis/coordination.k8s.io/v1/namespaces/{RELEASE}/leases/gpu-{node}-{uid}")
        assert lease["spec"]["holderIdentity"] == pod["metadata"]["uid"]
    claims = f"/apis/gpu.scheduling/v1/namespaces/{RELEASE}/gpuclaims"
    await api.wait_for(claims, lambda each: each.get("status", {}).get("phase") == "Bound", 1)
    heads, rows = await api.table(claims)
    assert [heads[:4], heads[-1]] == [["NAME", "REQ", "POLICY", "TOPOLOGY"], "AGE"]
    assert dict(zip(heads, rows[0], strict=True))["ALLOCATED"] in [f"{node}:{uid}" for uid in ids]
    heads, rows = await api.table(NODE_STATUSES)
    shown = {row[0]: dict(zip(heads, row, strict=True)) for row in rows}
    assert {name: (each["NODE"], each["DEVICES"]) for name, each in shown.items()} == {
        name: (name, "8") for name in GPU_NODES
    }
    for name in ("cuda-a", "cuda-b"):
        await api.delete(f"{OWN}/pods/{name}")
    await api.delete(f"{claims}/single-gpu")

    async def gone() -> bool:
        return not {"cuda-a", "cuda-b"} & {_name(each) for each in await api.list(f"{OWN}/pods")}

    await api.until(gone, "both pods are gone")


async def test_a_claim_and_a_limit_that_disagree_are_refused_beside_the_release(installed: Release) -> None:
    await installed.api.create({**quick_start.CLAIM, "spec": {"devices": {"count": 2}}})

    async def refused() -> bool:
        try:
            await installed.api.request("POST", f"{OWN}/pods", quick_start.pod("cuda-a"), dryRun="All")
        except Refused as error:
            said = r"GpuClaim single-gpu gives the pod 2 GPUs, and its requests for .* are 1"
            return re.search(said, error.message) is not None
        return False

    await installed.api.until(refused, "the webhook has seen the claim and refuses the pod")
    await installed.api.delete(f"/apis/gpu.scheduling/v1/namespaces/{RELEASE}/gpuclaims/single-gpu")


async def test_the_configuration_of_leaves_is_found_in_kube_system_and_told_of_in_default(installed: Release) -> None:
    for namespace in ("kube-system", "default"):
        metadata = {"name": "topology-scheduler-config", "namespace": namespace}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": "a: ["}}
        await installed.api.create(made)
    await installed.api.create(gpu_pod("leaf", gpus=1, scheduler_name="topology-aware-scheduler"))
    await installed.api.wait_for(installed.api.pods, is_running, 1)

    for namespace, note in (
        ("kube-system", "ConfigMap kube-system/topology-scheduler-config: "),
        ("default", "it does not count in the namespace default, only in gpu-scheduler and kube-system"),
    ):
        path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
        told = await installed.api.wait_for(
            path, lambda each: each["regarding"].get("name") == "topology-scheduler-config", 1
        )
        assert told[0]["note"].startswith(note)
        await installed.api.delete(f"/api/v1/namespaces/{namespace}/configmaps/topology-scheduler-config")


async def test_a_pod_with_a_claim_gets_linked_devices_and_sees_them(installed: Release) -> None:
    await installed.apply("claim/claim.yaml")
    await _until_told(installed, _claim_pod(), "0,1")
    await installed.apply("claim/pod.yaml")

    (pod,) = await installed.api.wait_for(installed.api.pods, is_running, 1)

    assert cuda_devices(pod) == "0,1"
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


async def test_the_five_pods_of_the_canonical_map_go_where_it_says(installed: Release) -> None:
    allowed = {"metadata": {"annotations": {"gangline.dev/allow": "scheduling-map"}}}
    await installed.api.merge(f"/api/v1/namespaces/{installed.api.namespace}", allowed)
    await installed.apply("scheduling-map/pods.yaml")

    pods = await installed.api.wait_for(installed.api.pods, is_running, 5)

    places = {each["metadata"]["name"]: (each["spec"]["nodeName"], cuda_devices(each)) for each in pods}
    assert places == {
        "check-0": ("node1", "0,1"),
        "check-1": ("node2", "2"),
        "check-2": ("node3", "0,1,2"),
        "check-3": ("node4", "3"),
        "check-4": ("node4", "3"),
    }


async def test_a_leaf_spine_job_takes_one_complete_leaf(installed: Release, leaves: dict[str, set[str]]) -> None:
    domain = await installed.api.create(
        {
            "apiVersion": DOMAIN_CONFIGS.api_version,
            "kind": DOMAIN_CONFIGS.kind,
            "metadata": {"name": "leaf-1", "namespace": "kube-system"},
            "spec": {"type": "leaf"},
        }
    )
    await _apply_job(installed)

    pods = await installed.api.wait_for(installed.api.pods, is_running, 4)

    assert {each["spec"]["nodeName"] for each in pods} == leaves["leaf-1"]
    for pod in pods:
        assert pod["metadata"]["annotations"][ALLOCATED] == "0,1,2,3"
        assert cuda_devices(pod) == "0,1,2,3"

    async def remembered() -> bool:
        with suppress(Refused):
            return "topology-aware-scheduler" in (await installed.api.get(HISTORY))["data"]
        return False

    await installed.api.until(remembered, "the scheduler has written down how the leaf fares", timeout_s=90)

    path = f"{DOMAINS}/{_name(domain)}"

    async def told() -> bool:
        status = (await installed.api.get(path)).get("status", {})
        return (status.get("currentNodes"), status.get("allocatedGPUs")) == (4, 16)

    await installed.api.until(told, "the status of the leaf says what is in use of it", timeout_s=90)
    await installed.api.delete(path)


async def test_a_leaf_spine_job_leaves_out_a_leaf_that_is_in_use(
    installed: Release, leaves: dict[str, set[str]]
) -> None:
    there = {"nodeSelector": {LEAF: "leaf-1"}, "tolerations": [{"operator": "Exists"}]}
    await installed.api.create(_pod("single", gpus=1, **there))
    await installed.api.wait_for(installed.api.pods, is_running, 1)

    await _apply_job(installed)

    pods = await installed.api.wait_for(installed.api.pods, is_running, 5)
    nodes = {each["spec"]["nodeName"] for each in pods if _name(each) != "single"}
    assert nodes in [leaves[leaf] for leaf in leaves if leaf != "leaf-1"]


async def test_gangs_of_every_dialect_are_placed_and_pod_groups_say_so(installed: Release) -> None:
    made = [dialect(dialect.__name__.replace("_", "-"), 3, gangs.ANYWHERE, 1) for dialect in gangs.DIALECTS]

    await installed.api.create_many(each for gang in made for each in gang.objects)
    await installed.api.create_many(pod for gang in made for pod in gang.pods)

    await installed.api.wait_for(installed.api.pods, is_running, sum(gang.size for gang in made), timeout_s=60)
    for name, version in POD_GROUPS.items():
        path = f"/apis/{version}/namespaces/{TEAM}/podgroups"
        (group,) = await installed.api.wait_for(path, gangs.is_scheduled, 1)
        assert _name(group) == name


async def test_a_forged_allocation_is_refused(installed: Release) -> None:
    await installed.api.create(_pod("forger"))

    with pytest.raises(Refused, match=r"only the scheduler sets gpu\.scheduling/allocated"):
        await installed.api.merge(f"{installed.api.pods}/forger", {"metadata": {"annotations": {ALLOCATED: "0"}}})


async def test_a_pod_of_higher_priority_evicts_others(installed: Release) -> None:
    await installed.api.create(priority_class("high", 1000))
    there = {"nodeSelector": {"kubernetes.io/hostname": "node1"}}
    await installed.api.create(_pod("low", gpus=8, **there))
    await installed.api.wait_for(installed.api.pods, is_running, 1)

    await installed.api.create(_pod("high", gpus=8, priorityClassName="high", **there))

    (high,) = await installed.api.wait_for(installed.api.pods, lambda each: _name(each) == "high" and is_bound(each), 1)
    assert high["spec"]["nodeName"] == "node1"
    assert [_name(each) for each in await installed.api.list(installed.api.pods)] == ["high"]


async def test_a_volume_is_bound_with_its_pod(installed: Release) -> None:
    await installed.api.create(volumes.class_without_provisioner("late", "WaitForFirstConsumer"))
    await installed.api.create(volumes.local_volume("disk", "node3", "late"))
    await installed.api.create(volumes.claim("data", "late", "1Gi"))

    await installed.api.create(_pod("reader", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]))

    (pod,) = await installed.api.wait_for(installed.api.pods, is_running, 1)
    assert pod["spec"]["nodeName"] == "node3"


async def test_a_pod_that_finds_no_node_is_told_why(installed: Release) -> None:
    await installed.api.create(_pod("greedy", gpus=9))

    async def told() -> set[str]:
        """What the condition and an event say."""
        pod = await installed.api.get(f"{installed.api.pods}/greedy")
        conditions = pod["status"].get("conditions", [])
        messages = {each.get("message") for each in conditions if each["type"] == "PodScheduled"}
        events = await installed.api.list(f"/apis/events.k8s.io/v1/namespaces/{TEAM}/events")
        return messages & {each["note"] for each in events if each["regarding"]["name"] == "greedy"}

    (message,) = await installed.api.until(told, "the condition and an event say why")
    assert "0/5 nodes are available" in message


async def test_every_alert_asks_for_a_metric_that_there_is(installed: Release) -> None:
    rendered = await installed.helm.render({"metrics": {"prometheusRule": {"enabled": True}}})
    (group,) = one(rendered, "PrometheusRule", "gpu-scheduler")["spec"]["groups"]

    served = ""
    for pod in [*await installed.pods("gpu-scheduler"), *await installed.pods("gpu-scheduler-webhook")]:
        served += await installed.metrics(pod)
    asked = {name for rule in group["rules"] for name in re.findall(r"\b[a-z]+(?:_[a-z]+)+(?=[{)])", rule["expr"])}
    assert len(asked) == 5
    assert {name for name in asked if name not in served} == set()


async def test_when_the_leader_is_gone_another_one_schedules(installed: Release) -> None:
    async def leader() -> str | None:
        leads = [_name(each) for each in await installed.pods("gpu-scheduler") if await installed.leads(each)]
        return leads[0] if len(leads) == 1 else None

    await installed.api.delete(f"{OWN}/pods/{await installed.api.until(leader, 'there is one leader')}")
    await installed.api.create(_pod("next", gpus=1))

    await installed.api.wait_for(installed.api.pods, is_running, 1, timeout_s=60)
    await installed.until_ready("gpu-scheduler", 2)


async def test_a_broken_certificate_is_renewed_and_trusted_while_the_webhook_runs(installed: Release) -> None:
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
        assert _certificates(new["ca.crt"]) <= _certificates(webhook["clientConfig"]["caBundle"])
    await _until_told(installed, _claim_pod(), "0,1")
    assert {_name(each) for each in await installed.pods("gpu-scheduler-webhook")} == webhooks
    await api.delete(f"/apis/batch/v1/namespaces/{RELEASE}/jobs/renew-now?propagationPolicy=Background")


async def test_an_upgrade_brings_a_profile_without_restarting_the_schedulers(installed: Release) -> None:
    schedulers = {_name(each) for each in await installed.pods("gpu-scheduler")}
    before = [each["clientConfig"]["caBundle"] for each in (await installed.api.get(MUTATING))["webhooks"]]

    profiles = yaml.safe_load((CHART / "values.yaml").read_text())["profiles"]
    values = {**VALUES, "profiles": [*profiles, {"schedulerName": "spread"}]}
    await installed.helm.upgrade(RELEASE, values, CHART, "--wait", "--timeout", "300s")
    await installed.api.create(gpu_pod("spread", scheduler_name="spread"))

    await installed.api.wait_for(installed.api.pods, is_running, 1)
    after = [each["clientConfig"]["caBundle"] for each in (await installed.api.get(MUTATING))["webhooks"]]
    assert after == before
    assert {_name(each) for each in await installed.pods("gpu-scheduler")} == schedulers


async def test_no_component_was_ever_refused_what_it_asked_for(installed: Release) -> None:
    requests = installed.requests()

    users = {each["user"]["username"].rpartition(":")[2] for each in requests}
    assert users == {f"gpu-scheduler{suffix}" for suffix in ("", "-webhook", "-agent", "-certs", "-certs-first")}
    denied = {
        (each["user"]["username"], each["verb"], each["requestURI"].partition("?")[0])
        for each in requests
        if each.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid"
    }
    assert denied == set()
    references = [(each["verb"], each["objectRef"]) for each in requests if "objectRef" in each]
    asked = {f"{verb} {each.get('resource')}.{each.get('apiGroup', '')}" for verb, each in references}
    assert asked >= {"patch podgroups.scheduling.k8s.io", "patch podgroups.scheduling.x-k8s.io", "patch configmaps."}
    assert "patch domainconfigs.topology.scheduler" in asked
    assert asked >= {f"list {resource.plural}.{resource.group}" for resource in (*WATCHES, DOMAIN_CONFIGS)}


async def test_uninstall_leaves_nothing_but_the_definitions_and_their_objects(installed: Release) -> None:
    await installed.api.delete(f"/apis/gpu.scheduling/v1/namespaces/{TEAM}/gpuclaims/two-linked")
    await installed.helm.uninstall(RELEASE)
    left: set[str] = set()

    async def gone() -> bool:
        here = await installed.api.inventory() - installed.before - definitions()
        left.clear()
        left.update(path for path in here if not _is_of_the_tests(path))
        return not left

    with suppress(WaitedTooLong):
        await installed.api.until(gone, "all of the release is gone", timeout_s=90)
    assert left == set()
    assert definitions() <= await installed.api.inventory()


def _pod(name: str, gpus: int = 0, **spec: object) -> Manifest:
    return gpu_pod(name, gpus=gpus, scheduler_name="gpu-scheduler", spec=spec)


async def _until_said(installed: Release, pod: str, what: str) -> None:
    """Wait until a container of the release's namespace has printed something."""

    async def said() -> bool:
        return what in installed.kubelet.log(pod)

    await installed.api.until(said, f"{pod} prints {what!r}")


async def _until_told(installed: Release, pod: Manifest, devices: str) -> None:
    """Wait until the webhook, which hears of claims by a watch, would tell a pod of these devices."""
    path = f"/api/v1/namespaces/{pod['metadata'].get('namespace', TEAM)}/pods"

    async def told() -> bool:
        return cuda_devices(await installed.api.request("POST", path, pod, dryRun="All")) == devices

    await installed.api.until(told, f"the webhook tells a pod of its devices: {devices}")


async def _until_scheduler_knows(installed: Release, nodes: list[str]) -> None:
    """Wait until the scheduler knows nodes and what is reported of them: a pod on each gets a device."""
    everywhere = [{"operator": "Exists"}]
    await installed.api.create_many(
        _pod(f"on-{node}", gpus=1, nodeSelector={"kubernetes.io/hostname": node}, tolerations=everywhere)
        for node in nodes
    )
    has_device = partial(_has_annotation, key=ALLOCATED)
    await installed.api.wait_for(installed.api.pods, has_device, len(nodes), timeout_s=60)
    await installed.clear()


def _has_annotation(pod: Manifest, key: str) -> bool:
    return key in pod["metadata"].get("annotations", {})


async def _apply_job(installed: Release) -> None:
    """Apply the Job of the leaves, and its claim first, until the webhook knows the claim."""
    claim, job = yaml.safe_load_all((EXAMPLES / "leaf-spine/job.yaml").read_text())
    await installed.api.apply(claim)
    await _until_told(installed, _claim_pod("four-gpus"), "0,1,2,3")
    await installed.api.apply(job)


def _claim_pod(claim: str = "two-linked") -> Manifest:
    pod = _pod("probe")
    pod["metadata"]["annotations"]["gpu.scheduling/claim"] = claim
    return pod


def _is_of_the_tests(path: str) -> bool:
    made = ("/priorityclasses/high", "/storageclasses/late", "/persistentvolumes/disk")
    return f"/namespaces/{TEAM}/" in path or path.endswith(made) or path.startswith(NODE_STATUSES)


def _name(manifest: Manifest) -> str:
    name: str = manifest["metadata"]["name"]
    return name


def _certificates(text: str) -> set[str]:
    """The certificates in base64 of PEM."""
    return set(re.findall(r"-----BEGIN.*?-----END CERTIFICATE-----", base64.b64decode(text).decode(), re.DOTALL))
