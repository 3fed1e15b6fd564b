"""Listeners for stores: they report claims by UID, nodes whose labels have changed, and objects together with their
state before the change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangline import model


class ClaimListener:
    """Reports claims that were added, changed or deleted. A claim of the same name with another UID is a new claim, so
    the claim before counts as deleted.
    """

    def __init__(self, learn: Callable[[model.ResourceClaim], None], gone: Callable[[str], None]) -> None:
        self._learn = learn
        self._gone = gone
        self._uids: dict[tuple[str, str], str] = {}

    def on_upsert(self, claim: model.ResourceClaim) -> None:
        """A claim was added or has changed."""
        key = claim.metadata.namespace, claim.metadata.name
        before = self._uids.get(key)
        if before is not None and before != claim.metadata.uid:
            self._gone(before)
        self._uids[key] = claim.metadata.uid
        self._learn(claim)

    def on_remove(self, claim: model.ResourceClaim) -> None:
        """A claim was deleted."""
        self._uids.pop((claim.metadata.namespace, claim.metadata.name), None)
        self._gone(claim.metadata.uid)


class NodeLabels:
    """Reports the names of nodes that were added or deleted, or whose labels have changed."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._labels: dict[str, dict[str, str]] = {}
        self._tell = tell

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node was added or has changed."""
        labels = dict(node.metadata.labels or {})
        if self._labels.get(node.metadata.name) != labels:
            self._labels[node.metadata.name] = labels
            self._tell(node.metadata.name)

    def node_removed(self, name: str, row: int) -> None:
        """A node was deleted."""
        if self._labels.pop(name, None) is not None:
            self._tell(name)


class KeptListener:
    """Reports each change of an object with its state before and after; None if there is no object."""

    def __init__(self, tell: Callable[[Any, Any], None]) -> None:
        self._objects: dict[str, Any] = {}
        self._tell = tell

    def on_upsert(self, obj: Any) -> None:
        """An object was added or has changed."""
        before = self._objects.get(obj.metadata.name)
        self._objects[obj.metadata.name] = obj
        self._tell(before, obj)

    def on_remove(self, obj: Any) -> None:
        """An object was deleted."""
        self._tell(self._objects.pop(obj.metadata.name, None), None)
