"""The client for a real API server: HTTP by aiohttp, JSON by msgspec, errors as `gangline.errors`.

The client has no rate limit: the server's priority and fairness limits requests, and the client honours
its 429. It repeats reads after failures that may pass, but never writes, because only the caller knows
whether a write may happen twice.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

import aiohttp
import msgspec
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt
from yarl import URL

from gangline.errors import ApiError, GanglineError, InvalidObject, NotFound
from gangline.kube import decoding, faults
from gangline.kube.auth import Credentials
from gangline.kube.connecting import Connector
from gangline.kube.interface import Listing, PatchKind, WatchEvent
from gangline.kube.resources import PODS, Resource, T, group_path
from gangline.kube.writing import CONNECT_TIMEOUT, KeptWriter, ProxiedWriter, Writer
from gangline.model import Binding, ObjectMeta, TypedReference

log = logging.getLogger(__name__)

JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
APPLY = "application/apply-patch+yaml"
READ_ATTEMPTS = 5
LARGEST_RAW = 4 << 20  # bytes of the body of a path that is not the API server's own
_NO_QUERY: Mapping[str, str] = {}
WATCH_SECONDS = (
    300,
    600,
)  # the server ends a watch after a random time, so that not all end at once
BUFFER = 1 << 20  # bytes read ahead per connection


def log_invalid(resource: Resource[Any], namespace: str, name: str, error: InvalidObject) -> None:
    """The default for objects that cannot be decoded: they are logged."""
    log.warning("skipped an object that cannot be used: %s", error)


class HttpClient:
    """Implements `gangline.kube.interface.Client`; make it inside a running event loop.

    ``timeout`` is in seconds, for everything but watches; a list may take longer while data keeps
    coming. ``connections`` bounds the open connections, those of watches included. ``may_write`` is asked before
    each write is sent; one that it forbids is Unavailable.
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
    ) -> None:
        self.invalid_objects = 0
        self._credentials = credentials
        self._on_invalid = on_invalid
        self._sleep = sleep
        self._limits = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        self._list_limits = aiohttp.ClientTimeout(sock_read=timeout, sock_connect=CONNECT_TIMEOUT)
        self._session = aiohttp.ClientSession(
            connector=Connector(limit=connections, keepalive_timeout=60, ssl=credentials.ssl_context or True),
            headers={"User-Agent": f"gangline/{version('gangline')}", "Accept": JSON},
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=BUFFER,
            proxy=credentials.proxy,
            timeout=self._limits,
        )
        self._writer: Writer = (
            ProxiedWriter(self._session, credentials.server, credentials.server_name, may_write)
            if credentials.proxy
            else KeptWriter(
                credentials.server,
                credentials.ssl_context,
                credentials.server_name,
                connections=connections,
                timeout=timeout,
                headers={"User-Agent": f"gangline/{version('gangline')}", "Accept": JSON},
                may_send=may_write,
            )
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
        await self._writer.close()
        await self._session.close()

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
        body = await self._read(resource.path(namespace), query, self._list_limits, accept)
        return decoding.decode_list(resource, body, self._report)

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
        # Longer than the server's own limit: only a dead connection gets there.
        limits = aiohttp.ClientTimeout(total=seconds + 30, sock_connect=CONNECT_TIMEOUT)
        accept = METADATA if resource.metadata_only else JSON
        async with self._open(resource.path(namespace), query, limits, accept) as answer:
            splitter = decoding.LineSplitter()
            async for chunk in answer.content.iter_any():
                for line in splitter.feed(chunk):
                    yield decoding.decode_event(resource, line, self._report)

    async def get(self, resource: Resource[T], name: str, *, namespace: str | None = None) -> T:
        """See the interface."""
        accept = METADATA if resource.metadata_only else JSON
        body = await self._read(resource.path(namespace, name), {}, self._limits, accept)
        return decoding.decode_object(resource, body)

    async def served(self, group: str, version: str) -> set[str]:
        """See the interface."""
        try:
            body = await self._read(group_path(group, version), {}, self._limits)
        except NotFound:
            return set()
        return decoding.decode_served(body)

    async def raw(self, path: str, seconds: float) -> bytes:
        """The body of a GET of any path of the API server, those that it proxies to pods too; asked once.

        Raises ApiError, also where the body is larger than a configuration may be.
        """
        async with self._open(path, {}, aiohttp.ClientTimeout(total=seconds), "*/*") as answer:
            return await bounded(answer, path)

    # Writing

    async def create(self, resource: Resource[T], obj: T, *, namespace: str | None = None) -> T:
        """See the interface."""
        path = resource.path(namespace or obj.metadata.namespace)
        return await self._write("POST", resource, path, _encode(resource, obj))

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
        await self._send("DELETE", resource.path(namespace, name), msgspec.json.encode(options))

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """See the interface."""
        binding = Binding(
            metadata=ObjectMeta(name=name, namespace=namespace, uid=uid, annotations=dict(annotations) or None),
            target=TypedReference(api_version="v1", kind="Node", name=node),
        )
        await self._send("POST", PODS.path(namespace, name, "binding"), _encode(_BINDING, binding))

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """See the interface."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._send("POST", PODS.path(namespace, name, "eviction"), msgspec.json.encode(body))

    # The wire

    async def _read(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str = JSON
    ) -> bytes:
        """A GET, repeated after failures that may pass."""
        attempts = AsyncRetrying(
            retry=retry_if_exception(faults.worth_retrying),
            wait=faults.retry_wait,
            stop=stop_after_attempt(READ_ATTEMPTS),
            sleep=self._sleep,
            reraise=True,
        )
        return await attempts(self._read_once, path, query, limits, accept)

    async def _read_once(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str
    ) -> bytes:
        async with self._open(path, query, limits, accept) as answer:
            return await answer.read()

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
        return decoding.decode_object(resource, await self._send(method, path, body, content_type, query or {}))

    async def _send(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str = JSON,
        query: Mapping[str, str] = _NO_QUERY,
    ) -> bytes:
        """The body of a successful answer to a write; every failure is raised as an ApiError."""
        target = _target(path, query)
        headers = {"Content-Type": content_type}
        try:
            authorization = await self._credentials.authorization()
            while True:
                if authorization:
                    headers["Authorization"] = authorization
                answer = await self._writer.request(method, target, headers, body)
                if answer.status < 400:
                    return answer.body
                asked = {"Retry-After": answer.retry_after} if answer.retry_after else {}
                failure = faults.from_answer(answer.status, answer.phrase, asked, answer.body)
                authorization = await self._other_authorization(failure, authorization)
        except GanglineError:
            raise
        except Exception as error:
            raise faults.from_exception(error, f"{method} {self._credentials.server}{path}") from error

    async def _other_authorization(self, failure: ApiError, rejected: str | None) -> str:
        """What to try once more with when the server no longer takes the credentials; else raises the failure."""
        renewed = await self._credentials.renewed(rejected) if failure.status == 401 else None
        if renewed is None:
            raise failure
        return renewed

    @asynccontextmanager
    async def _open(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer to a GET, with its body not read yet; every failure is raised as an ApiError."""
        url = URL(f"{self._credentials.server}{_target(path, query)}", encoded=True)
        headers = {"Accept": accept}
        try:
            authorization = await self._credentials.authorization()
            while True:
                if authorization:
                    headers["Authorization"] = authorization
                async with self._session.get(
                    url, headers=headers, timeout=limits, server_hostname=self._credentials.server_name
                ) as answer:
                    if answer.status < 400:
                        yield answer
                        return
                    text = await answer.read()
                    failure = faults.from_answer(answer.status, answer.reason or "", answer.headers, text)
                authorization = await self._other_authorization(failure, authorization)
        except GanglineError:
            raise
        except Exception as error:
            raise faults.from_exception(error, f"GET {self._credentials.server}{path}") from error

    def _report(self, resource: Resource[Any], namespace: str, name: str, error: InvalidObject) -> None:
        self.invalid_objects += 1
        self._on_invalid(resource, namespace, name, error)


_BINDING = Resource("", "v1", "bindings", "Binding", Binding)


async def bounded(answer: aiohttp.ClientResponse, path: str) -> bytes:
    """The body of an answer of any server. Raises ApiError if it is too large."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > LARGEST_RAW:
            raise ApiError(answer.status, "TooLarge", f"{path}: more than {LARGEST_RAW} bytes")
    return bytes(body)


def _target(path: str, query: Mapping[str, str]) -> str:
    """Path and query, encoded; an empty value is left out."""
    if not query:
        return path
    given = urlencode({key: value for key, value in query.items() if value})
    return f"{path}?{given}" if given else path


def _encode(resource: Resource[T], obj: T) -> bytes:
    """The object as JSON with its apiVersion and kind, which the structs do not have."""
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    return msgspec.json.encode(head | msgspec.to_builtins(obj))
