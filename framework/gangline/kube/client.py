"""The client for a real API server: the requests of each verb, JSON by msgspec, errors as `gangline.errors`.

`transport` sends the requests, and repeats some of them.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

import msgspec

from gangline.errors import ApiError, InvalidObject, NotFound, Unavailable
from gangline.kube import decoding, faults
from gangline.kube.auth import Credentials
from gangline.kube.interface import Listing, PatchKind, WatchEvent
from gangline.kube.reading import Limits
from gangline.kube.resources import EVENTS, PODS, Resource, T, group_path
from gangline.kube.transport import JSON, Transport, bounded
from gangline.model import Binding, ObjectMeta, TypedReference

log = logging.getLogger(__name__)

METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
APPLY = "application/apply-patch+yaml"
WATCH_SECONDS = (
    300,
    600,
)  # the server ends a watch after a random time, so that not all end at once
SILENCE = 180.0
"""Seconds; an API server sends a bookmark every minute, for a kind that is quiet every other minute."""


def log_invalid(resource: Resource[Any], namespace: str, name: str, error: InvalidObject) -> None:
    """The default of `on_invalid`: logs that the object cannot be decoded."""
    log.warning("skipped an object that cannot be used: %s", error)


OnWritten = Callable[[Resource[Any], str], None]


def written_by_nobody(resource: Resource[Any], version: str) -> None:
    """The default of `on_written`: does nothing."""


class HttpClient:
    """Implements `gangline.kube.interface.Client`; make it inside a running event loop.

    ``timeout`` limits every request except watches, in seconds; a list may take longer as long as data keeps coming.
    A watch without a bookmark for ``silence`` seconds ends, so that another one begins over a new connection.
    ``connections`` limits the open connections, those of watches included. ``may_write`` is called before each write is
    sent; if it returns False the write is not sent, and raises Unavailable. ``on_written`` is called with the
    resourceVersion of each object that was written, if the API server's answer has it.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout: float = 30.0,
        connections: int = 256,
        on_invalid: decoding.OnInvalid = log_invalid,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        may_write: Callable[[], bool] = lambda: True,
        on_written: OnWritten = written_by_nobody,
        silence: float = SILENCE,
    ) -> None:
        self._silence = silence
        self.invalid_objects = 0
        self._on_written = on_written
        self._on_invalid = on_invalid
        self._transport = Transport(
            credentials, timeout=timeout, connections=connections, sleep=sleep, may_write=may_write
        )

    async def __aenter__(self) -> HttpClient:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """See the interface."""
        await self._transport.close()

    async def stop_writing(self) -> bool:
        """Send no write any more; returns whether the API server carries out none any more. See `outbox`."""
        return await self._transport.outbox.close()

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
        """See the interface."""
        query = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": "" if more else resource_version,
            "limit": str(limit) if limit else "",
            "continue": more,
        }
        accept = METADATA_LIST if resource.metadata_only else JSON
        body = await self._transport.read(resource.path(namespace), query, self._transport.list_limits, accept)
        return await decoding.decode_large_list(resource, body, self._report)

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
        seconds = random.randint(*WATCH_SECONDS)
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(seconds),
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
        }
        # Longer than the server's own limit, so that only a dead connection reaches this limit.
        limits = Limits(total=seconds + 30, silence=self._silence)
        accept = METADATA if resource.metadata_only else JSON
        has_begun = False
        try:
            async with self._transport.open(resource.path(namespace), query, limits, accept) as answer:
                has_begun = True
                splitter = decoding.LineSplitter()
                async for chunk in answer.parts():
                    for line in splitter.feed(chunk):
                        yield decoding.decode_event(resource, line, self._report)
        except Unavailable as error:
            if not has_begun or error.reason != faults.TIMEOUT:
                raise
            log.info("watch of %s: no answer for %g s, watching anew", resource.key, self._silence)

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        """See the interface."""
        accept = METADATA if resource.metadata_only else JSON
        body = await self._transport.read(resource.path(namespace, name), {}, self._transport.limits, accept)
        return _answered(resource, body)

    async def served(self, group: str, version: str) -> set[str]:
        """See the interface."""
        try:
            body = await self._transport.read(group_path(group, version), {}, self._transport.limits)
        except NotFound:
            return set()
        return decoding.decode_served(body)

    async def raw(self, path: str, seconds: float) -> bytes:
        """The body of a GET of any path of the API server, also of a path that it proxies to a pod. Not repeated.

        Raises ApiError, also where the body is larger than a configuration may be.
        """
        async with self._transport.open(path, {}, Limits(total=seconds), "*/*") as answer:
            return await bounded(answer.parts(), answer.status, path)

    # Writing

    async def create(self, resource: Resource[T], obj: T, *, namespace: str | None = None) -> T:
        """See the interface. An event is returned as it was given: nobody needs the API server's form of it."""
        path = resource.path(namespace or obj.metadata.namespace)
        if resource is EVENTS:
            await self._transport.send("POST", path, _encode(resource, obj))
            return obj
        return await self._write("POST", resource, path, _encode(resource, obj))

    async def create_all(self, resource: Resource[T], objs: Sequence[T]) -> Sequence[ApiError | None]:
        """See the interface."""
        posts = [(resource.path(obj.metadata.namespace), _encode(resource, obj)) for obj in objs]
        return await self._transport.post_all(posts)

    async def replace(self, resource: Resource[T], obj: T, *, subresource: str | None = None) -> T:
        """See the interface."""
        path = resource.path(obj.metadata.namespace, obj.metadata.name, subresource)
        return await self._write("PUT", resource, path, _encode(resource, obj))

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
        path = resource.path(namespace, name, subresource)
        body = msgspec.json.encode(patch)
        return await self._write("PATCH", resource, path, body, content_type=kind.value)

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
        """See the interface; apiVersion, kind and metadata.name are filled in."""
        whole = {
            **body,
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {**body.get("metadata", {}), "name": name},
        }
        return await self._write(
            "PATCH",
            resource,
            resource.path(namespace, name, subresource),
            msgspec.json.encode(whole),
            content_type=APPLY,
            query={"fieldManager": field_manager, "force": "true" if force else "false"},
        )

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
        expected = {"uid": uid, "resourceVersion": resource_version}
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions := {key: value for key, value in expected.items() if value is not None}:
            options["preconditions"] = preconditions
        if grace_period_seconds is not None:
            options["gracePeriodSeconds"] = grace_period_seconds
        await self._transport.send("DELETE", resource.path(namespace, name), msgspec.json.encode(options))

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """See the interface."""
        binding = Binding(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=uid, annotations=dict(annotations) or None),
            target=TypedReference(api_version="v1", kind="Node", name=node),
        )
        await self._transport.send("POST", PODS.path(namespace, name, "binding"), _encode(_BINDING, binding))

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """See the interface."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._transport.send("POST", PODS.path(namespace, name, "eviction"), msgspec.json.encode(body))

    async def _write(
        self,
        method: str,
        resource: Resource[T],
        path: str,
        body: bytes,
        *,
        content_type: str = JSON,
        query: Mapping[str, str] | None = None,
    ) -> T:
        answer = await self._transport.send(method, path, body, content_type, query or {})
        if not resource.is_stored:
            return decoding.decode_object(resource, answer)
        written = _answered(resource, answer)
        self._on_written(resource, written.metadata.resource_version)
        return written

    def _report(self, resource: Resource[Any], namespace: str, name: str, error: InvalidObject) -> None:
        self.invalid_objects += 1
        self._on_invalid(resource, namespace, name, error)


_BINDING = Resource("", "v1", "bindings", "Binding", Binding)


def _answered(resource: Resource[T], body: bytes) -> T:
    """The object in an answer. Raises Unavailable if it has no name: many bodies, such as a Status with the code 200,
    look like an object in which nothing is set, and others, such as null, like no object.
    """
    try:
        found = decoding.decode_object(resource, body)
    except InvalidObject as error:
        if decoding.is_named(body):
            raise
        raise Unavailable(0, "Garbled", f"{resource.plural}: the answer is no object: {error}") from None
    if not found.metadata.name:
        raise Unavailable(0, "Garbled", f"{resource.plural}: the answer is an object without a name")
    return found


def _encode(resource: Resource[T], obj: T) -> bytes:
    """The object as JSON with its apiVersion and kind, which most structs do not have."""
    if hasattr(obj, "kind"):
        return msgspec.json.encode(
            {"apiVersion": resource.api_version, "kind": resource.kind} | msgspec.to_builtins(obj)
        )
    fields = msgspec.json.encode(obj)[1:]
    return resource.head + (b"," + fields if fields != b"}" else fields)
