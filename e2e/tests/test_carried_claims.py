"""A GpuClaim names a DeviceClass: webhook, scheduler and kube-controller-manager carry it out as a ResourceClaim."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gangline_e2e.api import Api
from gangline_e2e.asking import is_refused
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import install
from gangline_e2e.gpu_fleet import configuration
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.isolation import isolated
from gangline_e2e.scheduler import Gangline
from gangline_e2e.versions import GROUP
from gangline_e2e.webhook import Webhook, insisting
from gangline_e2e.workloads import Manifest, Manifests, gpu_pod, is_bound, is_unschedulable, kwok_node
from gangline_webhook.registration import at_url, mutating, validating

DRIVER = "gpu.example.com"
CLAIM = "gpu.scheduling/claim"
SCHEDULER = "gpu-scheduler"
GANG = {"gang.scheduling.koordinator.sh/name": "train", "gang.scheduling.koordinator.sh/min-available": "3"}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def plane(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane whose controllers make ResourceClaims."""
    with ControlPlane(tmp_path_factory.mktemp("carried") / "plane", Options(controller_manager=True)) as running:
        yield running


@pytest.fixture
async def api(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Api]:
    """Two nodes with four devices each, the webhook and a scheduler."""
    async with isolated(plane) as api:
        await install(api)
        await api.create_many([_class(), *map(_node, "ab"), *map(_slice, "ab")])
        config = configuration(api.namespace)
        with ExitStack() as stack:
            webhook = stack.enter_context(Webhook(plane.kubeconfig, tmp_path, (SCHEDULER,)))
            for make, path in ((mutating, "/mutate"), (validating, "/validate")):
                await api.create(insisting(make("carried-claims", at_url(webhook.url(path), webhook.authority))))
            scheduler = stack.enter_context(Gangline(plane.kubeconfig, tmp_path / "gangline", config))
            await _until_called(api)
            yield api
        assert "Traceback" not in scheduler.logs() + webhook.log.read_text()


async def test_a_pod_is_bound_with_the_devices_of_its_resource_claim_and_the_gpu_claim_shows_them(api: Api) -> None:
    await api.create(_claim("pair", {"count": 2}, {"mode": "Required", "linkAttribute": f"{DRIVER}/island"}))

    stored = await _create(api, _pod("p", "pair"))
    (bound,) = await api.wait_for(api.pods, is_bound, 1)
    status = (await _claims(api, "Bound"))[0]["status"]

    (template,) = await api.list(_of(api, "resourceclaimtemplates"))
    (made,) = await api.list(_of(api, "resourceclaims"))
    entry = {"name": "gpu-claim", "resourceClaimTemplateName": template["metadata"]["name"]}
    assert stored["spec"]["resourceClaims"] == bound["spec"]["resourceClaims"] == [entry]
    assert bound["spec"]["containers"][0]["resources"]["claims"] == [{"name": "gpu-claim"}]
    assert [each["uid"] for each in made["status"]["reservedFor"]] == [bound["metadata"]["uid"]]
    given = [each["device"] for each in made["status"]["allocation"]["devices"]["results"]]
    assert given in (["gpu-0", "gpu-1"], ["gpu-2", "gpu-3"]), "of one island"
    node = bound["spec"]["nodeName"]
    assert (status["nodeName"], status["allocated"]) == (node, f"{node}:{','.join(given)}")
    assert status["message"] == f"ResourceClaim {made['metadata']['name']}"
    assert "gpu.scheduling/allocated" not in bound["metadata"]["annotations"]
    assert [each for each in await api.list(_leases(api)) if each["metadata"]["name"].startswith("gpu-")] == []


async def test_a_gang_of_such_pods_is_placed_as_a_whole(api: Api) -> None:
    await api.create(_claim("two", {"count": 2}))

    for number in range(3):
        await _create(api, _pod(f"worker-{number}", "two", GANG))
    await api.wait_for(api.pods, is_bound, 3)

    devices = [
        (each["pool"], each["device"])
        for claim in await api.list(_of(api, "resourceclaims"))
        for each in claim["status"]["allocation"]["devices"]["results"]
    ]
    assert len(set(devices)) == len(devices) == 6


async def test_explain_says_why_such_a_pod_waits(api: Api, plane: ControlPlane) -> None:
    labels = {"matchLabels": {"rack": "none"}}
    await api.create_many([_claim("five", {"count": 5}), _claim("elsewhere", {"count": 1}, selector=labels)])
    for pod in (_pod("greedy", "five"), _pod("picky", "elsewhere")):
        await _create(api, pod)
    await api.wait_for(api.pods, lambda each: is_unschedulable(each) and _has_resource_claim(each), 2)

    assert "cannot allocate all claims" in await _explained(plane, api, "greedy")
    assert "didn't match the claim's selector" in await _explained(plane, api, "picky")


async def test_after_a_change_new_pods_get_the_new_template_and_the_claim_goes_with_its_templates(api: Api) -> None:
    await api.create(_claim("some", {"count": 1}))
    first = await _create(api, _pod("first", "some"))
    await api.wait_for(api.pods, is_bound, 1)

    await api.merge(f"{_gpu_claims(api)}/some", {"spec": {"devices": {"count": 3}}})
    second = await _create(api, _pod("second", "some"), before=first)
    await api.wait_for(api.pods, is_bound, 2)
    await api.wait_for(_of(api, "resourceclaims"), _is_allocated, 2)
    assert sorted(map(_count, await api.list(_of(api, "resourceclaims")))) == [1, 3]
    assert second["spec"]["resourceClaims"] != first["spec"]["resourceClaims"]

    await api.delete(f"{_gpu_claims(api)}/some")

    async def is_gone() -> bool:
        return not await api.list(_of(api, "resourceclaimtemplates"))

    await api.until(is_gone, "the garbage collector has deleted the templates", 60)


async def test_a_strangers_template_stays_and_the_claim_says_so(api: Api) -> None:
    await api.create(_claim("probe", {"count": 2}))
    (template,) = await api.wait_for(_of(api, "resourceclaimtemplates"), lambda each: True, 1)
    name = template["metadata"]["name"]
    await api.delete(f"{_gpu_claims(api)}/probe")
    await _create_in_its_place(api, name)
    await api.create(_claim("probe", {"count": 2}))
    (failed,) = await _claims(api, "Failed")
    await _create(api, _pod("p", "probe"))

    assert f"ResourceClaimTemplate {name} exists, and does not belong to the GpuClaim" in failed["status"]["message"]

    def is_told(pod: Manifest) -> bool:
        return "asks for something else than GpuClaim" in json.dumps(pod.get("status", {}).get("conditions", []))

    await api.wait_for(api.pods, is_told, 1)
    (kept,) = await api.list(_of(api, "resourceclaimtemplates"))
    assert kept["spec"]["spec"]["devices"]["requests"][0]["name"] == "any"


@pytest.mark.parametrize(
    ("devices", "topology", "told"),
    [
        ({"exclusivity": "Shared"}, {}, "exclusivity Shared cannot be carried out"),
        ({"policy": "spread"}, {}, "policies other than contiguous"),
        ({"count": 33}, {}, "at most 32 devices"),
        ({"count": 2}, {"mode": "Required"}, "needs topology.linkAttribute"),
        ({"count": 2}, {"minBandwidthGBps": 5}, "minBandwidthGBps cannot be carried out"),
    ],
)
async def test_a_claim_that_cannot_be_carried_out_is_refused(
    api: Api, devices: Manifest, topology: Manifest, told: str
) -> None:
    with pytest.raises(Refused, match=told):
        await api.create(_claim("wrong", devices, topology))


async def test_mistakes_of_pods_are_refused_or_told(api: Api) -> None:
    await api.create(_claim("one", {"count": 1}))
    await api.until(lambda: is_refused(api, api.pods, _with_both("one"), "both would count"), "the pod is refused")

    await api.create(_pod("early", "late"))
    await api.create(_claim("late", {"count": 1}))

    def is_told(event: Manifest) -> bool:
        return event.get("reason") == "GpuClaimNotCarriedOut" and event["regarding"]["name"] == "early"

    (event,) = await api.wait_for(f"/apis/events.k8s.io/v1/namespaces/{api.namespace}/events", is_told, 1)
    assert "and the pod has no ResourceClaim for it" in event["note"]


def _class() -> Manifest:
    spec = {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}
    return {"apiVersion": f"{GROUP}/v1", "kind": "DeviceClass", "metadata": {"name": DRIVER}, "spec": spec}


def _node(name: str) -> Manifest:
    return kwok_node(name, gpus=0)


def _slice(node: str) -> Manifest:
    devices = [
        {"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}, "island": {"string": str(number // 2)}}}
        for number in range(4)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"apiVersion": f"{GROUP}/v1", "kind": "ResourceSlice", "metadata": {"name": f"{node}-slice"}, "spec": spec}


def _claim(name: str, devices: Manifest, topology: Manifest | None = None, **more: Manifest) -> Manifest:
    spec = {"deviceClassName": DRIVER, "devices": devices, **({"topology": topology} if topology else {}), **more}
    return {"apiVersion": "gpu.scheduling/v1", "kind": "GpuClaim", "metadata": {"name": name}, "spec": spec}


def _pod(name: str, claim: str, annotations: dict[str, str] | None = None) -> Manifest:
    return gpu_pod(name, gpus=0, scheduler_name=SCHEDULER, annotations={CLAIM: claim, **(annotations or {})})


def _of(api: Api, plural: str) -> str:
    return f"/apis/{GROUP}/v1/namespaces/{api.namespace}/{plural}"


def _gpu_claims(api: Api) -> str:
    return f"/apis/gpu.scheduling/v1/namespaces/{api.namespace}/gpuclaims"


def _leases(api: Api) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"


async def _claims(api: Api, phase: str) -> Manifests:
    """The GpuClaims in a phase, as soon as there is one."""
    return await api.wait_for(_gpu_claims(api), lambda each: each.get("status", {}).get("phase") == phase, 1)


async def _explained(plane: ControlPlane, api: Api, pod: str) -> str:
    """What `gangline explain` prints about a pod."""
    words = ["explain", f"{api.namespace}/{pod}", "--kubeconfig", str(plane.kubeconfig), "--profile", SCHEDULER]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gangline", *words, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0, out
    return out.decode()


def _count(claim: Manifest) -> Any:
    return claim["spec"]["devices"]["requests"][0]["exactly"]["count"]


def _is_allocated(claim: Manifest) -> bool:
    return bool(claim.get("status", {}).get("allocation"))


def _has_resource_claim(pod: Manifest) -> bool:
    return bool(pod["status"].get("resourceClaimStatuses"))


async def _create(api: Api, pod: Manifest, before: Manifest | None = None) -> Manifest:
    """Create a pod that names a template; with ``before`` another one than this pod does.

    The webhook hears of claims by a watch and does not wait for that, so a pod that comes too early is created anew.
    """
    old = before["spec"]["resourceClaims"] if before is not None else None

    async def is_right() -> Manifest | None:
        dry = await api.request("POST", api.pods, pod, dryRun="All")
        if dry["spec"].get("resourceClaims", old) == old:
            return None
        made = await api.create(pod)
        if made["spec"].get("resourceClaims", old) != old:
            return made
        await api.delete(f"{api.pods}/{made['metadata']['name']}", at_once=True)
        return None

    return await api.until(is_right, f"pod {pod['metadata']['name']} names a template")


async def _create_in_its_place(api: Api, name: str) -> None:
    """Create somebody else's template, once the garbage collector has deleted the one that has its name."""
    theirs = {"devices": {"requests": [{"name": "any", "exactly": {"deviceClassName": DRIVER, "count": 4}}]}}
    kind = {"apiVersion": f"{GROUP}/v1", "kind": "ResourceClaimTemplate"}

    async def is_created() -> bool:
        try:
            await api.create({**kind, "metadata": {"name": name}, "spec": {"spec": theirs}})
        except Refused as error:
            if error.status != 409:
                raise
            return False
        return True

    await api.until(is_created, "the template of the first claim is gone", 60)


def _with_both(claim: str) -> Manifest:
    """A pod that has a claim and asks for a GPU besides."""
    return gpu_pod("both", gpus=1, scheduler_name=SCHEDULER, annotations={CLAIM: claim})


async def _until_called(api: Api) -> None:
    """Wait until the API server calls the webhook for pods and for claims: it learns of both by watches."""

    async def is_called() -> bool:
        try:
            dry = await api.request("POST", api.pods, _pod("dry", "none"), dryRun="All")
        except Refused:  # it knows the webhook of the test before still
            return False
        return "env" in dry["spec"]["containers"][0]

    await api.until(is_called, "the API server calls the webhook for pods")
    wrong = _claim("wrong", {"count": 33})
    await api.until(
        lambda: is_refused(api, _gpu_claims(api), wrong, "at most 32 devices"),
        "the API server calls the webhook for claims",
    )
