"""Run `gangline webhook` as a program of its own, with certificates that it and the API server trust."""

from __future__ import annotations

import re
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gangline_e2e import processes
from gangline_e2e.api import Api
from gangline_e2e.certificates import Authority
from gangline_e2e.errors import StartFailed
from gangline_e2e.ports import free_ports
from gangline_e2e.workloads import Manifest, cuda_devices

START_S = 90.0
METRICS_S = 30.0
TIMEOUT_S = 30
"""The most that the API server can be told to wait for an answer."""


def patient(configuration: Manifest) -> Manifest:
    """The configuration of webhooks for tests: the API server waits for an answer as long as it can, since it would
    store what nobody has looked at, or refuse all, while the webhook stands still.
    """
    webhooks = [{**each, "timeoutSeconds": TIMEOUT_S} for each in configuration["webhooks"]]
    return {**configuration, "webhooks": webhooks}


def insisting(configuration: Manifest) -> Manifest:
    """As `patient`; then the API server refuses what the webhook has not reviewed."""
    webhooks = [{**each, "failurePolicy": "Fail"} for each in patient(configuration)["webhooks"]]
    return {**configuration, "webhooks": webhooks}


async def until_called(api: Api, probe: Manifest) -> None:
    """Wait until the API server calls the webhook for a pod, as it would have devices: it learns of new configurations
    by a watch.
    """

    async def called() -> bool:
        dry = await api.request("POST", api.pods, probe, dryRun="All")
        return cuda_devices(dry) is not None

    await api.until(called, "the API server calls the webhook")


class Webhook:
    """A webhook process; its certificate files stand in ``folder`` and can be replaced.

    As a context manager it starts on entry, and on exit it stops.
    """

    def __init__(
        self,
        kubeconfig: Path,
        folder: Path,
        scheduler_names: Sequence[str] = ("gpu-scheduler",),
        enforcement: str = "device-plugin",
    ) -> None:
        self._kubeconfig = kubeconfig
        self._folder = folder
        self._scheduler_names = scheduler_names
        self._enforcement = enforcement
        self._port, self._health = free_ports(2)
        self._process: processes.Process | None = None
        self._authorities = 0
        self.log = folder / "webhook.log"
        self.authority = self.renew()

    def renew(self) -> bytes:
        """Replace the certificate by one of a new authority, whose own certificate is returned."""
        self._authorities += 1
        authority = Authority(self._folder / f"pki-{self._authorities}", "authority")
        pair = authority.server("webhook")
        for source, name in ((pair.certificate, "tls.crt"), (pair.key, "tls.key")):
            shutil.copy(source, self._folder / name)
        self.authority = authority.certificate.read_bytes()
        return self.authority

    def url(self, path: str) -> str:
        """Where the API server reaches it; it is to trust `authority`."""
        return f"https://127.0.0.1:{self._port}{path}"

    def start(self) -> None:
        """Start it and wait until it is ready."""
        files = [f"--tls-cert-file={self._folder}/tls.crt", f"--tls-private-key-file={self._folder}/tls.key"]
        places = [
            f"--addr=127.0.0.1:{self._port}",
            f"--listen=127.0.0.1:{self._health}",
            "--plain-metrics",
            "--secure-listen=",
        ]
        served = [f"--kubeconfig={self._kubeconfig}", *(f"--scheduler-name={name}" for name in self._scheduler_names)]
        served.append(f"--enforcement={self._enforcement}")
        command = [sys.executable, "-m", "gangline", "webhook", *files, *places, *served]
        process = self._process = processes.start("webhook", command, self.log)
        deadline = time.monotonic() + START_S
        while self._get("/readyz") != "ok":
            if not process.alive() or time.monotonic() > deadline:
                raise StartFailed(f"webhook: not ready: {processes.last_lines(self.log)}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Stop it; fine if it has ended."""
        if self._process is not None:
            processes.stop([self._process], 10)

    def alive(self) -> bool:
        """Whether it runs."""
        return self._process is not None and self._process.alive()

    def reviews(self) -> int:
        """How many reviews it has answered."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/metrics", timeout=METRICS_S) as answer:
            metrics = answer.read().decode()
        counts = re.findall(r"^gangline_webhook_requests_total\{.*\} ([0-9.]+)$", metrics, re.MULTILINE)
        return int(sum(map(float, counts)))

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _get(self, path: str) -> str:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return ""
