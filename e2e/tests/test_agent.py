"""The agent on a real API server: simulated fleets, a machine without GPUs, and who may write what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import yaml

from gangline_e2e import processes
from gangline_e2e.api import Api, connect
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import NODE_STATUSES, agent_policies, install, node_status
from gangline_e2e.harness import ADMINS
from gangline_e2e.ports import free_port
from gangline_e2e.processes import Process
from gangline_e2e.sources import Cluster
from gangline_e2e.workloads import Manifest, binding, gpu_pod, kwok_node

NODES = "/api/v1/nodes"
FLEET = "example.com/fleet"
AGENT = "gpu-scheduler-agent"
RESOURCE_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "gpu.gangline.dev"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
RIGHTS = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": ["gpu.scheduling"], "resources": ["gpunodestatuses"], "verbs": ["get", "create", "update", "patch"]},
    {"apiGroups": ["gpu.scheduling"], "resources": ["gpunodestatuses/status"], "verbs": ["get", "update", "patch"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["get", "list", "watch", "create", "patch", "delete"],
    },
]

StartAgent = Callable[..., Process]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def api(cluster: Api) -> AsyncIterator[Api]:
    """A cluster that serves the custom resources."""
    await install(cluster)
    yield cluster
    mine = [
        each for each in await cluster.list(NODE_STATUSES) if each["metadata"]["name"].startswith(cluster.namespace)
    ]
    await cluster.delete_many(f"{NODE_STATUSES}/{each['metadata']['name']}" for each in mine)


@pytest.fixture
async def policies(api: Api) -> AsyncIterator[None]:
    """The policies that hold an agent to its node. At the end the API server has forgotten them; otherwise the next
    test would take them for its own.
    """
    made = await api.create_many(agent_policies())
    yield
    await api.delete_many(f"{ADMISSION}/{PLURALS[each['kind']]}/{each['metadata']['name']}" for each in made)
    for path, manifest in held(f"{api.namespace}-0"):
        await api.until(partial(is_free, api, path, manifest), f"the policy about {path} is gone")


def held(node: str) -> Iterator[tuple[str, Manifest]]:
    """The objects about a node that only the agent of the node may create, and where."""
    yield NODE_STATUSES, node_status(node)
    yield RESOURCE_SLICES, slice_of(node, DRIVER)


async def is_free(api: Api, path: str, manifest: Manifest) -> bool:
    """Whether no policy keeps an agent without a node from creating an object."""
    agent = {"Impersonate-User": f"system:serviceaccount:{api.namespace}:{AGENT}", "Impersonate-Group": ADMINS}
    try:
        await api.request("POST", path, manifest, headers=agent, dryRun="All")
    except Refused as error:
        if "ValidatingAdmissionPolicy" in error.message:
            return False
        if error.status != 409:  # the object is there
            raise
    return True


async def add_fleet(api: Api, count: int) -> str:
    """Nodes of this test; the selector for them."""
    names = [f"{api.namespace}-{index}" for index in range(count)]
    await api.create_many(kwok_node(name, labels={FLEET: api.namespace}) for name in names)
    return f"{FLEET}={api.namespace}"


def reports(total: int, api: Api) -> Callable[[Manifest], bool]:
    """Whether a GpuNodeStatus of this test says so many devices."""

    def holds(status: Manifest) -> bool:
        mine = status["metadata"]["name"].startswith(api.namespace)
        return mine and status.get("status", {}).get("total") == total

    return holds


def is_of_h100(node: Manifest, api: Api) -> bool:
    """Whether a node of this test has the label of its GPUs' product, which the agent writes after the report."""
    labels = node["metadata"].get("labels", {})
    return labels.get(FLEET) == api.namespace and labels.get("nvidia.com/gpu.product") == "NVIDIA-H100-80GB-HBM3"


def slice_of(node: str, driver: str) -> Manifest:
    """A ResourceSlice without devices."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def health(status: Manifest) -> list[str]:
    return [device["health"] for device in status["status"]["devices"]]


def users(status: Manifest) -> list[list[str]]:
    return [device.get("inUseBy", []) for device in status.get("status", {}).get("devices", [])]


async def test_one_process_reports_for_200_nodes_and_again_when_it_restarts(
    api: Api, control_plane: Cluster, start_agent: StartAgent
) -> None:
    words = ("--simulate", "dgx-h100", "--nodes", await add_fleet(api, 200))
    agent = start_agent(control_plane.kubeconfig, *words)
    first = await api.wait_for(NODE_STATUSES, reports(8, api), 200, timeout_s=60)
    processes.stop([agent], 10.0)
    start_agent(control_plane.kubeconfig, *words)
    beats = {each["metadata"]["name"]: each["status"]["heartbeatTime"] for each in first}
    later = await api.wait_for(
        NODE_STATUSES,
        lambda each: reports(8, api)(each) and each["status"]["heartbeatTime"] > beats[each["metadata"]["name"]],
        200,
        timeout_s=60,
    )

    assert {each["metadata"]["uid"] for each in first} == {each["metadata"]["uid"] for each in later}
    assert _devices(first) == _devices(later)
    assert all(health(each) == ["Healthy"] * 8 for each in later)
    nodes = await api.wait_for(NODES, lambda node: is_of_h100(node, api), 200)
    owners = {owner["uid"] for each in later for owner in each["metadata"]["ownerReferences"]}
    assert {node["metadata"]["uid"] for node in nodes} == owners
    assert len(owners) == 200


async def test_statuses_come_and_go_with_their_nodes_and_gpus_fall_ill_by_the_file(
    api: Api, control_plane: Cluster, start_agent: StartAgent, tmp_path: Path
) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text("hardware: pcie-4\n")
    start_agent(control_plane.kubeconfig, "--simulate", str(file), "--nodes", await add_fleet(api, 4))
    await api.wait_for(NODE_STATUSES, reports(4, api), 4)

    new = file.with_suffix(".new")
    new.write_text(yaml.safe_dump({"hardware": "pcie-4", "unhealthy": {f"{api.namespace}-1": {2: "XID 79"}}}))
    new.replace(file)
    (sick,) = await api.wait_for(NODE_STATUSES, lambda each: reports(4, api)(each) and "Unhealthy" in health(each), 1)
    await api.delete_many(f"{NODES}/{api.namespace}-{index}" for index in (0, 3))

    async def left() -> bool:
        names = {each["metadata"]["name"] for each in await api.list(NODE_STATUSES)}
        return {name for name in names if name.startswith(api.namespace)} == {f"{api.namespace}-{i}" for i in (1, 2)}

    await api.until(left, "the statuses of the deleted nodes are gone")
    assert sick["metadata"]["name"] == f"{api.namespace}-1"
    assert health(sick) == ["Healthy", "Healthy", "Unhealthy", "Healthy"]
    assert sick["status"]["devices"][2]["reason"] == "XID 79"


async def test_an_agent_is_ready_once_the_api_has_its_report(
    api: Api, control_plane: Cluster, start_agent: StartAgent
) -> None:
    address = f"127.0.0.1:{free_port()}"
    words = ("--simulate", "pcie-4", "--nodes", await add_fleet(api, 2))
    start_agent(control_plane.kubeconfig, *words, f"--listen={address}")

    async def ready() -> bool:
        try:
            async with aiohttp.request("GET", f"http://{address}/ready") as answer:
                return await answer.json() == {"status": "ready", "service": "gpu-scheduler"}
        except aiohttp.ClientError:
            return False

    await api.until(ready, "the agent is ready")
    assert sum(reports(4, api)(each) for each in await api.list(NODE_STATUSES)) == 2
    async with aiohttp.request("GET", f"http://{address}/health") as answer:
        assert await answer.json() == {"status": "healthy", "service": "gpu-scheduler"}


async def test_a_status_tells_which_pods_have_which_devices(
    api: Api, control_plane: Cluster, start_agent: StartAgent
) -> None:
    await add_fleet(api, 1)
    node = f"{api.namespace}-0"
    pod = await api.create(gpu_pod("user", scheduler_name="nobody"))
    await api.request("POST", f"{api.pods}/user/binding", binding("user", node, {"gpu.scheduling/allocated": "1,2"}))

    start_agent(control_plane.kubeconfig, "--node-name", node, "--simulate", "pcie-4", "--period", "1")
    uid = pod["metadata"]["uid"]
    await api.wait_for(NODE_STATUSES, lambda each: users(each) == [[], [uid], [uid], []], 1)
    await api.delete_many([f"{api.pods}/user"])

    await api.wait_for(NODE_STATUSES, lambda each: users(each) == [[], [], [], []], 1)


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has an NVIDIA driver")
async def test_a_machine_without_nvml_says_so(api: Api, control_plane: Cluster, start_agent: StartAgent) -> None:
    await add_fleet(api, 1)
    start_agent(control_plane.kubeconfig, "--node-name", f"{api.namespace}-0")

    (status,) = await api.wait_for(NODE_STATUSES, reports(0, api), 1)

    (condition,) = status["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("NVMLAvailable", "False")
    assert condition["reason"] == "LibraryNotFound"


@pytest.mark.usefixtures("policies")
async def test_the_agent_of_a_node_may_write_the_status_of_that_node_only(
    api: Api, control_plane: Cluster, start_agent: StartAgent, tmp_path: Path
) -> None:
    await add_fleet(api, 2)
    mine, other = (f"{api.namespace}-{index}" for index in range(2))
    kubeconfig = await _agent_on(api, control_plane, mine, tmp_path)
    async with connect(kubeconfig, api.namespace) as forger:

        async def refused(path: str, manifest: Manifest) -> bool:
            try:
                await forger.request("POST", path, manifest, dryRun="All")
            except Refused as error:
                return "may not write" in error.message
            return False

        # The API server takes up one policy after the other.
        for path, manifest in held(other):
            await api.until(partial(refused, path, manifest), f"the policy about {path} is in force")
        start_agent(kubeconfig, "--node-name", mine, "--simulate", "pcie-4", "--resource-slices")
        await api.wait_for(NODE_STATUSES, reports(4, api), 1)
        await api.request("POST", NODE_STATUSES, node_status(other))

        forged = {"status": {"total": 8}}
        with pytest.raises(Refused, match=f"the agent of node {mine} may not write the GpuNodeStatus {other}"):
            await forger.merge(f"{NODE_STATUSES}/{other}/status", forged)
        await forger.merge(f"{NODE_STATUSES}/{mine}/status", forged)

        await api.wait_for(RESOURCE_SLICES, lambda each: each["spec"].get("nodeName") == mine, 1)
        for node, driver in ((other, DRIVER), (mine, "gpu.example.com")):
            with pytest.raises(Refused, match=f"the agent of node {mine} may not write the ResourceSlice"):
                await forger.request("POST", RESOURCE_SLICES, slice_of(node, driver))
        await api.create(slice_of(other, "gpu.example.com"))
        with pytest.raises(Refused, match=f"the agent of node {mine} may not write the ResourceSlice"):
            await forger.delete(f"{RESOURCE_SLICES}/{other}")


@pytest.mark.usefixtures("policies")
@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="no node"),
        pytest.param({"Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": "elsewhere"}, id="another node"),
    ],
)
async def test_a_token_that_is_not_of_a_pod_on_the_node_writes_nothing(api: Api, headers: dict[str, str]) -> None:
    await _allow(api)
    user = {"Impersonate-User": f"system:serviceaccount:{api.namespace}:{AGENT}", **headers}
    manifest = node_status(f"{api.namespace}-0")

    async def refused() -> str | None:
        try:
            await api.request("POST", NODE_STATUSES, manifest, headers=user, dryRun="All")
        except Refused as error:
            return error.message if error.status == 403 and "ValidatingAdmissionPolicy" in error.message else None
        return None

    said = await api.until(refused, "the policy is in force")
    right = user | {"Impersonate-Extra-authentication.kubernetes.io%2Fnode-name": f"{api.namespace}-0"}
    made = await api.request("POST", NODE_STATUSES, manifest, headers=right)

    assert "may write a GpuNodeStatus" in said or "may not write the GpuNodeStatus" in said
    assert made["spec"]["nodeName"] == f"{api.namespace}-0"


def _devices(statuses: list[Manifest]) -> dict[str, object]:
    return {each["metadata"]["name"]: each["status"]["devices"] for each in statuses}


async def _allow(api: Api) -> None:
    """Give the agent's service account in the test's namespace the rights of the chart's role."""
    name = f"{api.namespace}-agent"
    rbac = "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{rbac}/v1", "metadata": {"name": name}}
    await api.create({**head, "kind": "ClusterRole", "rules": RIGHTS})
    subject = {"kind": "ServiceAccount", "name": AGENT, "namespace": api.namespace}
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
    await api.create({**head, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": role})


async def _agent_on(api: Api, control_plane: Cluster, node: str, folder: Path) -> Path:
    """A kubeconfig with the token that the agent's pod on a node is given."""
    await _allow(api)
    await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": AGENT}})
    pod = await api.create(gpu_pod("agent", gpus=0, spec={"serviceAccountName": AGENT, "nodeName": node}))
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "agent", "uid": pod["metadata"]["uid"]}
    request = {"spec": {"boundObjectRef": bound, "expirationSeconds": 600}}
    accounts = f"/api/v1/namespaces/{api.namespace}/serviceaccounts"
    made = await api.request("POST", f"{accounts}/{AGENT}/token", request)
    config = yaml.safe_load(control_plane.kubeconfig.read_text())
    config["users"] = [{**config["users"][0], "user": {"token": made["status"]["token"]}}]
    path = folder / "agent.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    path.chmod(0o600)
    return path
