"""Objects with odd or absurd values, as far as the API server lets them through, disturb nobody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from gangline.errors import ConfigError
from gangline.simulate import InMemoryServer, VirtualClock
from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.harness import ControlPlane
from gangline_e2e.placements import faults
from gangline_e2e.scheduler import Gangline, configuration, profile
from gangline_e2e.workloads import GPU, Manifest, gpu_pod, is_bound, kwok_node

NODES = "/api/v1/nodes"
OURS = "gangline"
CONFIG = configuration(profile(OURS))
ODD_NODES = {
    "no-gpu-number": {GPU: "0"},
    "largest": {GPU: "9223372036854775807", "memory": "9223372036854775807"},
    "beyond-64-bits": {"cpu": "1e30", "memory": "1e30", GPU: "1e30", "pods": "1e30"},
    "beyond-any-float": {"example.com/huge": "1e200"},
    "exponents": {"cpu": "96e0", "memory": "1E12", GPU: "8e0"},
    "fractions": {"cpu": "95.9999999", "memory": "1099511627776500m"},
    "tiny": {"cpu": "1n", "memory": "1m"},
    "no-pods": {"pods": "0"},
    "odd-name": {"bad name": "1"},
}
ODD_PODS = {
    "wants-too-much": {"cpu": "9E"},
    "wants-beyond-64-bits": {"memory": "1e30"},
    "wants-beyond-any-float": {"memory": "1e200"},
    "wants-next-to-nothing": {"cpu": "1n", "memory": "1m"},
    "wants-nothing": {"cpu": "0", "memory": "0"},
    "wants-fractions": {"cpu": "0.1234567", "memory": "1000000500m"},
}

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]


async def test_the_api_server_refuses_negative_and_fractional_devices(empty: Api) -> None:
    for quantity in ("-1", "1.5"):
        with pytest.raises(Refused, match=r"422 Invalid.*nvidia\.com/gpu"):
            await empty.create(_node("refused", {GPU: quantity}))
        with pytest.raises(Refused, match=r"422 Invalid.*nvidia\.com/gpu"):
            await empty.create(_pod("refused", {GPU: quantity}))


@pytest.mark.parametrize(
    "resources",
    [
        {"limits": {GPU: "500m"}},
        {"requests": {GPU: "1"}, "limits": {GPU: "2"}},
        {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
    ],
)
async def test_a_simulation_refuses_what_the_api_server_refuses_in_its_words(
    empty: Api, resources: Mapping[str, Mapping[str, str]]
) -> None:
    pod = gpu_pod("refused")
    pod["spec"]["containers"][0]["resources"] = resources

    with pytest.raises(Refused) as refused:
        await empty.create(pod)
    with pytest.raises(ConfigError) as simulated:
        InMemoryServer(VirtualClock()).apply_manifest(pod)

    assert refused.value.message in str(simulated.value)


async def test_odd_nodes_do_not_keep_pods_from_good_ones(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create_many(_node(name, quantities) for name, quantities in ODD_NODES.items())
    await empty.create(kwok_node("good", labels={"good": ""}))
    scheduler = start_gangline(own_control_plane.kubeconfig, CONFIG)

    await empty.create_many(_choosy())
    await empty.create_many(gpu_pod(f"any-{i}", scheduler_name=OURS) for i in range(40))
    pods = await empty.wait_for(empty.pods, is_bound, 44)

    assert faults(pods, await empty.list(NODES)) == []
    assert scheduler.alive()


async def test_odd_pods_do_not_keep_others_from_their_nodes(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    await empty.create_many([kwok_node("good"), kwok_node("crushed", labels={"crushed": ""})])
    for number in range(3):
        await empty.create(_pod(f"crushing-{number}", {"memory": "9E", "cpu": "1e30"}))
        await empty.bind(f"crushing-{number}", "crushed")
    scheduler = start_gangline(own_control_plane.kubeconfig, CONFIG)
    await empty.create_many(_pod(name, quantities) for name, quantities in ODD_PODS.items())

    await empty.create_many(gpu_pod(f"fine-{i}", scheduler_name=OURS) for i in range(8))
    pods = await empty.wait_for(empty.pods, lambda pod: is_bound(pod) and not _is_crushing(pod), 11)

    modest = {"wants-next-to-nothing", "wants-nothing", "wants-fractions"}
    assert {pod["metadata"]["name"] for pod in pods} == modest | {f"fine-{i}" for i in range(8)}
    assert {pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["name"].startswith("fine")} == {"good"}
    assert scheduler.alive()


def _choosy() -> Iterator[Manifest]:
    """Pods that only the good node may have."""
    for number in range(4):
        yield gpu_pod(f"choosy-{number}", scheduler_name=OURS, spec={"nodeSelector": {"good": ""}})


def _node(name: str, quantities: dict[str, str]) -> Manifest:
    node = kwok_node(name)
    for field in ("capacity", "allocatable"):
        node["status"][field].update(quantities)
    return node


def _pod(name: str, quantities: dict[str, str]) -> Manifest:
    """A pod with just these requests; extended resources are limits too."""
    pod = gpu_pod(name, gpus=0, scheduler_name=OURS)
    limits = {resource: quantity for resource, quantity in quantities.items() if "/" in resource}
    pod["spec"]["containers"][0]["resources"] = {"requests": quantities, "limits": limits}
    return pod


def _is_crushing(pod: Manifest) -> bool:
    return bool(pod["metadata"]["name"].startswith("crushing"))
