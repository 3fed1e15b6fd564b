"""The last known objects of every kind except nodes and pods, and the listeners to their changes."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Generic, Protocol, TypeVar

from gangline.failures import Failures, being_built
from gangline.model import HasMetadata
from gangline.state.scopes import Listeners, Scopes
from gangline.state.tracking import check_methods, heard

T = TypeVar("T", bound=HasMetadata)
Heard = TypeVar("Heard", bound=HasMetadata, contravariant=True)
Kept = TypeVar("Kept", bound=HasMetadata, covariant=True)


class Kind(Protocol[Kept]):
    """A kind of object, for example a `Resource`."""

    @property
    def key(self) -> str:
        """The name of its store."""
        ...

    @property
    def type(self) -> builtins.type[Kept]:
        """The struct type of its objects."""
        ...


class StoreListener(Protocol[Heard]):
    """An object that is called for changes of the objects of one kind."""

    def on_upsert(self, obj: Heard, /) -> None:
        """The object exists, or has changed."""

    def on_remove(self, obj: Heard, /) -> None:
        """The object, in its last state, was deleted."""


class Store(Generic[T]):
    """Objects of one kind by namespace and name; `version` grows with each change.

    `seen` is a resourceVersion of the API server: all changes up to it are here, and perhaps some later ones. It is 0
    while that is not known, and for a kind of which only a selection is followed.
    """

    def __init__(self, failures: Failures | None = None, scopes: Scopes | None = None) -> None:
        self._failures = failures or Failures()
        self._objects: dict[tuple[str, str], T] = {}
        self.listeners: Listeners[StoreListener[T]] = Listeners(scopes or Scopes())
        self.version = 0
        self.seen = 0
        self._waiting: dict[object, tuple[int, Callable[[], None]]] = {}

    def reached(self, resource_version: str) -> None:
        """All changes up to this resourceVersion are here now."""
        self.seen = int(resource_version) if resource_version.isdecimal() else 0
        for token, (version, call) in list(self._waiting.items()):
            if version <= self.seen and self._waiting.pop(token, None) is not None:
                call()

    def when_seen(self, resource_version: int, call: Callable[[], None]) -> Callable[[], None]:
        """Call `call` once, as soon as all changes up to a resourceVersion are here.

        The returned function ends the waiting.
        """
        token = object()
        if self.seen >= resource_version:
            call()
        else:
            self._waiting[token] = resource_version, call

        def end() -> None:
            self._waiting.pop(token, None)

        return end

    def upsert(self, obj: T) -> None:
        """Add or replace an object. If a listener raises, the other listeners hear of the object all the same."""
        self._objects[(obj.metadata.namespace, obj.metadata.name)] = obj
        self.version += 1
        for plugin, listener in self.listeners:
            heard(self._failures, plugin, listener.on_upsert, obj)

    def remove(self, namespace: str, name: str, uid: str = "") -> None:
        """Remove an object."""
        obj = self._objects.pop((namespace, name), None)
        if obj is not None:
            self.version += 1
            for plugin, listener in self.listeners:
                heard(self._failures, plugin, listener.on_remove, obj)

    def subscribe(self, listener: StoreListener[T]) -> None:
        """Tell the listener of every change until its scope ends, and now of the objects that exist.

        An exception of the listener is counted, and the listener misses this change.
        """
        check_methods(listener, "listener", "on_upsert", "on_remove")
        for obj in self._objects.values():
            heard(self._failures, being_built.get(), listener.on_upsert, obj)
        self.listeners.add(listener)

    def get(self, name: str, namespace: str = "") -> T | None:
        """The object, or None."""
        return self._objects.get((namespace, name))

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def __len__(self) -> int:
        return len(self._objects)
