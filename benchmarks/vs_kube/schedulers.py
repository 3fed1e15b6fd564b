"""Starts kube-scheduler and Gangline on a control plane."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gangline_e2e.harness import ControlPlane
from gangline_e2e.ports import free_port

KUBE_SCHEDULER = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
clientConnection: {{kubeconfig: {kubeconfig}, qps: 5000, burst: 5000}}
profiles:
- schedulerName: kube
"""
GANGLINE = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: gangline
"""


def kube_scheduler(plane: ControlPlane, kubeconfig: Path, args: tuple[str, ...]) -> Callable[[], int]:
    """A function that starts kube-scheduler, until the control plane stops, and returns its process id."""
    config = plane.folder / "kube-scheduler.yaml"
    config.write_text(KUBE_SCHEDULER.format(kubeconfig=kubeconfig))
    command = [f"--config={config}", f"--secure-port={free_port()}", *args]
    return lambda: plane.start_component("kube-scheduler", command).pid


@contextmanager
def gangline(kubeconfig: Path, folder: Path, profile: str) -> Iterator[Callable[[], int]]:
    """A function that starts Gangline, until the block ends, and returns its process id."""
    config = folder / "gangline.yaml"
    config.write_text(profile)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed program has its byte code
    command = [sys.executable, "-m", "gangline", "run", "--config", str(config), "--kubeconfig", str(kubeconfig)]
    command += ["--no-leader-elect", "--listen", f"127.0.0.1:{free_port()}", "--secure-listen", "127.0.0.1:0"]
    processes: list[subprocess.Popen[bytes]] = []

    def start() -> int:
        with (folder / "gangline.log").open("ab") as log:
            processes.append(subprocess.Popen(command, stderr=log, stdout=log, env=environment))
        return processes[-1].pid

    try:
        yield start
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(30)
