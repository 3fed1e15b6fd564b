"""The requests that Gangline sends to an API server; the HTTP client and the simulator both implement them.

Every method raises `gangline.errors.ApiError` or one of its children when the server refuses or
does not answer, and `gangline.errors.InvalidObject` when an object does not fit its struct.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from gangline.errors import ApiError, InvalidObject, Unavailable
from gangline.kube.resources import Resource, T
from gangline.model import HasMetadata, ObjectMeta

Seen = TypeVar("Seen", bound=HasMetadata, covariant=True)
Taken = TypeVar("Taken", bound=HasMetadata, contravariant=True)


class EventType(enum.Enum):
    """The type of a watch event."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"


class PatchKind(enum.Enum):
    """How a patch is merged; the value is its content type."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class Unreadable(msgspec.Struct, frozen=True):
    """An object that exists but cannot be decoded: its identity, as far as it can be read, and the reason."""

    metadata: ObjectMeta
    error: InvalidObject
    data: bytes = b""
    """The JSON of the object; a handler may use parts of it."""


class WatchEvent(NamedTuple, Generic[Seen]):
    """One change; ``object`` is None for a bookmark, which only moves the resourceVersion on.

    An object that cannot be decoded comes as a bookmark with ``unreadable``.
    """

    type: EventType
    object: Seen | None
    resource_version: str
    unreadable: Unreadable | None = None


class Listing(msgspec.Struct, Generic[T], frozen=True):
    """The objects at one resourceVersion; ``invalid`` ones exist but could not be decoded.

    ``more`` asks for the next page of a list that came in part, and is empty on the last.
    """

    items: list[T]
    resource_version: str
    invalid: tuple[Unreadable, ...] = ()
    more: str = ""


class Handler(Protocol[Taken]):
    """Receives the objects; it is called in the event loop, so it must be quick."""

    def upsert(self, obj: Taken, /) -> None:
        """The object is new or has changed."""
        ...

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        """The object is gone; its namespace is empty for cluster-wide kinds."""
        ...


class Client(Protocol):
    """An API server."""

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
        limit: int = 0,
        more: str = "",
    ) -> Listing[T]:
        """All objects, not older than ``resource_version``.

        ``""`` reads the latest state; ``"0"`` takes the objects from the server's memory, which may be older. With a
        ``limit`` a server may answer with so many objects and with ``more``, the token for the next page. The pages
        show the objects as they were at the first page; after some minutes a request for the next page raises Gone. For
        ``"0"`` servers return all objects at once.
        """
        ...

    def watch(
        self,
        resource: Resource[T],
        *,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent[T]]:
        """The changes after ``resource_version``, until the server closes the stream.

        Raises Gone, at the start or on the way, when the resourceVersion is too old. It is an
        async generator: close it (`contextlib.aclosing`), or its connection stays open.
        """
        ...

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        """One object; NotFound if there is none."""
        ...

    async def create(self, resource: Resource[T], obj: T, *, namespace: str | None = None) -> T:
        """Creates the object, in its own namespace unless told otherwise; Conflict if it exists."""
        ...

    async def create_all(self, resource: Resource[T], objs: Sequence[T]) -> Sequence[ApiError | None]:
        """Creates objects that nobody reads back, such as events, each in its own namespace.

        For each object the error, or None if it was created.
        """
        ...

    async def replace(self, resource: Resource[T], obj: T, *, subresource: str | None = None) -> T:
        """Replaces the object; Conflict if its resourceVersion is no longer the current one.

        Fields that the struct leaves out are lost, so use it only for kinds whose struct is whole.
        """
        ...

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
    ) -> T:
        """Changes some fields; Conflict if the patch holds a stale resourceVersion."""
        ...

    async def apply(
        self,
        resource: Resource[T],
        name: str,
        body: Mapping[str, Any],
        *,
        field_manager: str,
        namespace: str | None = None,
        subresource: str | None = None,
        force: bool = True,
    ) -> T:
        """Server-side apply: creates the object, or takes over the fields in ``body``.

        Conflict if another manager owns one of them and ``force`` is off.
        """
        ...

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
    ) -> None:
        """Deletes one object; Conflict if it is not the one with that UID and resourceVersion."""
        ...

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Puts a pod on a node and sets the annotations on it, in one write.

        Conflict if the pod is bound already or another pod has its name. Never retried in here:
        after Unavailable the pod may be bound or not.
        """
        ...

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Evicts a pod, if the disruption budgets allow it.

        TooManyRequests if a budget does not allow it now; Conflict if another pod has its name. Never retried in here.
        """
        ...

    async def served(self, group: str, version: str) -> set[str]:
        """The plurals served in that group and version; empty when it is not served."""
        ...

    async def close(self) -> None:
        """Closes all connections; watches end."""
        ...


class NoClient:
    """Stands for a missing API server: every request raises Unavailable."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise Unavailable(0, "", "there is no API server to ask")

    list = watch = get = create = create_all = replace = patch = apply = delete = bind = evict = served = _refuse

    async def close(self) -> None:
        """There is nothing to close."""
