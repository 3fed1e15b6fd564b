"""Listeners of stores: they tell of claims by UID, and of changes of other objects with what these were before."""

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


class Kept:
    """Tells of changes of objects with what they were before."""

    def __init__(self, objects: dict[str, Any], tell: Callable[[Any, Any], None]) -> None:
        self._objects = objects
        self._tell = tell

    def on_upsert(self, obj: Any) -> None:
        """An object came or has changed."""
        before = self._objects.get(obj.metadata.name)
        self._objects[obj.metadata.name] = obj
        self._tell(before, obj)

    def on_remove(self, obj: Any) -> None:
        """An object went."""
        self._tell(self._objects.pop(obj.metadata.name, None), None)
