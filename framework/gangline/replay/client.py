"""The API server of a replay: bindings and evictions are carried out, other writes succeed and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gangline.kube.interface import NoClient
from gangline.kube.resources import PODS, Resource

Bound = Callable[[str, str, Mapping[str, str]], None]
"""Called with the UID of a pod, its node and the annotations that it gets."""


class ReplayClient(NoClient):
    """The client of a replay. Reads are refused: plugins find everything that they need in the cache."""

    def __init__(self, bound: Bound, evicted: Callable[[str], None]) -> None:
        self._bound = bound
        self._evicted = evicted

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Put the pod on the node."""
        self._bound(uid, node, annotations)

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """End the pod."""
        self._evicted(uid)

    async def delete(self, resource: Resource[Any], name: str, *, uid: str | None = None, **others: Any) -> None:
        """End the pod; objects of other kinds are not deleted."""
        if resource == PODS:
            self._evicted(uid or name)

    async def patch(self, resource: Resource[Any], name: str, patch: Mapping[str, Any], **others: Any) -> Any:
        """Change nothing: patches write a status, which nobody reads here. The answer has the name and nothing else."""
        return msgspec.convert({"metadata": {"name": name, "namespace": others.get("namespace") or ""}}, resource.type)
