"""An API server that serves dynamic resource allocation only in an older version, as a client sees it."""

from __future__ import annotations

from pathlib import Path

from gangline.kube import auth
from gangline.kube.client import HttpClient
from gangline_e2e.harness import Options

GROUP = "resource.k8s.io"
ALL_VERSIONS = Options(kwok=False, apiserver_args=(f"--runtime-config={GROUP}/v1beta2=true,{GROUP}/v1beta1=true",))


class OneVersion(HttpClient):
    """A client that sees only one version: a real server of 1.36 cannot be made to serve no v1."""

    def __init__(self, kubeconfig: Path, version: str) -> None:
        super().__init__(auth.load(str(kubeconfig)))
        self.version = version

    async def __aenter__(self) -> OneVersion:
        return self

    async def served(self, group: str, version: str) -> set[str]:
        """See the interface."""
        return await super().served(group, version) if group != GROUP or version == self.version else set()
