"""Decide which cluster the end-to-end tests use, and hold it for as long as they need it.

In this order: the cluster that $GANGLINE_E2E_KUBECONFIG names (nothing is started), one made by
kwokctl if it is on PATH, or a control plane of our own from the built programs. The first two
cannot be given options, so tests that need options always get their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from gangline_e2e import binaries
from gangline_e2e.errors import HarnessError, StartFailed
from gangline_e2e.harness import ControlPlane, Options

KUBECONFIG = "GANGLINE_E2E_KUBECONFIG"


class Cluster(Protocol):
    """What every source gives: a kubeconfig, and whether new namespaces get service accounts."""

    kubeconfig: Path
    has_service_accounts: bool


class GivenCluster:
    """A cluster that somebody else runs."""

    has_service_accounts = True

    def __init__(self, kubeconfig: Path) -> None:
        if not kubeconfig.is_file():
            raise HarnessError(f"{KUBECONFIG}: no file {kubeconfig}")
        self.kubeconfig = kubeconfig


class KwokctlCluster:
    """A cluster made by kwokctl with its binary runtime."""

    has_service_accounts = True

    def __init__(self, kwokctl: str, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self._command = [kwokctl, "--name", f"gangline-e2e-{os.getpid()}"]

    def start(self) -> None:
        """Create the cluster and wait until it is ready, without touching the user's kubeconfig."""
        self._run(
            "create",
            "cluster",
            "--runtime=binary",
            "--wait=120s",
            f"--kubeconfig={self.kubeconfig}",
        )

    def stop(self) -> None:
        """Delete the cluster."""
        self._run("delete", "cluster", f"--kubeconfig={self.kubeconfig}")

    def _run(self, *args: str) -> None:
        command = [*self._command, *args]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise StartFailed(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")


@contextmanager
def cluster(folder: Path, options: Options | None = None, env: Mapping[str, str] = os.environ) -> Iterator[Cluster]:
    """A running cluster, stopped at the end if it was started here; else NoControlPlane."""
    if options is None and (given := env.get(KUBECONFIG)):
        yield GivenCluster(Path(given))
    elif options is None and (kwokctl := shutil.which("kwokctl", path=env.get("PATH"))):
        made = KwokctlCluster(kwokctl, folder)
        try:
            made.start()
            yield made
        finally:
            made.stop()
    else:
        with ControlPlane(folder, options, binaries.find(env)) as own:
            yield own
