"""ResourceSlices of the agent on a real API server, and kube-scheduler, which allocates claims from them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from gangline.kube.client import HttpClient
from gangline.kube.resources import NODES
from gangline.model import Node
from gangline_agent import devices, hardware
from gangline_agent.offering import Offering, Offerings
from gangline_e2e import processes
from gangline_e2e.api import Api, connect
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.processes import Process
from gangline_e2e.versions import ALL_VERSIONS, GROUP, OneVersion
from gangline_e2e.workloads import Manifest, Manifests, gpu_pod, kwok_node

SLICES = f"/apis/{GROUP}/v1/resourceslices"
DRIVER = "gpu.gangline.dev"
WHOLE = f'device.attributes["{DRIVER}"].type == "gpu"'
HOPPER = (
    f'device.attributes["{DRIVER}"].architecture == "Hopper"'
    f' && device.attributes["{DRIVER}"].cudaComputeCapability.isGreaterThan(semver("8.0.0"))'
    f' && device.attributes["{DRIVER}"].driverVersion.major() == 570'
    f' && device.capacity["{DRIVER}"].memory.compareTo(quantity("79Gi")) > 0'
)
SMALLEST = f'device.attributes["{DRIVER}"].?profile.orValue("") == "1g.10gb"'

StartAgent = Callable[..., Process]

pytestmark = pytest.mark.timeout(300)


@asynccontextmanager
async def offering(client: HttpClient, node: str) -> AsyncIterator[Offering]:
    async def find() -> Node:
        return await client.get(NODES, node)

    all_ = Offerings(client, node)
    one = all_.of(node, find)
    tasks = [asyncio.create_task(each.run()) for each in (all_, one)]
    yield one
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def published(api: Api, node: str, devices_: int) -> Manifests:
    """The slices of a node once they have so many devices, all in one generation."""

    async def complete() -> Manifests | None:
        found = [each for each in await api.list(SLICES) if each["spec"].get("nodeName") == node]
        pools = {(each["spec"]["pool"]["generation"], each["spec"]["pool"]["resourceSliceCount"]) for each in found}
        count = sum(len(each["spec"].get("devices", ())) for each in found)
        return found if count == devices_ and len(pools) == 1 and next(iter(pools))[1] == len(found) else None

    return await api.until(complete, f"{node} offers {devices_} devices")


def device_class() -> Manifest:
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    return {"apiVersion": f"{GROUP}/v1", "kind": "DeviceClass", "metadata": {"name": "gangline-gpu"}, "spec": spec}


def claim(name: str, count: int, *selectors: str, match: str = "") -> Manifest:
    exactly = {
        "deviceClassName": "gangline-gpu",
        "count": count,
        "selectors": [{"cel": {"expression": each}} for each in selectors],
    }
    constraints = [{"matchAttribute": match}] if match else []
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}], "constraints": constraints}}
    return {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}


def pod(name: str, node: str) -> Manifest:
    """A pod on a node that uses the claim of its own name."""
    spec = {
        "resourceClaims": [{"name": "gpus", "resourceClaimName": name}],
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "main", "image": "pause", "resources": {"claims": [{"name": "gpus"}]}}],
    }
    return gpu_pod(name, gpus=0, spec=spec)


async def allocated(api: Api, name: str) -> list[str]:
    """The devices of a claim, once it has any."""

    async def results() -> list[str]:
        found = await api.get(f"/apis/{GROUP}/v1/namespaces/{api.namespace}/resourceclaims/{name}")
        got = found.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
        return [each["device"] for each in got]

    return await api.until(results, f"{name} is allocated")


async def refused(api: Api, name: str, why: str) -> None:
    """Wait until a pod gets no node for this reason: before the scheduler has seen the claim, the reason is another."""

    async def is_told() -> bool:
        conditions = (await api.get(f"{api.pods}/{name}"))["status"].get("conditions", [])
        said = (each["message"] for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False")
        return why in next(said, "")

    await api.until(is_told, f"{name} is refused: {why}")


async def said(plane: ControlPlane, *words: str) -> str:
    """What a command prints about the cluster."""
    command = [sys.executable, "-m", "gangline", *words, "--kubeconfig", str(plane.kubeconfig)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


async def test_kube_scheduler_allocates_claims_from_what_the_agent_publishes(
    start_control_plane: Callable[[Options], ControlPlane], start_agent: StartAgent, tmp_path: Path
) -> None:
    plane = start_control_plane(Options())
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(yaml.safe_dump({"hardware": "dgx-h100", "unhealthy": {"a": {0: "XID 79"}}}))
    async with connect(plane.kubeconfig) as api:
        await install(api)
        await api.create_many([*(kwok_node(name) for name in ("a", "b")), device_class()])
        words = ("--simulate", str(fleet), "--nodes", "kubernetes.io/os=linux", "--resource-slices", "--partitions")
        start_agent(plane.kubeconfig, *words)
        for node in ("a", "b"):
            assert {each["spec"]["pool"]["generation"] for each in await published(api, node, 19 * 8)} == {1}
        plane.start_scheduler()

        await api.create_many(
            [
                claim("healthy", 7, WHOLE, HOPPER),
                claim("one-root", 1, WHOLE, match="resource.kubernetes.io/pcieRoot"),
                claim("parts", 7, SMALLEST, match=f"{DRIVER}/parentUUID"),
                claim("rest", 7, WHOLE),
                claim("none", 1, WHOLE),
            ]
        )
        await api.create(pod("healthy", "a"))
        assert await allocated(api, "healthy") == [f"gpu-{at}" for at in range(1, 8)]
        await api.create(pod("one-root", "a"))
        await refused(api, "one-root", "cannot allocate all claims")  # the unhealthy GPU alone is left
        await api.create(pod("parts", "b"))
        assert await allocated(api, "parts") == [f"gpu-0-mig-1g-10gb-{at}" for at in range(7)]
        await api.create(pod("rest", "b"))
        assert await allocated(api, "rest") == [f"gpu-{at}" for at in range(1, 8)]
        await api.create(pod("none", "b"))
        await refused(api, "none", "cannot allocate all claims")  # the parts have the memory of gpu-0

        for node in ("a", "b"):
            assert {each["spec"]["pool"]["generation"] for each in await published(api, node, 19 * 8)} == {1}
        status = await said(plane, "status")
        assert f"{DRIVER}: 21 of 304 devices on 2 nodes taken, 0 free, 19 tainted" in status
        assert "gangline-gpu  304      0" in status
        assert [line.split()[0] for line in status.splitlines() if line.startswith("default/")][:2] == [
            "default/none",
            "default/one-root",
        ]
        shown = (await said(plane, "topology")).splitlines()
        assert [line.split() for line in shown if DRIVER in line] == [
            ["a", DRIVER, "152", "7", "0", "19"],
            ["b", DRIVER, "152", "14", "0", "0"],
        ]
        (row,) = (line for line in (await said(plane, "explain", "none")).splitlines() if "1 gangline-gpu" in line)
        assert row.startswith("default/none") and "cannot allocate all claims" in row


async def test_slices_are_mended_and_withdrawn(
    start_control_plane: Callable[[Options], ControlPlane], start_agent: StartAgent
) -> None:
    plane = start_control_plane(Options(kwok=False))
    async with connect(plane.kubeconfig) as api:
        await install(api)
        await api.create(kwok_node("a"))
        words = ("--simulate", "pcie-4", "--node-name", "a")
        agent = start_agent(plane.kubeconfig, *words, "--resource-slices")
        (first,) = await published(api, "a", 4)
        path = f"{SLICES}/{first['metadata']['name']}"

        await api.merge(path, {"spec": {"devices": [{"name": "forged"}]}})
        (mended,) = await published(api, "a", 4)
        assert mended["spec"]["devices"] == first["spec"]["devices"]
        assert mended["spec"]["pool"]["generation"] == 2
        await api.delete(path)
        (again,) = await published(api, "a", 4)
        assert again["metadata"]["uid"] != first["metadata"]["uid"]
        theirs: Manifest = {"apiVersion": f"{GROUP}/v1", "kind": "ResourceSlice", "metadata": {"name": "theirs"}}
        theirs["spec"] = {**first["spec"], "driver": "gpu.example.com"}
        await api.create(theirs)

        processes.stop([agent], 10.0)
        assert len(await api.list(SLICES)) == 2  # a restart of the agent takes nothing away
        start_agent(plane.kubeconfig, *words, "--resource-slices=withdraw")

        async def left() -> bool:
            return [each["metadata"]["name"] for each in await api.list(SLICES)] == ["theirs"]

        await api.until(left, "the slices of the agent are gone")


@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1beta1"])
async def test_slices_are_written_in_the_version_that_the_server_has(
    start_control_plane: Callable[[Options], ControlPlane], version: str
) -> None:
    plane = start_control_plane(ALL_VERSIONS)
    client = OneVersion(plane.kubeconfig, version)
    async with connect(plane.kubeconfig) as api, client:
        await api.create(kwok_node("a"))
        async with offering(client, "a") as one:
            reading = hardware.dgx_h100()
            one.offer(devices.of_reading(reading, with_partitions=True))
            found = await published(api, "a", 19 * 8)
            assert {each["spec"]["pool"]["generation"] for each in found} == {1}
            one.look()
            one.offer(devices.of_reading(reading))
            whole = await published(api, "a", 8)

    # What was written is not written again, so the second offer was the second generation.
    assert [each["spec"]["pool"]["generation"] for each in whole] == [2]
    assert len(found) == 4 and sum(len(each["spec"].get("sharedCounters", ())) for each in found) == 8
