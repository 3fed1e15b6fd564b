"""Remembers from which objects an answer was read, so that it is read again only when one of them has changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangline.groups.reading import Lookup
from gangline.kube.resources import Resource
from gangline.model import Job, JobSet, OwnerReference

_STATUS_COUNTS = (Job, JobSet)
"""Kinds whose status says how many pods are still to be created."""

Place = tuple[str, str, str]
"""The key of a store, a namespace and a name."""
Found = dict[Place, tuple[Callable[..., Any], Any]]
"""For each place a function that gets the object there, and the object that was there."""


class Sight:
    """Objects that were looked up, including missing ones."""

    __slots__ = ("found",)

    def __init__(self, found: Found) -> None:
        self.found = found

    def holds(self) -> bool:
        """Whether all objects are the same as before, ignoring changes that do not matter to groups."""
        for place, (get, before) in self.found.items():
            now = get(place[2], place[1])
            if now is before:
                continue
            if not _alike(before, now):
                return False
            self.found[place] = (get, now)
        return True


class Seen:
    """A lookup that remembers what it was asked for."""

    def __init__(
        self, lookup: Lookup, chains: Callable[[OwnerReference, str], tuple[Any, Sight]] | None = None
    ) -> None:
        self._lookup = lookup
        self._chains = chains
        self._found: Found = {}
        self._got: dict[tuple[str, str, str, str, str], Any] = {}
        self._shared: Sight | None = None

    def store(self, kind: Resource[Any]) -> Any:
        """The objects of a kind; each object that is read is remembered."""
        return _SeenStore(kind.key, self._lookup.store(kind), self._found)

    def chain(self, reference: OwnerReference, namespace: str) -> Any:
        """The chain that begins with this controller, from the remembered chains; None if none are remembered."""
        key = (namespace, reference.api_version, reference.kind, reference.name, reference.uid)
        if self._chains is None or key in self._got:
            return self._got.get(key)
        chain, sight = self._chains(reference, namespace)
        self._found.update(sight.found)
        self._got[key] = chain
        self._shared = sight
        return chain

    def sight(self) -> Sight:
        """The objects that were looked up so far; pods that have looked up only the same chain share one `Sight`."""
        if self._shared is not None and self._shared.found.keys() == self._found.keys():
            return self._shared
        return Sight(self._found)


class _SeenStore:
    __slots__ = ("_found", "_key", "_store")

    def __init__(self, key: str, store: Any, found: Found) -> None:
        self._key = key
        self._store = store
        self._found = found

    def get(self, name: str, namespace: str = "") -> Any:
        obj = self._store.get(name, namespace)
        self._found[self._key, namespace, name] = (self._store.get, obj)
        return obj


def _alike(before: Any, now: Any) -> bool:
    """Whether two states of an object are the same to readers: frequent changes by controllers are ignored."""
    if before is None or now is None:
        return False
    old, new = before.metadata, now.metadata
    return (
        old.uid == new.uid
        and old.annotations == new.annotations
        and old.labels == new.labels
        and old.owner_references == new.owner_references
        and getattr(before, "spec", None) == getattr(now, "spec", None)
        and (not isinstance(now, _STATUS_COUNTS) or before.status == now.status)
    )
