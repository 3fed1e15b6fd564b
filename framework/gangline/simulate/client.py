"""The client of the in-memory API server: the same interface, decoding and errors as over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from gangline.errors import ApiError, Unavailable
from gangline.kube import decoding
from gangline.kube.client import OnWritten, log_invalid, written_by_nobody
from gangline.kube.interface import Listing, PatchKind, WatchEvent
from gangline.kube.resources import PODS, Resource, T
from gangline.simulate.history import Watch
from gangline.simulate.server import InMemoryServer

Answer = TypeVar("Answer")
Faults = Callable[[str, Resource[Any], str], Exception | None]
"""Called with the verb (the name of the client's method), the resource and the object's name. The error that it returns
is raised; None lets the call succeed."""


def no_faults(verb: str, resource: Resource[Any], name: str) -> Exception | None:
    """The default of `faults`: every call succeeds."""
    return None


class SimulatedClient:
    """Implements `gangline.kube.interface.Client`.

    ``latency`` is in seconds by verb; half of it passes before the server acts and half after. Even without latency,
    every call lets other tasks run once. ``faults`` is called before the server acts, on every call but `served`.
    """

    def __init__(
        self,
        server: InMemoryServer,
        *,
        latency: Mapping[str, float] = MappingProxyType({}),
        faults: Faults = no_faults,
        on_invalid: decoding.OnInvalid = log_invalid,
        on_written: OnWritten = written_by_nobody,
    ) -> None:
        self._server = server
        self._latency = latency
        self._faults = faults
        self._on_invalid = on_invalid
        self._on_written = on_written
        self._watches: dict[Watch, None] = {}
        self._closed = False

    async def close(self) -> None:
        """See the interface."""
        self._closed = True
        for watch in self._watches:
            watch.close()

    # Reading

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
        """See the interface; all objects come at once, regardless of the limit."""

        def act() -> bytes:
            found = self._server.list(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                resource_version=resource_version,
            )
            head = b'{"metadata":{"resourceVersion":"%d"},"items":[' % self._server.version
            return b"".join((head, b",".join(each.body for each in found), b"]}"))

        return decoding.decode_list(resource, await self._call("list", resource, "", act), self._on_invalid)

    async def watch(
        self,
        resource: Resource[T],
        *,
        resource_version: str,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncIterator[WatchEvent[T]]:
        """See the interface."""

        def act() -> Watch:
            return self._server.watch(
                resource,
                resource_version,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            )

        stream = await self._call("watch", resource, "", act)
        self._watches[stream] = None
        try:
            async for notice in stream:
                yield decoding.decode_event(resource, notice.line, self._on_invalid)
        finally:
            stream.close()
            del self._watches[stream]

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        """See the interface."""
        body = await self._call(
            "get", resource, name, lambda: self._server.get(resource, name, namespace=namespace).body
        )
        return decoding.decode_object(resource, body)

    async def served(self, group: str, version: str) -> set[str]:
        """See the interface."""
        await asyncio.sleep(self._latency.get("served", 0.0))
        return self._server.served(group, version)

    # Writing

    async def create(self, resource: Resource[T], obj: T, *, namespace: str | None = None) -> T:
        """See the interface."""
        data = _plain(obj)
        body = await self._call(
            "create",
            resource,
            obj.metadata.name,
            lambda: self._server.create(resource, data, namespace=namespace).body,
        )
        return self._written(resource, body)

    async def create_all(self, resource: Resource[T], objs: Sequence[T]) -> Sequence[ApiError | None]:
        """See the interface."""
        return [await self._failure(resource, obj) for obj in objs]

    async def _failure(self, resource: Resource[T], obj: T) -> ApiError | None:
        try:
            await self.create(resource, obj)
        except ApiError as error:
            return error
        return None

    async def replace(self, resource: Resource[T], obj: T, *, subresource: str | None = None) -> T:
        """See the interface."""
        data = _plain(obj)
        body = await self._call(
            "replace",
            resource,
            obj.metadata.name,
            lambda: self._server.replace(resource, data, subresource=subresource).body,
        )
        return self._written(resource, body)

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
        """See the interface."""
        data = _plain(patch)

        def act() -> bytes:
            new = self._server.patch(resource, name, data, namespace=namespace, subresource=subresource, kind=kind)
            return new.body

        return self._written(resource, await self._call("patch", resource, name, act))

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
        """See the interface."""
        data = _plain(body)

        def act() -> bytes:
            new = self._server.apply(
                resource,
                name,
                data,
                field_manager=field_manager,
                namespace=namespace,
                subresource=subresource,
                force=force,
            )
            return new.body

        return self._written(resource, await self._call("apply", resource, name, act))

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
        """See the interface."""

        def act() -> None:
            self._server.delete(
                resource,
                name,
                namespace=namespace,
                uid=uid,
                resource_version=resource_version,
                grace_period_seconds=grace_period_seconds,
            )

        await self._call("delete", resource, name, act)

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """See the interface."""
        await self._call("bind", PODS, name, lambda: self._server.bind(namespace, name, uid, node, annotations))

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """See the interface."""
        await self._call("evict", PODS, name, lambda: self._server.evict(namespace, name, uid))

    def _written(self, resource: Resource[T], body: bytes) -> T:
        written = decoding.decode_object(resource, body)
        self._on_written(resource, written.metadata.resource_version)
        return written

    async def _call(self, verb: str, resource: Resource[Any], name: str, act: Callable[[], Answer]) -> Answer:
        """Lets the server act in the middle of the call's latency."""
        half = self._latency.get(verb, 0.0) / 2
        await asyncio.sleep(half)
        if self._closed:
            raise Unavailable(0, "ConnectionFailed", f"{verb} {resource.plural}: the client is closed")
        if (error := self._faults(verb, resource, name)) is not None:
            raise error
        answer = act()
        if half:
            await asyncio.sleep(half)
        return answer


def _plain(value: Any) -> Any:
    """JSON data that shares nothing with the value: structs, mappings and lists are copied."""
    return msgspec.json.decode(msgspec.json.encode(value))
