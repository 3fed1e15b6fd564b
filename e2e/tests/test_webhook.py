"""The API server itself calls the webhook over TLS: what it stores, warns about, refuses, and survives."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gangline_e2e.api import Api
from gangline_e2e.asking import is_refused
from gangline_e2e.day.fabric import Fabric, build
from gangline_e2e.devices import devices_of
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import NODE_STATUSES, install
from gangline_e2e.gpu_fleet import configuration
from gangline_e2e.harness import ControlPlane
from gangline_e2e.scheduler import Gangline
from gangline_e2e.webhook import Webhook, patient, until_called
from gangline_e2e.workloads import Manifest, binding, gpu_pod, is_bound, kwok_node
from gangline_webhook.registration import at_url, mutating, validating

CUDA = "CUDA_VISIBLE_DEVICES"
CLAIM = "gpu.scheduling/claim"
ALLOCATED = "gpu.scheduling/allocated"
MAP = "gpu-scheduling-map"
INDEX = "batch.kubernetes.io/job-completion-index"
CANONICAL = "0=node1:0,1\n1=node2:2\n2=node3:0,1,2\n3=node4:3\n4=node4:3\n"
MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/gpu-scheduler-webhook"
OTHER = "other-scheduler"
FROM_ANNOTATION = {
    "name": CUDA,
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{ALLOCATED}']"}},
}

ORDER = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}
NONSENSE = {"preferredHcas": ["mlx5_0,mlx5_1"]}
BY_ID = [FROM_ANNOTATION, ORDER]

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def webhook(empty: Api, own_control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Webhook]:
    """A webhook that runs and is registered, on a cluster with the CRDs."""
    await install(empty)
    with Webhook(own_control_plane.kubeconfig, tmp_path, ("gpu-scheduler", OTHER)) as running:
        await empty.create(patient(mutating("gpu-scheduler-webhook", _client(running, "/mutate"))))
        await empty.create(patient(validating("gpu-scheduler-webhook", _client(running, "/validate"))))
        await until_called(empty, _pod("probe", {CLAIM: "four"}))
        await _until_refused(empty, _claim("probe", network=NONSENSE), "is no adapter")
        yield running
    log = running.log.read_text()
    assert "Traceback" not in log, log[-10_000:]


@pytest.mark.usefixtures("webhook")
async def test_all_containers_of_a_claim_pod_read_the_allocation(empty: Api) -> None:
    claimed = _pod("claimed", {CLAIM: "four"})
    claimed["spec"]["containers"].append({"name": "side", "image": "side:1", "env": [{"name": "A", "value": "1"}]})
    claimed["spec"]["initContainers"] = [{"name": "setup", "image": "setup:1"}]

    stored = await empty.create(claimed)

    assert _env(stored, "main") == _env(stored, "setup") == BY_ID
    assert _env(stored, "side") == [{"name": "A", "value": "1"}, *BY_ID]


@pytest.mark.usefixtures("webhook")
async def test_a_pod_of_a_mig_claim_reads_the_uuids_of_its_instances(empty: Api) -> None:
    await empty.create(_claim("instance", devices={"exclusivity": "MIG", "migProfile": "1g.10gb"}))

    stored = await empty.create(_pod("claimed", {CLAIM: "instance"}))

    path = f"metadata.annotations['{ALLOCATED}-uuids']"
    assert _env(stored) == [{"name": CUDA, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}]


@pytest.mark.usefixtures("webhook")
async def test_the_five_pods_of_the_canonical_map_see_their_devices(empty: Api) -> None:
    stored = await empty.create_many(_pod(f"check-{index}", {MAP: CANONICAL}) for index in range(5))

    values = [_env(pod)[0]["value"] for pod in stored]
    assert values == ["0,1", "2", "0,1,2", "3", "3"]


@pytest.mark.usefixtures("webhook")
async def test_pods_without_a_name_get_their_devices_by_label_or_from_the_scheduler(empty: Api) -> None:
    indexed = _pod("", {MAP: CANONICAL}, labels={INDEX: "2"})
    plain = _pod("", {MAP: CANONICAL})
    for pod in (indexed, plain):
        pod["metadata"] |= {"generateName": "job-2-"}
        del pod["metadata"]["name"]

    by_label, by_scheduler = [await empty.create(pod) for pod in (indexed, plain)]

    assert _env(by_label) == [{"name": CUDA, "value": "0,1,2"}, ORDER]
    assert _env(by_scheduler) == BY_ID


@pytest.mark.usefixtures("webhook")
async def test_what_the_user_set_is_replaced_whole_and_kubectl_shows_a_warning(empty: Api) -> None:
    claimed = _pod("claimed", {CLAIM: "four"})
    own = {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}}
    claimed["spec"]["containers"][0]["env"] = [{"name": CUDA, "valueFrom": own}, {"name": CUDA, "value": "7"}]

    stored, warnings = await _create_warned(empty, claimed)

    assert _env(stored) == BY_ID
    assert f"{CUDA} is set by Gangline, the pod's own values were replaced: main '7'" in warnings


@pytest.mark.usefixtures("webhook")
async def test_a_forged_allocation_is_taken_from_a_new_pod_and_refused_on_an_old_one(empty: Api) -> None:
    forged = {ALLOCATED: "0,1", f"{ALLOCATED}-uuids": "GPU-1", "kept": "yes"}

    stored, warnings = await _create_warned(empty, _pod("forger", forged))

    assert stored["metadata"]["annotations"] == {"kept": "yes"}
    assert f"the annotation {ALLOCATED} was removed: only the scheduler sets it" in warnings
    with pytest.raises(Refused, match=r"only the scheduler sets gpu\.scheduling/allocated"):
        await empty.merge(f"{empty.pods}/forger", {"metadata": {"annotations": {ALLOCATED: "0"}}})
    await empty.merge(f"{empty.pods}/forger", {"metadata": {"annotations": {"kept": "no"}}})


@pytest.mark.usefixtures("webhook")
async def test_a_pod_that_is_nested_too_deeply_is_refused_and_not_let_in_unchanged(empty: Api) -> None:
    deep = {"manager": "me", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "time": None}
    pod = _pod("deep", {CLAIM: "four"})
    pod["metadata"]["managedFields"] = [{**deep, "fieldsV1": "here"}]
    nested = json.dumps(pod).replace('"here"', '{"f:a":' * 2000 + "{}" + "}" * 2000)

    async with empty._session.post(empty.pods, data=nested, headers={"Content-Type": "application/json"}) as answer:
        said = await answer.text()

    assert answer.status == 400, said[:500]
    assert "the AdmissionReview cannot be read: it is nested too deeply" in said


@pytest.mark.usefixtures("webhook")
async def test_a_pod_with_absurdly_many_containers_is_refused_with_a_reason(empty: Api) -> None:
    greedy = _pod("greedy", {CLAIM: "four"})
    greedy["spec"]["containers"] = [{"name": f"c-{number}", "image": "a"} for number in range(1001)]

    with pytest.raises(Refused, match="a pod that uses GPUs may have 1000 containers"):
        await empty.create(greedy)


@pytest.mark.usefixtures("webhook")
async def test_the_schedulers_binding_may_set_the_allocation(empty: Api) -> None:
    await empty.create(kwok_node("node-a"))
    await empty.create(_pod("claimed", {CLAIM: "four"}))

    bound = binding("claimed", "node-a", {ALLOCATED: "0,1"})
    await empty.request("POST", f"{empty.pods}/claimed/binding", bound)

    assert (await empty.get(f"{empty.pods}/claimed"))["metadata"]["annotations"][ALLOCATED] == "0,1"


@pytest.mark.usefixtures("webhook")
async def test_a_bad_line_of_a_map_is_warned_about(empty: Api) -> None:
    stored, warnings = await _create_warned(empty, _pod("check-1", {MAP: "x=node1:0\n1=node2:2"}))

    assert _env(stored) == [{"name": CUDA, "value": "2"}, ORDER]
    assert warnings == [f"{MAP}: line 1, 'x=node1:0': the index 'x' is not an integer"]


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize(
    ("variable", "gpus", "warning"),
    [
        (
            {"value": "all"},
            0,
            "=all shows the containers every GPU of the node, other pods' GPUs too; take it out of main",
        ),
        (
            {"value": "all"},
            1,
            "=all shows the containers every GPU of the node, other pods' GPUs too; take it out of main",
        ),
        ({"value": "3"}, 1, "=3 shows the containers what it names, whatever is allocated; take it out of main"),
        (
            {"valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}}},
            1,
            "=valueFrom shows the containers what it names, whatever is allocated; take it out of main",
        ),
    ],
    ids=["none requested", "whole GPUs", "devices", "from elsewhere"],
)
async def test_a_pod_that_tells_the_runtime_what_to_show_is_warned(
    empty: Api, variable: Manifest, gpus: int, warning: str
) -> None:
    greedy = gpu_pod("greedy", gpus=gpus, scheduler_name="gpu-scheduler")
    greedy["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_VISIBLE_DEVICES", **variable}]

    _, (told,) = await _create_warned(empty, greedy)

    assert told.startswith(f"NVIDIA_VISIBLE_DEVICES{warning}")


@pytest.mark.usefixtures("webhook")
async def test_a_container_that_requests_its_claims_gpus_counts_them_from_0(empty: Api) -> None:
    await empty.create(_claim("four"))
    pod = gpu_pod("asks", gpus=4, scheduler_name="gpu-scheduler", annotations={CLAIM: "four"})

    stored = await empty.create(pod)
    added = await empty.create(_pod("added", {CLAIM: "four"}))

    assert _env(stored) == _env(added) == [{"name": CUDA, "value": "0,1,2,3"}, ORDER]


async def test_where_the_runtime_enforces_pods_that_request_gpus_are_told_their_uuids(
    empty: Api, own_control_plane: ControlPlane, tmp_path: Path
) -> None:
    with Webhook(own_control_plane.kubeconfig, tmp_path, enforcement="runtime") as running:
        own_pods = (empty.namespace, "agent")
        made = mutating("gpu-scheduler-webhook", _client(running, "/mutate"), enforcement="runtime", own=own_pods)
        await empty.create(patient(made))
        await until_called(empty, _pod("probe", {CLAIM: "four"}))
        whole = await empty.create(gpu_pod("whole", gpus=1, scheduler_name="gpu-scheduler"))
        foreign = await empty.create(gpu_pod("foreign", gpus=1))
        agent = _pod("agent", {CLAIM: "four"}, labels={"app": "agent"})
        own = await empty.create(agent)

    path = f"metadata.annotations['{ALLOCATED}-uuids']"
    uuids = {"valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
    assert _env(whole) == [{"name": "NVIDIA_VISIBLE_DEVICES", **uuids}, {"name": CUDA, **uuids}]
    assert _env(foreign) is None
    assert _env(own) is None


async def test_the_api_server_calls_it_for_no_other_pods(empty: Api, webhook: Webhook) -> None:
    before = webhook.reviews()
    assert before > 0

    await empty.create(_pod("plain", {"some": "annotation"}))
    await empty.create(gpu_pod("whole", gpus=1))
    await empty.create(_pod("foreign-0", {MAP: CANONICAL}, scheduler="default-scheduler"))
    await empty.merge(f"{empty.pods}/plain", {"metadata": {"labels": {"a": "b"}}})

    assert webhook.reviews() == before


@pytest.mark.usefixtures("webhook")
async def test_a_fabric_claim_made_right_before_its_pod_brings_its_variables(empty: Api) -> None:
    network = {"rdmaRequired": True, "preferredHcas": ["mlx5_0", "mlx5_1"]}
    await empty.create(_claim("fabric", network=network, storage={"cuFile": "Preferred"}))

    stored = await empty.create(_pod("claimed", {CLAIM: "fabric"}))

    assert {each["name"]: each.get("value") for each in _env(stored)} == {
        CUDA: "0,1,2,3",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NCCL_IB_HCA": "=mlx5_0,mlx5_1",
        "NCCL_NET_GDR_LEVEL": "PHB",
        "CUFILE_ENV_PATH_JSON": "/etc/cufile.json",
        "CUFILE_ENV_PATH": "/etc/cufile.json",
    }


@pytest.mark.usefixtures("webhook")
async def test_a_pod_whose_claim_does_not_exist_is_stored_with_a_warning(empty: Api) -> None:
    stored, warnings = await _create_warned(empty, _pod("claimed", {CLAIM: "typo"}))

    assert _env(stored) == BY_ID
    assert warnings == [f"GpuClaim {empty.namespace}/typo does not exist; the pod waits until it does"]


@pytest.mark.usefixtures("webhook")
async def test_a_claim_that_the_schema_lets_through_is_refused_when_it_comes_and_when_it_changes(empty: Api) -> None:
    with pytest.raises(Refused, match="'mlx5_0,mlx5_1' is no adapter"):
        await empty.create(_claim("bad", network=NONSENSE))

    await empty.create(_claim("good"))
    path = f"/apis/gpu.scheduling/v1/namespaces/{empty.namespace}/gpuclaims/good"
    with pytest.raises(Refused, match="'mlx5_0,mlx5_1' is no adapter"):
        await empty.merge(path, {"spec": {"network": NONSENSE}})


@pytest.mark.usefixtures("webhook")
async def test_a_quota_counts_the_gpus_of_claims(empty: Api) -> None:
    await empty.create(_claim("four"))
    await _set_quota(empty, gpus=6)

    stored = await empty.create(_pod("first", {CLAIM: "four"}))
    with pytest.raises(Refused, match=r"exceeded quota: gpus, requested: requests\.nvidia\.com/gpu=4, used: .*=4"):
        await empty.create(_pod("second", {CLAIM: "four"}))

    asked = {"limits": {"nvidia.com/gpu": "4"}, "requests": {"nvidia.com/gpu": "4"}}
    found = stored["spec"]["containers"][0]["resources"]
    assert {kind: {"nvidia.com/gpu": found[kind]["nvidia.com/gpu"]} for kind in asked} == asked


@pytest.mark.usefixtures("webhook")
async def test_shares_count_as_claims_in_a_quota_and_not_as_gpus(empty: Api) -> None:
    await _set_quota(empty, gpus=0, claims=1)
    await empty.create(_claim("half", devices={"exclusivity": "Shared", "fraction": 0.5}))

    await empty.create(_pod("first", {CLAIM: "half"}))

    async def counted() -> bool:
        try:
            await empty.request("POST", f"/apis/gpu.scheduling/v1/namespaces/{empty.namespace}/gpuclaims", _claim("b"))
        except Refused as error:
            return "exceeded quota: gpus, requested: count/gpuclaims.gpu.scheduling=1" in error.message
        return False

    await empty.until(counted, "no more claims are let in")


@pytest.mark.usefixtures("webhook")
async def test_a_limit_range_is_checked_also_for_what_a_claim_adds(empty: Api) -> None:
    await empty.create(_claim("four"))
    none = {"nvidia.com/gpu": "0"}
    await empty.create(_limit_range(max={"nvidia.com/gpu": "2"}, default=none, defaultRequest=none))

    await _until_refused(
        empty, _pod("claimed", {CLAIM: "four"}), "maximum nvidia.com/gpu usage per Container is 2, but limit is 4"
    )


@pytest.mark.usefixtures("webhook")
async def test_a_gpu_that_a_limit_range_gives_by_default_has_to_agree_with_the_claim(empty: Api) -> None:
    await empty.create(_claim("four"))
    await empty.create(_claim("one", devices={"count": 1}))
    await empty.create(_limit_range(max={"nvidia.com/gpu": "1"}))  # which is the default too

    await _until_refused(
        empty, _pod("claimed", {CLAIM: "four"}), "GpuClaim four gives the pod 4 GPUs, and its requests for"
    )
    agreeing = await empty.create(_pod("agreeing", {CLAIM: "one"}))

    assert agreeing["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert _env(agreeing) == [{"name": CUDA, "value": "0"}, ORDER]


@pytest.mark.usefixtures("webhook")
async def test_a_request_that_disagrees_with_the_claim_is_refused(empty: Api) -> None:
    await empty.create(_claim("four"))

    with pytest.raises(
        Refused, match=r"GpuClaim four gives the pod 4 GPUs, and its requests for nvidia\.com/gpu are 1"
    ):
        await empty.create(gpu_pod("cheap", gpus=1, annotations={CLAIM: "four"}))


async def test_certificate_and_authority_are_replaced_while_it_runs(empty: Api, webhook: Webhook) -> None:
    probe = _pod("probe-1", {MAP: CANONICAL}, scheduler=OTHER)
    assert _env(await empty.request("POST", empty.pods, probe, dryRun="All")) is None

    webhook.renew()
    configuration = await empty.get(MUTATING)
    new = patient(mutating("gpu-scheduler-webhook", _client(webhook, "/mutate"), scheduler_names=[OTHER]))
    await empty.request("PUT", MUTATING, {**configuration, "webhooks": new["webhooks"]})
    await until_called(empty, probe)  # the new configuration alone sends this pod, and trusts only the new authority

    assert webhook.alive()
    assert "certificate reloaded" in webhook.log.read_text()


async def test_pods_are_created_while_it_is_down_and_injected_when_it_is_back(empty: Api, webhook: Webhook) -> None:
    webhook.stop()

    alone = await empty.create(_pod("alone", {CLAIM: "four"}))
    webhook.start()
    await until_called(empty, _pod("probe", {CLAIM: "four"}))
    helped = await empty.create(_pod("helped", {CLAIM: "four"}))

    assert _env(alone) is None
    assert _env(helped) == BY_ID


async def test_a_pod_that_was_not_injected_is_not_bound_where_the_profile_requires_the_request(
    empty: Api, webhook: Webhook, own_control_plane: ControlPlane, start_gangline: Callable[..., Gangline]
) -> None:
    config = configuration(empty.namespace)
    config["profiles"][0]["pluginConfig"].append({"name": "GpuClaim", "args": {"requireRequest": True}})
    fabric = Fabric(nodes=1, leaves=1, spines=1)
    await build(empty, fabric)
    await empty.create(_claim("four"))
    start_gangline(own_control_plane.kubeconfig, config)
    webhook.stop()
    alone = await empty.create(_pod("alone", {CLAIM: "four"}))
    webhook.start()
    await until_called(empty, _pod("probe", {CLAIM: "four"}))
    await empty.create(_pod("helped", {CLAIM: "four"}))

    (helped,) = await empty.wait_for(empty.pods, is_bound, 1)
    why = "the pod's claim gives it 4 GPUs: it has to request nvidia.com/gpu: 4"
    (alone,) = await empty.wait_for(empty.pods, lambda pod: why in str(pod["status"].get("conditions")), 1)
    assert helped["metadata"]["name"] == "helped" and len(devices_of(helped)) == 4
    assert alone["metadata"]["name"] == "alone" and not is_bound(alone) and _env(alone) is None
    await empty.delete(f"{NODE_STATUSES}/{fabric.name(0)}")


def _client(webhook: Webhook, path: str) -> Manifest:
    """How the API server reaches a webhook."""
    return at_url(webhook.url(path), webhook.authority)


def _pod(
    name: str, annotations: dict[str, str], *, scheduler: str = "gpu-scheduler", labels: dict[str, str] | None = None
) -> Manifest:
    return gpu_pod(name, gpus=0, scheduler_name=scheduler, labels=labels, annotations=annotations)


def _claim(name: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": "gpu.scheduling/v1",
        "kind": "GpuClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"count": 4}, **spec},
    }


async def _set_quota(api: Api, gpus: int, claims: int = 100) -> None:
    """A quota of the namespace, with the status that its controller would give it, once the API server obeys it."""
    hard = {"requests.nvidia.com/gpu": str(gpus), "count/gpuclaims.gpu.scheduling": str(claims)}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    await api.create(quota)
    path = f"/api/v1/namespaces/{api.namespace}/resourcequotas/gpus/status"
    await api.merge(path, {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})
    await _until_refused(api, gpu_pod("probe", gpus=gpus + 1), "exceeded quota: gpus")


def _limit_range(**limits: Any) -> Manifest:
    """A LimitRange for containers."""
    spec = {"limits": [{"type": "Container", **limits}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "gpus"}, "spec": spec}


async def _until_refused(api: Api, made: Manifest, why: str) -> None:
    """Wait until a pod or a claim is refused for that reason: admission learns of new objects by a watch."""
    claims = f"/apis/gpu.scheduling/v1/namespaces/{api.namespace}/gpuclaims"
    path = api.pods if made["kind"] == "Pod" else claims
    await api.until(lambda: is_refused(api, path, made, why), f"it is refused: {why}")


def _env(pod: Manifest, container: str = "main") -> Any:
    everyone = pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
    return next(each for each in everyone if each["name"] == container).get("env")


async def _create_warned(api: Api, pod: Manifest) -> tuple[Manifest, list[str]]:
    """A pod as stored, and the warnings that came with the answer, as kubectl prints them."""
    async with api._session.post(api.pods, json=pod) as answer:  # the client of these tests drops headers
        assert answer.status == 201, await answer.text()
        headers = answer.headers.getall("Warning", [])
        texts = [re.sub(r"\\(.)", r"\1", header.removeprefix('299 - "').removesuffix('"')) for header in headers]
        return await answer.json(), texts
