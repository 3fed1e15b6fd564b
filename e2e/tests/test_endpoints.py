"""An operator scrapes the scheduler: health is open, the rest is for whom the API server lets see it.

A scheduler whose loop is held answers and keeps its lease for a while, but not for good.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from gangline_e2e.api import Api
from gangline_e2e.asking import is_allowed
from gangline_e2e.harness import ControlPlane
from gangline_e2e.scheduler import Gangline, configuration, election, profile
from gangline_e2e.workloads import Manifest, gpu_pod, is_bound, kwok_node

OURS = "gangline"
RBAC = "rbac.authorization.k8s.io"
PLUGIN = '''
import time
from gangline import hookimpl

class Held:
    """Holds the loop for as many seconds as a pod says."""

    name = "Held"

    @hookimpl
    def pre_filter(self, pod):
        seconds = float(pod.annotations.get("example.com/hold", 0))
        if seconds:
            print("the loop is held", flush=True)
            time.sleep(seconds)
'''
LEASE_S = 10.0
HOLD_S = 1.6 * LEASE_S
ANSWERED_S = 0.8 * HOLD_S
"""A loop that is held would answer only after nearly all of the time for which it is held."""

pytestmark = pytest.mark.timeout(240)
StartGangline = Callable[..., Gangline]


@pytest.fixture
def holding(tmp_path: Path) -> Path:
    """A folder with a plugin that holds the loop, as pip would install it."""
    folder = tmp_path / "site"
    info = folder / "held-1.dist-info"
    info.mkdir(parents=True)
    (folder / "held.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: held\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[gangline.plugins]\nHeld = held:Held\n")
    return folder


async def test_metrics_are_for_whom_the_api_server_lets_see_them(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    allowed, other = [await _token(empty, name) for name in ("prometheus", "somebody")]
    await _may_scrape(empty, "prometheus")
    await empty.until(lambda: _role_counts(empty, "prometheus"), "the role counts")
    scheduler = start_gangline(own_control_plane.kubeconfig, configuration(profile(OURS)))

    for path in ("/metrics", "/configz"):
        url = scheduler.secure_url + path
        assert [await _status(url, token) for token in ("", "made-up", other, allowed)] == [401, 401, 403, 200], path
    assert await _status(f"{scheduler.secure_url}/version", other) == 200  # as the API server lets everybody it knows
    assert [await _status(scheduler.secure_url + path, "") for path in ("/healthz", "/livez", "/readyz")] == [200] * 3


async def test_an_administrators_certificate_lets_in(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline
) -> None:
    scheduler = start_gangline(own_control_plane.kubeconfig, configuration(profile(OURS)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    pki = own_control_plane.folder / "pki"
    context.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    async def let_in() -> bool:
        """The authority of clients is read a moment after the start."""
        return await _status(f"{scheduler.secure_url}/metrics", "", context) == 200

    await empty.until(let_in, "the certificate lets in")


async def test_a_leader_whose_loop_is_held_for_longer_than_its_lease_keeps_it_and_answers(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, holding: Path
) -> None:
    config = configuration(profile(OURS, enabled=[{"name": "Held"}]), leaderElection=election(empty, OURS, LEASE_S))
    await empty.create(kwok_node("node-0"))
    scheduler = start_gangline(own_control_plane.kubeconfig, config, leader_elect=True, python_path=holding)
    before = await _lease(empty, lambda spec: bool(spec.get("holderIdentity")))
    start_gangline(own_control_plane.kubeconfig, config, leader_elect=True, python_path=holding)

    await empty.create(gpu_pod("slow", scheduler_name=OURS, annotations={"example.com/hold": str(HOLD_S)}))
    pods = asyncio.create_task(empty.wait_for(empty.pods, is_bound, 1))
    await _held(empty, scheduler)
    answers = 0
    while not pods.done():
        async with asyncio.timeout(ANSWERED_S):
            assert await _status(f"{scheduler.url}/livez", "") == 200
            assert await _status(f"{scheduler.url}/metrics", "") == 200
        answers += 1
        await asyncio.wait((pods,), timeout=0.2)
    await pods
    assert answers

    after = await _lease(empty, bool)
    assert after["holderIdentity"] == before["holderIdentity"]
    assert after["leaseTransitions"] == before["leaseTransitions"]


async def test_a_leader_whose_loop_hangs_fails_its_probe_and_another_schedules(
    empty: Api, own_control_plane: ControlPlane, start_gangline: StartGangline, holding: Path
) -> None:
    config = configuration(profile(OURS, enabled=[{"name": "Held"}]), leaderElection=election(empty, OURS, LEASE_S))
    await empty.create(kwok_node("node-0"))
    options = {"leader_elect": True, "python_path": holding, "more": ("--hang-limit", "2")}
    scheduler = start_gangline(own_control_plane.kubeconfig, config, **options)
    before = await _lease(empty, lambda spec: bool(spec.get("holderIdentity")))
    await empty.create(gpu_pod("hangs", scheduler_name=OURS, annotations={"example.com/hold": "600"}))

    await _held(empty, scheduler)

    async def fails() -> bool:
        return await _status(f"{scheduler.url}/livez", "") == 500

    await empty.until(fails, "the leader fails its probe")
    await empty.delete(f"{empty.pods}/hangs", at_once=True)
    start_gangline(own_control_plane.kubeconfig, config, **options)
    await empty.create(gpu_pod("good", scheduler_name=OURS))
    await empty.wait_for(empty.pods, is_bound, 1)

    assert (await _lease(empty, bool))["holderIdentity"] != before["holderIdentity"]
    scheduler.kill()


async def _held(api: Api, scheduler: Gangline) -> None:
    """Wait until a pod holds the loop of a scheduler."""

    async def said() -> bool:
        return "the loop is held" in scheduler.logs()

    await api.until(said, "the loop is held")


async def _role_counts(api: Api, account: str) -> bool:
    """Whether the API server knows by now what an account may scrape: roles count a moment after they are made."""
    user = f"system:serviceaccount:{api.namespace}:{account}"
    return await is_allowed(api, user, nonResourceAttributes={"path": "/metrics", "verb": "get"})


async def _lease(api: Api, wanted: Callable[[Manifest], bool]) -> Manifest:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{api.namespace}/leases"

    async def found() -> Manifest | None:
        specs = [lease["spec"] for lease in await api.list(path) if lease["metadata"]["name"] == OURS]
        return next(filter(wanted, specs), None)

    return await api.until(found, "the lease is there")


async def _status(url: str, token: str, context: ssl.SSLContext | bool = False) -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.request("GET", url, headers=headers, ssl=context) as answer:
        return answer.status


async def _token(api: Api, name: str) -> str:
    """A token of a new ServiceAccount."""
    await api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{api.namespace}/serviceaccounts/{name}/token"
    token: str = (await api.request("POST", path, request))["status"]["token"]
    return token


async def _may_scrape(api: Api, account: str) -> None:
    name = f"{api.namespace}-scrapes"
    head = {"apiVersion": f"{RBAC}/v1", "metadata": {"name": name}}
    rules = [{"nonResourceURLs": ["/metrics", "/configz"], "verbs": ["get"]}]
    await api.create({**head, "kind": "ClusterRole", "rules": rules})
    subject = {"kind": "ServiceAccount", "name": account, "namespace": api.namespace}
    role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    await api.create({**head, "kind": "ClusterRoleBinding", "subjects": [subject], "roleRef": role})
