"""The example gpu-scheduler-check: five pods say where they are and what they see, as the map wants it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import yaml

import gangline_profiles
from gangline_e2e.api import Api
from gangline_e2e.chart import Helm, HelmFailed, one
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline
from gangline_e2e.webhook import Webhook, patient, until_called
from gangline_e2e.workloads import Manifest, gpu_pod, kwok_node
from gangline_webhook.registration import at_url, mutating

EXAMPLE = Path(__file__).parents[2] / "examples/gpu-scheduler-check"
CHART = EXAMPLE / "chart"
NAME = "gpu-scheduler-check"
SAID = [
    "Node: node1, CUDA_VISIBLE_DEVICES: 0,1",
    "Node: node2, CUDA_VISIBLE_DEVICES: 2",
    "Node: node3, CUDA_VISIBLE_DEVICES: 0,1,2",
    "Node: node4, CUDA_VISIBLE_DEVICES: 3",
    "Node: node4, CUDA_VISIBLE_DEVICES: 3",
]

pytestmark = pytest.mark.timeout(300)
StartGangline = Callable[..., Gangline]
StartControlPlane = Callable[[Options], ControlPlane]


@pytest.fixture
def whole(start_control_plane: StartControlPlane) -> ControlPlane:
    """A control plane that makes the pods of a StatefulSet."""
    return start_control_plane(Options(controller_manager=True))


@pytest.fixture
async def installed(whole: ControlPlane, start_gangline: StartGangline, tmp_path: Path) -> AsyncIterator[Api]:
    """A cluster with four nodes of four GPUs, the scheduler, and the webhook, without which no pod is made."""
    start_gangline(whole.kubeconfig, yaml.safe_load(gangline_profiles.read("gpu-scheduler")))
    folder = tmp_path / "webhook"
    folder.mkdir()
    async with isolated(whole) as api:
        with Webhook(whole.kubeconfig, folder) as webhook:
            client = at_url(webhook.url("/mutate"), webhook.authority)
            await api.create(patient(mutating("gpu-scheduler-webhook", client, failure_policy="Fail")))
            await api.create_many(kwok_node(f"node{number}", gpus=4) for number in range(1, 5))
            allowed = {"metadata": {"annotations": {"gangline.dev/allow": "scheduling-map"}}}
            await api.merge(f"/api/v1/namespaces/{api.namespace}", allowed)
            entry = {"gpu-scheduling-map": "0=node1:0"}
            await until_called(api, gpu_pod("probe-0", gpus=0, scheduler_name="gpu-scheduler", annotations=entry))
            yield api


def said(pod: Manifest) -> str:
    """What the program prints in the environment of a pod."""
    (container,) = pod["spec"]["containers"]
    fields = {"spec.nodeName": pod["spec"]["nodeName"], "metadata.name": pod["metadata"]["name"]}
    fields["metadata.namespace"] = pod["metadata"]["namespace"]
    environ = {
        each["name"]: each["value"] if "value" in each else fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
        for each in container["env"]
    }
    command = [sys.executable, "-I", str(CHART / "check.py")]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.terminate()
    assert process.returncode == 0
    return line.removesuffix("\n")


async def on_their_nodes(api: Api) -> list[str]:
    """What the five pods say, by their number."""
    pods = await api.wait_for(api.pods, lambda pod: bool(pod["spec"].get("nodeName")), 5, timeout_s=120)
    return [said(pod) for pod in sorted(pods, key=lambda pod: pod["metadata"]["name"])]


async def test_the_plain_manifests_put_every_pod_where_the_map_says(installed: Api) -> None:
    for manifest in yaml.safe_load_all((EXAMPLE / "check.yaml").read_text()):
        await installed.apply(manifest)

    assert await on_their_nodes(installed) == SAID


async def test_the_chart_puts_every_pod_where_its_values_say(installed: Api, helm: Helm) -> None:
    for manifest in await helm.render({}, installed.namespace, CHART):
        await installed.apply(manifest)

    assert await on_their_nodes(installed) == SAID


async def test_the_chart_carries_the_program_and_the_map_of_its_values(helm: Helm) -> None:
    entries = [{"podIndex": 0, "nodeName": "a", "gpuDevices": "7"}, {"podIndex": 1, "nodeName": "b", "gpuDevices": ""}]
    more = [{"name": "NCCL_DEBUG", "value": "INFO"}]
    values = {"gpuScheduling": {"schedulingMap": entries, "schedulerName": "mine"}, "testService": {"env": more}}

    rendered = await helm.render(values, "tests", CHART)

    template = one(rendered, "StatefulSet", "gpu-scheduler")["spec"]["template"]
    assert template["metadata"]["annotations"]["gpu-scheduling-map"] == "0=a:7\n1=b:\n"
    assert template["spec"]["schedulerName"] == "mine" and more[0] in template["spec"]["containers"][0]["env"]
    program = one(rendered, "ConfigMap", "gpu-scheduler")["data"]["check.py"]
    assert program.strip() == (CHART / "check.py").read_text().strip()


async def test_without_gpu_scheduling_the_pods_are_plain_ones(helm: Helm) -> None:
    rendered = await helm.render({"gpuScheduling": {"enabled": False}}, "tests", CHART)

    template = one(rendered, "StatefulSet", "gpu-scheduler")["spec"]["template"]
    assert "gpu-scheduling-map" not in template["metadata"]["annotations"]
    assert "schedulerName" not in template["spec"]


@pytest.mark.parametrize(
    ("values", "where"),
    [
        ({"testService": {"logInterval": 0}}, "/testService/logInterval"),
        ({"gpuScheduling": {"schedulingMap": [{"podIndex": 0}]}}, "/gpuScheduling/schedulingMap/0"),
        ({"gpuScheduling": {"map": []}}, "/gpuScheduling"),
    ],
    ids=["interval", "entry", "unknown"],
)
async def test_wrong_values_are_refused_with_their_path(helm: Helm, values: Manifest, where: str) -> None:
    with pytest.raises(HelmFailed, match=where):
        await helm.render(values, "tests", CHART)
