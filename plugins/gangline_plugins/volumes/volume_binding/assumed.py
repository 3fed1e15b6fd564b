"""Objects as they will be after this scheduler's writes, until the watch delivers them.

An assumption is valid only while the stored object has the resourceVersion that the assumption was made from, so each
newer object from the API server ends it.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from gangline import model

T = TypeVar("T", model.PersistentVolume, model.PersistentVolumeClaim)


class Assumed(Generic[T]):
    """The objects of one store, with assumptions laid over them."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._assumed: dict[tuple[str, str], T] = {}

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object as assumed, or as stored, or None."""
        stored: T | None = self._store.get(name, namespace)
        return None if stored is None else self.over(stored)

    def over(self, stored: T) -> T:
        """The assumption about a stored object, or the object itself."""
        assumed = self._assumed.get(_key(stored))
        return assumed if assumed is not None and _same_version(assumed, stored) else stored

    def assume(self, obj: T) -> bool:
        """Assume obj; False if it was made from a version that is no longer the stored one."""
        self._expire()
        stored: T | None = self._store.get(obj.metadata.name, obj.metadata.namespace)
        if stored is None or not _same_version(obj, stored):
            return False
        self._assumed[_key(obj)] = obj
        return True

    def restore(self, obj: T) -> None:
        """Remove the assumption obj; a later assumption stays."""
        if self._assumed.get(_key(obj)) is obj:
            del self._assumed[_key(obj)]

    def assumed(self) -> list[T]:
        """The stored objects for which there is an assumption."""
        self._expire()
        stored: list[T] = [self._store.get(name, namespace) for namespace, name in self._assumed]
        return stored

    def _expire(self) -> None:
        for key, assumed in list(self._assumed.items()):
            stored = self._store.get(key[1], key[0])
            if stored is None or not _same_version(assumed, stored):
                del self._assumed[key]


def _key(obj: T) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name


def _same_version(one: T, other: T) -> bool:
    return one.metadata.resource_version == other.metadata.resource_version
