"""Write kubeconfig files with everything embedded, so that one file is all a client needs."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import yaml

from gangline_e2e.certificates import Pair


def write(path: Path, url: str, authority: Path, client: Pair, user: str) -> None:
    """Write a kubeconfig for one user of one cluster, readable by its owner alone."""
    credentials = {
        "client-certificate-data": _embed(client.certificate),
        "client-key-data": _embed(client.key),
    }
    name = "gangline-e2e"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": url, "certificate-authority-data": _embed(authority)},
            }
        ],
        "users": [{"name": user, "user": credentials}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
    }
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        yaml.safe_dump(config, file, sort_keys=False)


def _embed(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()
