"""`gangline certs ensure` makes, keeps and renews what a real API server needs to call the webhook."""

from __future__ import annotations

import asyncio
import base64
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gangline_e2e.api import Api
from gangline_e2e.errors import Refused
from gangline_e2e.harness import ControlPlane
from gangline_e2e.webhook import Webhook, insisting
from gangline_e2e.workloads import Manifest, gpu_pod
from gangline_webhook.registration import at_service, mutating, validating

SERVICE = "gpu-scheduler-webhook"
SECRET = "gpu-scheduler-webhook-cert"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
BEGIN = b"BEGIN CERTIFICATE"

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, slots=True)
class Installed:
    """A webhook whose registrations trust nobody yet and refuse every pod that it does not review."""

    api: Api
    kubeconfig: Path
    folder: Path
    webhook: Webhook
    name: str

    async def ensure(self, *options: str) -> str:
        """Run `gangline certs ensure`; what it says."""
        where = [f"--namespace={self.api.namespace}", f"--service={SERVICE}", f"--secret={SECRET}"]
        registrations = [f"--mutating-webhook={self.name}", f"--validating-webhook={self.name}"]
        words = ["certs", "ensure", *where, *registrations, f"--kubeconfig={self.kubeconfig}", *options]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gangline", *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        out, error = await process.communicate()
        assert process.returncode == 0 and out.count(b"\n") == 1, error.decode()
        return out.decode()

    async def secret(self) -> Manifest:
        return await self.api.get(f"/api/v1/namespaces/{self.api.namespace}/secrets/{SECRET}")

    async def data(self) -> dict[str, bytes]:
        """The files of the Secret."""
        return {name: base64.b64decode(text) for name, text in (await self.secret())["data"].items()}

    async def registrations(self) -> list[Manifest]:
        paths = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        return [await self.api.get(f"{ADMISSION}/{path}/{self.name}") for path in paths]

    async def trusted(self) -> set[bytes]:
        """The different caBundles of all webhooks."""
        webhooks = [webhook for each in await self.registrations() for webhook in each["webhooks"]]
        return {base64.b64decode(webhook["clientConfig"].get("caBundle", "")) for webhook in webhooks}

    async def mount(self) -> None:
        """Do what the kubelet does: put the Secret's files where the webhook reads them."""
        for name, content in (await self.data()).items():
            (self.folder / name).write_bytes(content)

    async def called(self) -> bool:
        """Create a pod; an error if the API server cannot call the webhook."""
        pod = gpu_pod("probe", scheduler_name="gpu-scheduler")
        pod["metadata"]["annotations"] = {"gpu-scheduling-map": "0=node-a:0"}
        pod["metadata"]["labels"] = {"batch.kubernetes.io/job-completion-index": "0"}
        stored = await self.api.request("POST", self.api.pods, pod, dryRun="All")
        return "env" in stored["spec"]["containers"][0]

    async def start(self) -> None:
        """Start the webhook and wait until the API server, which learns by a watch whom to trust, can call it."""

        async def called() -> bool:
            try:
                return await self.called()
            except Refused:
                return False

        await self.mount()
        self.webhook.start()
        await self.api.until(called, "the API server calls the webhook")

    async def served_to(self, authority: bytes) -> bool:
        """Whether a client that trusts this authority alone can speak with the webhook by its Service's name."""
        port = urlsplit(self.webhook.url("/")).port
        context = ssl.create_default_context(cadata=authority.decode())
        name = f"{SERVICE}.{self.api.namespace}.svc"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
        except ssl.SSLCertVerificationError:
            return False
        writer.close()
        with suppress(OSError):  # the webhook may end the connection first
            await writer.wait_closed()
        return True


@pytest.fixture
async def installed(empty: Api, own_control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Installed]:
    """The API server reaches the webhook by the name of a Service, which leads to this machine."""
    webhook = Webhook(own_control_plane.kubeconfig, tmp_path)
    port = urlsplit(webhook.url("/")).port
    await empty.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": SERVICE},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        }
    )
    made = Installed(empty, own_control_plane.kubeconfig, tmp_path, webhook, f"certs-{empty.namespace}")
    for path, registration in (("/mutate", mutating), ("/validate", validating)):
        client = at_service(empty.namespace, SERVICE, path, b"")
        client["service"]["port"] = port
        await empty.create(insisting(registration(made.name, client)))
    yield made
    webhook.stop()


async def test_the_first_run_makes_what_the_api_server_calls_the_webhook_with(installed: Installed) -> None:
    said = await installed.ensure()

    assert said.startswith(f"secret {installed.api.namespace}/{SECRET}: created") and said.count("written") == 2
    assert (await installed.secret())["type"] == "kubernetes.io/tls"
    assert await installed.trusted() == {(await installed.data())["ca.crt"]}
    await installed.start()


async def test_a_second_run_changes_nothing(installed: Installed) -> None:
    await installed.ensure()
    before = [each["metadata"] for each in (await installed.secret(), *await installed.registrations())]

    said = await installed.ensure()

    assert said.count("unchanged") == 3
    assert before == [each["metadata"] for each in (await installed.secret(), *await installed.registrations())]


async def test_the_api_server_goes_on_calling_while_a_certificate_is_replaced(installed: Installed) -> None:
    await installed.ensure()
    await installed.start()
    old = (await installed.data())["ca.crt"]

    said = await installed.ensure("--days=800", "--renew-before=400")

    authorities = (await installed.data())["ca.crt"]
    new = authorities.removesuffix(old)
    assert "renewed" in said and authorities == new + old and new.count(BEGIN) == 1
    assert await installed.trusted() == {authorities}
    for _ in range(20):  # the webhook still has the old certificate
        assert await installed.called()
    await installed.mount()
    await installed.api.until(lambda: installed.served_to(new), "the webhook has the new certificate")
    assert not await installed.served_to(old)
    for _ in range(20):
        assert await installed.called()
    assert installed.webhook.alive() and "Traceback" not in installed.webhook.log.read_text()


async def test_runs_at_once_agree_on_one_certificate(installed: Installed) -> None:
    said = await asyncio.gather(*(installed.ensure() for _ in range(3)))

    assert sum(": created" in each for each in said) == 1
    authority = (await installed.data())["ca.crt"]
    assert all(authority in each for each in await installed.trusted())
    again = await installed.ensure()
    assert again.count("unchanged") == 3
