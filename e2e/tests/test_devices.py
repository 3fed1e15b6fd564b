"""A cluster full of pods with GPUs of all kinds: who has what, as the API tells it, and what comes free.

All tests look at one cluster of 500 nodes; each leaves it full.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gangline_e2e import placements
from gangline_e2e.api import Api
from gangline_e2e.devices import (
    ALLOCATED,
    CLAIM,
    LEASES,
    MANAGED,
    UUIDS,
    Claims,
    devices_of,
    disagreements,
    faults,
    locked,
    misreported,
)
from gangline_e2e.errors import Refused
from gangline_e2e.gpu_crds import NODE_STATUSES, claim
from gangline_e2e.gpu_fleet import SCHEDULER, configuration, fleet
from gangline_e2e.harness import ControlPlane
from gangline_e2e.isolation import isolated
from gangline_e2e.ledger import LeaseLedger, PodLedger
from gangline_e2e.scheduler import Gangline
from gangline_e2e.webhook import Webhook, insisting
from gangline_e2e.workloads import Manifest, Manifests, gpu_pod, is_bound
from gangline_webhook.registration import at_url, mutating, validating

NODES = "/api/v1/nodes"
CLAIMS = "/apis/gpu.scheduling/v1/namespaces/{}/gpuclaims"
SIZES = {"dgx_h100": 80, "hgx_a100": 80, "pcie_4": 310, "mig_4": 30}
H100 = {"matchLabels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}
FAST = {"mode": "Required", "minBandwidthGBps": 600}
OWN: dict[str, tuple[int, dict[str, Any]]] = {
    "one": (100, {"devices": {"count": 1}}),
    "h100": (40, {"devices": {"count": 2}, "selector": H100}),
    "pair": (120, {"devices": {"count": 2, "policy": "contiguous"}, "topology": {"mode": "Required"}}),
    "quad": (60, {"devices": {"count": 4}, "topology": FAST}),
    "eight": (40, {"devices": {"count": 8}, "topology": FAST}),
    "spread": (50, {"devices": {"count": 2, "policy": "spread"}}),
    "chosen": (50, {"devices": {"count": 2, "policy": "preferIds", "preferIds": [3, 1]}}),
    "third": (100, {"devices": {"exclusivity": "Shared", "fraction": 0.3}}),
    "memory": (100, {"devices": {"exclusivity": "Shared", "memoryGiB": 20}}),
    "slice": (230, {"devices": {"exclusivity": "MIG", "migProfile": "1g.10gb"}}),
    "slices": (35, {"devices": {"exclusivity": "MIG", "migProfile": "3g.40gb", "count": 2}}),
}
"""How many pods with a claim of their own, and its spec."""
TEMPLATES: dict[str, tuple[int, dict[str, Any]]] = {
    "all-one": (100, {"devices": {"count": 1}}),
    "all-two": (100, {"devices": {"count": 2}, "topology": {"mode": "Ignore"}}),
    "all-half": (100, {"devices": {"exclusivity": "Shared", "fraction": 0.5}}),
}
"""How many pods share the one claim."""
PLAIN = {1: 250, 2: 80, 4: 60, 8: 30}
"""How many pods without a claim, by their GPUs."""
SPARES = 450
"""Pods of one GPU that come last: more than there is room for."""
STALLED_S = 60.0
FREED_S = 10.0  # leases are looked through every 30 s; a deletion is heard of
VICTIMS = 3
"""Of each kind of pods."""

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900), pytest.mark.alone]


@dataclass
class Full:
    """A full cluster."""

    api: Api
    kubeconfig: Path
    statuses: Manifests
    webhook: Webhook
    ledger: PodLedger
    stored: Manifests = field(default_factory=list)
    """The pods as the API server stored them first."""

    async def claims(self) -> Claims:
        listed = await self.api.list(CLAIMS.format(self.api.namespace))
        return {each["metadata"]["name"]: each for each in listed}

    async def leases(self) -> Manifests:
        return await self.api.list(LEASES.format(self.api.namespace), labelSelector=MANAGED)

    def in_use(self) -> tuple[int, int]:
        """How many devices are in use, and how many MIG instances."""
        sliced = [pod for pod in self.ledger.pods.values() if is_bound(pod) and _kind(pod) in ("slice", "slices")]
        return len(self.ledger.holders), sum(len(pod["metadata"]["annotations"][UUIDS].split(",")) for pod in sliced)

    async def until_full(self) -> None:
        devices = [device for status in self.statuses for device in status["status"]["devices"]]
        every = len(devices), sum(len(device.get("migDevices", [])) for device in devices)
        what = f"every device and every MIG instance is in use: {every}"
        await self.api.until(_says(lambda: self.in_use() == every), what, STALLED_S, self.in_use)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(own_control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Full]:
    """500 nodes with agents, a scheduler and a webhook, and more pods than there is room for."""
    folder, kubeconfig = tmp_path_factory.mktemp("full"), own_control_plane.kubeconfig
    async with isolated(own_control_plane) as api, fleet(api, kubeconfig, folder, **SIZES) as statuses:
        ledger = PodLedger(api, _has_whole)
        following = asyncio.create_task(ledger.follow())
        scheduler = Gangline(kubeconfig, folder, configuration(api.namespace))
        with Webhook(kubeconfig, folder) as webhook, scheduler:
            await _register(api, webhook)
            cluster = Full(api, kubeconfig, statuses, webhook, ledger)
            cluster.stored = await _create_work(api)
            await cluster.until_full()
            yield cluster
        following.cancel()
    for log in (webhook.log.read_text(), scheduler.logs()):
        assert "Traceback" not in log, log[-10_000:]


async def test_no_device_gives_more_than_it_has_and_each_pod_has_what_its_claim_says(full: Full) -> None:
    pods, claims = await full.api.list(full.api.pods), await full.claims()

    assert faults(pods, claims, await full.api.list(NODE_STATUSES)) == []
    assert placements.faults(pods, await full.api.list(NODES)) == []
    assert full.ledger.doubles == []
    assert {_kind(pod) for pod in pods if is_bound(pod)} == {*OWN, *TEMPLATES, *(f"plain-{n}" for n in PLAIN), "spare"}


async def test_leases_annotations_and_claims_tell_the_same(full: Full) -> None:
    await _claims_tell(full)
    pods, leases = await _agreeing(full), await full.leases()

    names = {f"gpu-{node}-{id}" for pod in pods for node, id in devices_of(pod)}
    assert {lease["metadata"]["name"] for lease in leases} == names


async def test_kubectl_prints_claims_and_node_statuses_in_columns(full: Full) -> None:
    pods = await full.api.list(full.api.pods, labelSelector="kind=eight")
    pod = next(filter(is_bound, pods))
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    await _claims_tell(full)

    claims, statuses = await _kubectl(full, "get", "gclaim,gns")

    assert claims[0][:5] == ["NAME", "REQ", "POLICY", "TOPOLOGY", "ALLOCATED"]
    assert [f"gpuclaim.gpu.scheduling/{name}", "8", "contiguous", "Required", f"{node}:0,1,2,3,4,5,6,7"] in (
        row[:5] for row in claims
    )
    assert statuses[0][:3] == ["NAME", "NODE", "DEVICES"]
    assert [f"gpunodestatus.gpu.scheduling/{node}", node, "8"] in (row[:3] for row in statuses)


async def test_the_api_server_had_every_claim_pod_told_of_its_devices(full: Full) -> None:
    claiming = [pod for pod in full.stored if CLAIM in pod["metadata"].get("annotations", {})]

    assert full.webhook.reviews() >= len(claiming) == sum(n for n, _ in (*OWN.values(), *TEMPLATES.values()))
    for pod in claiming:
        assert pod["spec"]["containers"][0]["env"] == _told(_kind(pod)), _kind(pod)


async def test_deleted_pods_give_back_their_devices_and_no_others(full: Full) -> None:
    api = full.api
    pods, leases = await api.list(api.pods), await full.leases()
    victims = _some_of_each_kind(pods)
    gone = {(device, pod["metadata"]["uid"]) for pod in victims for device in devices_of(pod)}
    async with _following(full, len(leases)) as followed:
        start = time.monotonic()
        await api.delete_many(f"{api.pods}/{pod['metadata']['name']}" for pod in victims)
        await api.until(_says(lambda: gone <= followed.freed.keys()), "all their devices are given back")
        await full.until_full()

    slowest = max(followed.freed[device, uid] - full.ledger.left.get(uid, start) for device, uid in gone)
    print(f"{len(gone)} devices are given back within {slowest:.2f} s")
    assert slowest < FREED_S
    after = await _agreeing(full)
    assert faults(after, await full.claims(), full.statuses) == []
    assert followed.freed.keys() == gone
    uids = {pod["metadata"]["uid"] for pod in victims}
    assert _given(pods, without=uids).items() <= _given(after, without=uids).items()
    assert _versions(leases, without=uids).items() <= _versions(await full.leases(), without=uids).items()


async def _claims_tell(full: Full) -> None:
    """Wait until every claim tells of one of its pods: the statuses are written in the background."""

    async def tell() -> bool:
        return not misreported(await full.api.list(full.api.pods), await full.claims())

    await full.api.until(tell, "every claim tells of one of its pods", STALLED_S)


async def _agreeing(full: Full) -> Manifests:
    """All pods, once leases say the same as they do: a pod that shares a device is locked before it is bound."""

    async def agree() -> Manifests | None:
        pods = await full.api.list(full.api.pods)
        return pods if not disagreements(pods, await full.leases()) else None

    return await full.api.until(agree, "leases and annotations agree", STALLED_S)


def _says(holds: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    """A condition to wait for that asks nobody."""

    async def condition() -> bool:
        return holds()

    return condition


def _has_whole(pod: Manifest) -> bool:
    return _kind(pod) not in ("third", "memory", "slice", "slices", "all-half")


def _kind(pod: Manifest) -> str:
    kind: str = pod["metadata"]["labels"]["kind"]
    return kind


def _told(kind: str) -> Manifests:
    """What tells a container of its devices: ids as a device plugin counts whole ones, else what is allocated."""
    order = {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"}
    _, spec = (OWN | TEMPLATES)[kind]
    devices = spec["devices"]
    exclusivity = devices.get("exclusivity", "Exclusive")
    if exclusivity == "Exclusive":
        first = ",".join(map(str, range(devices["count"])))
        return [{"name": "CUDA_VISIBLE_DEVICES", "value": first}, order]
    annotation = UUIDS if exclusivity == "MIG" else ALLOCATED  # ids name no instance
    path = f"metadata.annotations['{annotation}']"
    variable = {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}
    told: Manifests = [{"name": "CUDA_VISIBLE_DEVICES", "valueFrom": variable}]
    return told if exclusivity == "MIG" else [*told, order]


async def _create_work(api: Api) -> Manifests:
    """Claims, and their pods in random order; the pods."""
    pods = [_pod(f"{kind}-{n}", kind, f"{kind}-{n}") for kind, (count, _) in OWN.items() for n in range(count)]
    pods += [_pod(f"{kind}-{n}", kind, kind) for kind, (count, _) in TEMPLATES.items() for n in range(count)]
    pods += [
        _pod(f"plain-{gpus}-{n}", f"plain-{gpus}", gpus=gpus) for gpus, count in PLAIN.items() for n in range(count)
    ]
    claims = [claim(f"{kind}-{n}", **spec) for kind, (count, spec) in OWN.items() for n in range(count)]
    await api.create_many(claims)
    for kind, (_, spec) in TEMPLATES.items():
        await api.create(claim(kind, **spec))
    await _webhook_knows(api, [*TEMPLATES][-1])
    random.Random(4).shuffle(pods)
    spares = [_pod(f"spare-{n}", "spare", gpus=1) for n in range(SPARES)]
    return await api.create_many([*pods, *spares])


async def _webhook_knows(api: Api, kind: str) -> None:
    """Wait until the webhook, which hears of claims by a watch, knows the claim that was created last."""

    async def knows() -> bool:
        dry = await api.request("POST", api.pods, _pod("probe", kind, kind), dryRun="All")
        return bool(dry["spec"]["containers"][0].get("env") == _told(kind))

    await api.until(knows, f"the webhook knows claim {kind}")


def _pod(name: str, kind: str, uses: str = "", gpus: int = 0) -> Manifest:
    notes = {CLAIM: uses} if uses else {}
    return gpu_pod(name, gpus=gpus, scheduler_name=SCHEDULER, labels={"kind": kind}, annotations=notes)


async def _register(api: Api, webhook: Webhook) -> None:
    """Have the API server call the webhook, and wait until it does."""
    for make, path in ((mutating, "/mutate"), (validating, "/validate")):
        await api.create(insisting(make("gpu-scheduler-webhook", at_url(webhook.url(path), webhook.authority))))

    async def called() -> bool:
        try:
            dry = await api.request("POST", api.pods, _pod("probe", "probe", "probe"), dryRun="All")
        except Refused:  # it knows an older registration
            return False
        return "env" in dry["spec"]["containers"][0]

    await api.until(called, "the API server calls the webhook")


@asynccontextmanager
async def _following(full: Full, count: int) -> AsyncIterator[LeaseLedger]:
    """What becomes of the leases in this block; there are so many."""
    ledger = LeaseLedger(full.api)
    task = asyncio.create_task(ledger.follow())
    await full.api.until(_says(lambda: len(ledger.holders) == count), "the leases are listed")
    yield ledger
    task.cancel()


async def _kubectl(full: Full, *words: str) -> list[list[list[str]]]:
    """The tables that kubectl prints, as rows of cells."""
    where = ["--kubeconfig", str(full.kubeconfig), "--namespace", full.api.namespace]
    process = await asyncio.create_subprocess_exec("kubectl", *where, *words, stdout=asyncio.subprocess.PIPE)
    printed, _ = await process.communicate()
    assert process.returncode == 0
    return [[row.split() for row in table.splitlines()] for table in printed.decode().strip().split("\n\n")]


def _some_of_each_kind(pods: Manifests) -> Manifests:
    by_kind: dict[str, Manifests] = defaultdict(list)
    for pod in filter(is_bound, pods):
        by_kind[_kind(pod)].append(pod)
    return [pod for each in by_kind.values() for pod in random.Random(9).sample(each, VICTIMS)]


def _given(pods: Manifests, without: set[str]) -> dict[str, object]:
    """UID to where a bound pod is and what it has."""
    return {
        pod["metadata"]["uid"]: (pod["spec"]["nodeName"], pod["metadata"]["annotations"][UUIDS], devices_of(pod))
        for pod in filter(is_bound, pods)
        if pod["metadata"]["uid"] not in without
    }


def _versions(leases: Manifests, without: set[str]) -> dict[str, str]:
    """The resource versions of leases that none of these pods holds, by UID."""
    return {
        lease["metadata"]["uid"]: lease["metadata"]["resourceVersion"]
        for lease in leases
        if not any(uids & without for uids in locked([lease]).values())
    }
