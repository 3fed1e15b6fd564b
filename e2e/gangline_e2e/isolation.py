"""Give a test a clean place on a cluster that it shares, and leave nothing behind."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gangline_e2e.api import Api, connect
from gangline_e2e.errors import Refused
from gangline_e2e.sources import Cluster


@asynccontextmanager
async def isolated(cluster: Cluster) -> AsyncIterator[Api]:
    """An administrator's client with a new namespace.

    At the end everything in the namespace is deleted, and the nodes and other cluster-wide objects
    that were created through the client.
    """
    namespace = f"e2e-{secrets.token_hex(4)}"
    async with connect(cluster.kubeconfig, namespace) as api:
        await api.request("POST", "/api/v1/namespaces", _namespace(namespace))
        try:
            if cluster.has_service_accounts:
                await _await_service_account(api)
            yield api
        finally:
            await api.sweep()
            await api.drop_namespace()


async def _await_service_account(api: Api) -> None:
    """Wait until pods can be created: each needs the service account that a controller makes."""
    path = f"/api/v1/namespaces/{api.namespace}/serviceaccounts/default"

    async def made() -> bool:
        try:
            await api.get(path)
        except Refused as error:
            if error.status != 404:
                raise
            return False
        return True

    await api.until(made, f"{path} exists")


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
