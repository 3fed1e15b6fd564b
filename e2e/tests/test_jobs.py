"""Jobs as the real Job controller makes their pods: unindexed ones that are gangs, and ranks from the webhook."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gangline_e2e.api import Api
from gangline_e2e.gpu_crds import install
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import configuration, profile
from gangline_e2e.webhook import Webhook, patient
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, is_running, is_succeeded, job, kwok_node
from gangline_webhook.registration import at_url, mutating, validating

from .conftest import StartGangline

GPU_COUNT, RANKS = "topology.scheduler/gpu-count", "gangline.dev/ranks"
BACKOFF_S = 90.0
"""The Job controller makes a pod in place of one that has failed after up to 20 s."""
COMPLETES = "gangline.dev/completes-after"
INDEX = {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']", "apiVersion": "v1"}
PROFILE = configuration(
    profile("gangs", enabled=[{"name": "GangPermit"}, {"name": "TopologyAnnotations", "weight": 1}])
)

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with the controllers."""
    with ControlPlane(tmp_path_factory.mktemp("jobs"), Options(controller_manager=True)) as running:
        yield running


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Api]:
    """A client with a namespace of its own, and four nodes of two GPUs."""
    async with isolated(plane) as client:
        await install(client)
        await client.create_many(kwok_node(f"n{number}", gpus=2) for number in range(4))
        yield client


@pytest.fixture
async def webhook(api: Api, plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Webhook]:
    """A webhook that runs and is registered."""
    with Webhook(plane.kubeconfig, tmp_path) as running:
        client = partial(at_url, authority=running.authority)
        await api.create(patient(mutating("gpu-scheduler-webhook", client(running.url("/mutate")))))
        await api.create(patient(validating("gpu-scheduler-webhook", client(running.url("/validate")))))

        async def called() -> bool:
            made = await _warnings(api, _job("probe", {RANKS: "pods"}, completionMode="NonIndexed"), dry=True)
            pod = await api.request(
                "POST", api.pods, gpu_pod("probe", annotations={"gpu.scheduling/allocated": "0"}), dryRun="All"
            )
            return bool(made) and not pod["metadata"].get("annotations")

        await api.until(called, "the API server calls the webhook")
        yield running
    assert "Traceback" not in running.log.read_text()


async def test_an_unindexed_job_with_a_number_of_gpus_starts_as_a_whole_and_replaces_what_fails(
    api: Api, plane: ControlPlane, start_gangline: StartGangline
) -> None:
    start_gangline(plane.kubeconfig, PROFILE)
    blocker = await api.create(gpu_pod("blocker", gpus=2, scheduler_name="gangs"))
    await api.wait_for(api.pods, is_bound, 1)
    await api.create(_job("train", annotations={GPU_COUNT: "8"}))
    await api.wait_for(api.pods, _waits_for_room, 4)
    assert [pod["metadata"]["name"] for pod in await api.list(api.pods) if is_bound(pod)] == ["blocker"]

    await api.delete(f"{api.pods}/{blocker['metadata']['name']}", at_once=True)
    first, *others = [pod["metadata"]["name"] for pod in await api.wait_for(api.pods, is_running, 4)]
    await _end(api, first, "Failed")
    await api.wait_for(
        api.pods, lambda pod: is_running(pod) and pod["metadata"]["name"] not in (first, *others), 1, BACKOFF_S
    )
    for name in others:
        await _end(api, name, "Succeeded")
    (last,) = [pod["metadata"]["name"] for pod in await api.list(api.pods) if is_running(pod)]
    await _end(api, last, "Failed")

    await api.wait_for(api.pods, lambda pod: is_running(pod) and pod["metadata"]["name"] != last, 1, BACKOFF_S)


async def test_all_completions_of_an_unindexed_job_run_also_when_fewer_are_left_than_run_at_once(
    api: Api, plane: ControlPlane, start_gangline: StartGangline
) -> None:
    start_gangline(plane.kubeconfig, PROFILE)

    await api.create(_job("train", {COMPLETES: "200ms"}, annotations={GPU_COUNT: "8"}, completions=6))

    await api.wait_for(api.pods, is_succeeded, 6)


@pytest.mark.usefixtures("webhook")
async def test_the_pods_of_an_indexed_job_have_their_rank_and_the_name_of_the_first(api: Api) -> None:
    selector = {"batch.kubernetes.io/job-name": "train"}
    service = {"clusterIP": "None", "selector": selector, "ports": [{"port": 29500}]}
    await api.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "workers"}, "spec": service})

    told = await _warnings(api, _job("train", {RANKS: "gpus"}, {"subdomain": "workers"}, completionMode="Indexed"))

    pods = await api.wait_for(api.pods, lambda pod: True, 4)
    assert told == []
    assert sorted(pod["spec"]["hostname"] for pod in pods) == [f"train-{index}" for index in range(4)]
    for pod in pods:
        env = {each["name"]: each for each in pod["spec"]["containers"][0]["env"]}
        assert env["NODE_RANK"]["valueFrom"] == env["PET_NODE_RANK"]["valueFrom"] == {"fieldRef": INDEX}
        values = {
            name: env[name].get("value") for name in ("NNODES", "PET_NPROC_PER_NODE", "WORLD_SIZE", "MASTER_PORT")
        }
        assert list(values.values()) == ["4", "2", "8", "29500"]
        assert env["MASTER_ADDR"]["value"] == f"train-0.workers.{api.namespace}.svc"
        assert pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] in "0123"


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize(
    ("template", "spec", "says"),
    [
        ({}, {"completionMode": "NonIndexed"}, "Job train is not indexed, so its pods have no rank"),
        ({}, {"completionMode": "Indexed", "completions": 9}, "Job train runs 4 of its 9 pods at once"),
        ({}, {"completionMode": "Indexed"}, "MASTER_ADDR is not set: spec.subdomain has to name a headless Service"),
        ({"subdomain": "workers"}, {"completionMode": "Indexed"}, "there is no Service workers; MASTER_ADDR resolves"),
    ],
    ids=["unindexed", "in turns", "no subdomain", "no service"],
)
async def test_who_creates_a_job_is_told_what_its_pods_lack(
    api: Api, template: Manifest, spec: Manifest, says: str
) -> None:
    (told,) = await _warnings(api, _job("train", {RANKS: "pods"}, template, **spec))

    assert told.startswith(f"{RANKS}: {says}")
    await api.wait_for(api.pods, lambda pod: True, 4)


def _job(
    name: str,
    of_pods: dict[str, str] | None = None,
    template: Manifest | None = None,
    *,
    annotations: dict[str, str] | None = None,
    completions: int = 4,
    **spec: Any,
) -> Manifest:
    """A Job of four pods at once with two GPUs each."""
    pod = gpu_pod("x", gpus=2, scheduler_name="gangs", annotations=of_pods, spec=template)
    made = job(name, pod, parallelism=4, completions=completions, annotations=annotations)
    return {**made, "spec": {**made["spec"], **spec}}


def _waits_for_room(pod: Manifest) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any("no placement for 4 pods" in each.get("message", "") for each in conditions)


async def _end(api: Api, pod: str, phase: str) -> None:
    await api.merge(f"{api.pods}/{pod}/status", {"status": {"phase": phase}})


async def _warnings(api: Api, manifest: Manifest, dry: bool = False) -> list[str]:
    """What kubectl would print when the Job is created."""
    path = f"/apis/batch/v1/namespaces/{api.namespace}/jobs" + ("?dryRun=All" if dry else "")
    async with api._session.post(path, json=manifest) as answer:  # the client of these tests drops headers
        assert answer.status == 201, await answer.text()
        headers = answer.headers.getall("Warning", [])
        return [re.sub(r"\\(.)", r"\1", header.removeprefix('299 - "').removesuffix('"')) for header in headers]
