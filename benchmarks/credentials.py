"""Credentials as a pod has them: the token of a ServiceAccount. To check one costs the API server less than a client
certificate.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from gangline_e2e.api import Api

NAMESPACE = "kube-system"
NAME = "scheduler"
LIFETIME_S = 3600


async def service_account(cluster: Api, kubeconfig: Path) -> Path:
    """A kubeconfig beside this one, with the token of a new ServiceAccount that may do everything."""
    await cluster.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}}
    )
    await cluster.create(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        }
    )
    made = await cluster.request(
        "POST",
        f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{NAME}/token",
        {"spec": {"expirationSeconds": LIFETIME_S}},
    )
    return _with_token(kubeconfig, made["status"]["token"])


def _with_token(kubeconfig: Path, token: str) -> Path:
    config = yaml.safe_load(kubeconfig.read_text())
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    file = kubeconfig.with_name("scheduler.kubeconfig")
    file.touch(0o600)
    file.write_text(yaml.safe_dump(config))
    return file
