"""A pod whose volume is made late says for which node it is meant, and a pod goes to the node that others say.

The same stories are told to kube-scheduler: what must hold for Gangline has to hold there too, else the test is wrong.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

import pytest

from gangline_e2e.api import Api
from gangline_e2e.harness import ControlPlane
from gangline_e2e.volumes import claim, disk
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, is_ready, kwok_node

pytestmark = pytest.mark.timeout(180)

OURS, THEIRS = "gangline", "default-scheduler"
CLASS = "made-by-hand"
COMPLETED = {"pv.kubernetes.io/bind-completed": "yes"}
CONFIGURATION: Manifest = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "leaderElection": {"leaderElect": False},
    "profiles": [{"schedulerName": OURS}],
}


class StartOne(Protocol):
    """Start one of the two schedulers, with the words of `--feature-gates`."""

    def __call__(self, scheduler: str, gates: str = "") -> None: ...


@pytest.fixture
async def nodes(empty: Api) -> AsyncIterator[Api]:
    """A cluster with four nodes, and a StorageClass whose driver does nothing by itself."""
    await empty.create_many(kwok_node(f"node-{number}", cpu="4", gpus=0) for number in range(4))
    await empty.wait_for("/api/v1/nodes", is_ready, 4)
    await empty.create(
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": CLASS},
            "provisioner": "example.com/nobody",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
    )
    yield empty


@pytest.fixture
def start(own_control_plane: ControlPlane, start_gangline: Any) -> Iterator[StartOne]:
    """A function that starts a scheduler for this test."""

    def begin(scheduler: str, gates: str = "") -> None:
        words = (f"--feature-gates={gates}",) if gates else ()
        if scheduler == OURS:
            start_gangline(own_control_plane.kubeconfig, CONFIGURATION, more=words)
        else:
            own_control_plane.start_scheduler(words)

    yield begin
    if "kube-scheduler" in own_control_plane.processes:
        own_control_plane.kill("kube-scheduler")


def with_claim(name: str, scheduler: str) -> Manifest:
    """A pod that uses the claim `data`."""
    pod = gpu_pod(name, gpus=0, scheduler_name=scheduler)
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    return pod


def nomination(pod: Manifest) -> str:
    """status.nominatedNodeName."""
    node: str = pod["status"].get("nominatedNodeName", "")
    return node


async def until_bound(api: Api, name: str) -> list[Manifest]:
    """All states of a pod up to the one in which it has a node."""
    states: list[Manifest] = []
    async for event, pod in api.watch(f"{api.pods}?fieldSelector=metadata.name={name}"):
        assert event != "RESTART"
        states.append(pod)
        if is_bound(pod):
            return states
    raise AssertionError("the watch ended")


async def until_asked(api: Api) -> None:
    """Wait until the scheduler asks for the volume of the claim `data`."""
    await api.wait_for(
        f"/api/v1/namespaces/{api.namespace}/persistentvolumeclaims",
        lambda each: "volume.kubernetes.io/selected-node" in each["metadata"].get("annotations", {}),
        1,
    )


async def provide(api: Api) -> None:
    """Make the volume of the claim `data` once it is asked for, and bind both, as a driver and the controller do."""
    await until_asked(api)
    path = f"/api/v1/namespaces/{api.namespace}/persistentvolumeclaims/data"
    uid = (await api.get(path))["metadata"]["uid"]
    volume = disk(f"data-{uid}", f"{api.namespace}/data", {"kubernetes.io/os": "linux"})
    volume["spec"]["claimRef"]["uid"] = uid
    volume["spec"]["storageClassName"] = CLASS
    await api.create(volume)
    await api.merge(f"/api/v1/persistentvolumes/data-{uid}/status", {"status": {"phase": "Bound"}})
    await api.merge(path, {"metadata": {"annotations": COMPLETED}, "spec": {"volumeName": f"data-{uid}"}})
    await api.merge(f"{path}/status", {"status": {"phase": "Bound"}})


@pytest.mark.parametrize("scheduler", [OURS, THEIRS])
async def test_a_pod_says_for_which_node_it_waits_while_its_volume_is_made_and_a_plain_pod_never_does(
    nodes: Api, start: StartOne, scheduler: str
) -> None:
    start(scheduler)
    await nodes.create(claim("data", CLASS, "1Gi"))
    await nodes.create_many([with_claim("slow", scheduler), gpu_pod("plain", gpus=0, scheduler_name=scheduler)])

    plain = await until_bound(nodes, "plain")
    (slow,) = await nodes.wait_for(nodes.pods, lambda pod: bool(nomination(pod)), 1)
    assert slow["metadata"]["name"] == "slow" and not is_bound(slow)
    await provide(nodes)
    states = await until_bound(nodes, "slow")

    assert not any(map(nomination, plain))
    assert states[-1]["spec"]["nodeName"] == nomination(slow)
    assert nomination(states[-1]) == ""


@pytest.mark.parametrize("scheduler", [OURS, THEIRS])
async def test_a_pod_goes_to_the_node_that_somebody_else_means_it_for(
    nodes: Api, start: StartOne, scheduler: str
) -> None:
    start(scheduler)
    await nodes.create(gpu_pod("busy", gpus=0, cpu="2", scheduler_name=scheduler, spec={"nodeName": "node-2"}))
    await nodes.create(
        gpu_pod("meant", gpus=0, scheduler_name=scheduler, spec={"schedulingGates": [{"name": "later"}]})
    )
    await nodes.merge(f"{nodes.pods}/meant/status", {"status": {"nominatedNodeName": "node-2"}})
    await nodes.merge(f"{nodes.pods}/meant", {"spec": {"schedulingGates": None}})

    *_, pod = await until_bound(nodes, "meant")

    assert pod["spec"]["nodeName"] == "node-2"  # the others are empty, and would score higher


async def test_with_the_gate_off_no_node_is_told(nodes: Api, start: StartOne) -> None:
    start(OURS, "NominatedNodeNameForExpectation=false")
    await nodes.create(claim("data", CLASS, "1Gi"))
    await nodes.create(with_claim("slow", OURS))
    await until_asked(nodes)
    assert nomination(await nodes.get(f"{nodes.pods}/slow")) == ""  # it would have been written before
    await provide(nodes)

    assert not any(map(nomination, await until_bound(nodes, "slow")))
