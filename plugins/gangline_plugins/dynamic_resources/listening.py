"""Listeners: they tell of claims by UID, of labels of nodes, and of other objects with what these were before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangline import model


class ClaimListener:
    """Tells which claims come, change and go; a claim of another UID with the same name is another claim."""

    def __init__(self, learn: Callable[[model.ResourceClaim], None], gone: Callable[[str], None]) -> None:
        self._learn = learn
        self._gone = gone
        self._uids: dict[tuple[str, str], str] = {}

    def on_upsert(self, claim: model.ResourceClaim) -> None:
        """A claim came or has changed."""
        key = claim.metadata.namespace, claim.metadata.name
        before = self._uids.get(key)
        if before is not None and before != claim.metadata.uid:
            self._gone(before)
        self._uids[key] = claim.metadata.uid
        self._learn(claim)

    def on_remove(self, claim: model.ResourceClaim) -> None:
        """A claim went."""
        self._uids.pop((claim.metadata.namespace, claim.metadata.name), None)
        self._gone(claim.metadata.uid)


class NodeLabels:
    """Tells which nodes come, go, or get other labels."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._labels: dict[str, dict[str, str]] = {}
        self._tell = tell

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node came or has changed."""
        labels = dict(node.metadata.labels or {})
        if self._labels.get(node.metadata.name) != labels:
            self._labels[node.metadata.name] = labels
            self._tell(node.metadata.name)

    def node_removed(self, name: str, row: int) -> None:
        """A node went."""
        if self._labels.pop(name, None) is not None:
            self._tell(name)


class KeptListener:
    """Tells of changes of objects with what they were before."""

    def __init__(self, tell: Callable[[Any, Any], None]) -> None:
        self._objects: dict[str, Any] = {}
        self._tell = tell

    def on_upsert(self, obj: Any) -> None:
        """An object came or has changed."""
        before = self._objects.get(obj.metadata.name)
        self._objects[obj.metadata.name] = obj
        self._tell(before, obj)

    def on_remove(self, obj: Any) -> None:
        """An object went."""
        self._tell(self._objects.pop(obj.metadata.name, None), None)
