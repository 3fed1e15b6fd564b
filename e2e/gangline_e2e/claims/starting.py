"""Starts kube-scheduler for stories of claims, with the rights that it has in a real cluster."""

from __future__ import annotations

import yaml

from gangline_e2e.harness import ControlPlane
from gangline_e2e.processes import Process
from gangline_e2e.scheduler import configuration

USER = "system:kube-scheduler"


def start_kube_scheduler(plane: ControlPlane, *words: str) -> Process:
    """kube-scheduler with its own configuration and user, and with these words on its command line."""
    config = configuration()
    config["clientConnection"] = {"kubeconfig": str(plane.kubeconfig_for(USER))}
    file = plane.folder / "kube-scheduler.yaml"
    file.write_text(yaml.safe_dump(config))
    return plane.start_scheduler([f"--config={file}", *words])
