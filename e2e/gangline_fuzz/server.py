"""An API server that sends bytes as it is told to, and its client: lists and watches go through the real decoding."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from gangline.api.plugin import Clock
from gangline.errors import ApiError, Gone, NotFound, Unavailable
from gangline.kube import decoding
from gangline.kube.interface import EventType, Listing, WatchEvent
from gangline.kube.resources import NODES, PODS, Resource, T
from gangline.simulate import InMemoryServer, SimulatedClient
from gangline.simulate.history import Change, Data, Notice, Revision
from gangline.simulate.objects import key_of
from gangline_fuzz import texts
from gangline_fuzz.streams import LISTS

Answer = TypeVar("Answer")
PAGE = 3  # objects of a list that come at once


class OddServer(InMemoryServer):
    """Objects may be sent in another form than they are kept in; `sent` are those that were sent more than once."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.sent: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
        """By the key of the resource: namespace and name of what has been replaced."""

    def send(self, resource: Resource[Any], obj: Data, damage: tuple[int, int, str] | None = None) -> None:
        """Store an object, whatever it says. What is kept of it has at least the shape of an object."""
        kept = _kept(resource, obj)
        collection = self._objects.collection(resource)
        metadata = kept["metadata"]
        key = key_of(resource, metadata["namespace"], metadata["name"])
        old = collection.objects.get(key)
        if old is not None:
            self.sent[resource.key].add(key)
        self._objects.version += 1
        version = self._objects.version
        metadata["resourceVersion"] = str(version)
        body = texts.written(_stamped(resource, obj, version)).encode()
        new = collection.objects[key] = Revision(version, kept, body)
        change = Change(EventType.ADDED if old is None else EventType.MODIFIED, old, new)
        if damage is not None:
            line = _damaged(Notice(change.type, new).line, damage)
            change = Change(change.type, old, _Odd(version, kept, body, line, once=False))
        collection.history.add(change)

    def drop(self, resource: Resource[Any], name: str, namespace: str) -> None:
        """Take an object away at once, if it is there."""
        collection = self._objects.collection(resource)
        key = key_of(resource, namespace, name)
        if key in collection.objects:
            self._objects.remove(collection, key)

    def say(self, resource: Resource[Any], line: bytes) -> None:
        """Every watch of this kind gets this line."""
        collection = self._objects.collection(resource)
        self._objects.version += 1
        revision = _Odd(self._objects.version, {"metadata": {}}, b"", line, once=True)
        collection.history.add(Change(EventType.MODIFIED, revision, revision))


@dataclass(frozen=True, slots=True)
class _Odd(Revision):
    """Told in another form once, to each client: a server that always did so could not be followed by anybody."""

    line: bytes
    once: bool
    """Whether it is not told at all after that."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a binding gave to a pod."""

    node: str
    uid: str
    annotations: Mapping[str, str]


class OddClient(SimulatedClient):
    """Decodes what an `OddServer` sends; `given` is what its bindings gave to pods."""

    def __init__(self, server: OddServer) -> None:
        super().__init__(server, latency={"bind": 0.002})
        self.odd = server
        self.next_list: dict[str, str] = {}
        """How the next list of a kind is odd, by its key."""
        self.cut: dict[str, Resource[Any]] = {}
        """Kinds whose watch ends with 410 at its next line, by their key."""
        self.given: dict[tuple[str, str], Given] = {}
        """By namespace and name of a pod."""
        self._told: set[int] = set()

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
        """See the interface; pages are short, and their bodies are what `next_list` makes of them."""

        def act() -> bytes:
            if more and not more.isdecimal():
                raise Gone(410, "Expired", "the continue token is too old")
            found = self.odd.list(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                resource_version=resource_version,
            )
            start = int(more or 0)
            page = found[start : start + PAGE] if limit else found
            rest = str(start + PAGE) if len(page) < len(found) - start else ""
            how = LISTS[self.next_list.pop(resource.key, "as it should be")]
            return how([each.body for each in page], self.odd.version, rest)

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
        """See the interface; lines come in chunks as they do from a network."""
        stream = await self._call(
            "watch",
            resource,
            "",
            lambda: self.odd.watch(
                resource,
                resource_version,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
            ),
        )
        self._watches[stream] = None
        splitter = decoding.LineSplitter()
        try:
            async for notice in stream:
                if self.cut.pop(resource.key, None) is not None:
                    raise Gone(410, "Expired", "too old resource version")
                for chunk in _chunks(self._line(notice)):
                    for line in splitter.feed(chunk):
                        yield decoding.decode_event(resource, line, self._on_invalid)
        finally:
            stream.close()
            del self._watches[stream]

    def _line(self, notice: Notice) -> bytes:
        """What is told of a change; empty where it is nothing that stays."""
        odd = notice.revision
        if not isinstance(odd, _Odd):
            return notice.line
        if odd.version in self._told:
            return b"" if odd.once else notice.line
        self._told.add(odd.version)
        return odd.line

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """See the interface."""
        await super().bind(namespace, name, uid, node, annotations)
        self.given[namespace, name] = Given(node, uid, dict(annotations))

    async def _call(self, verb: str, resource: Resource[Any], name: str, act: Callable[[], Answer]) -> Answer:
        """What the server cannot do with an object that is odd, it answers with 500."""

        def guarded() -> Answer:
            with _failures():
                return act()

        await asyncio.sleep(0)
        return await super()._call(verb, resource, name, guarded)


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except ApiError:
        raise
    except KeyError as error:
        raise NotFound(404, "NotFound", f"no field {error}") from error
    except Exception as error:
        raise Unavailable(500, "InternalError", f"{type(error).__name__}: {error}") from error


def _chunks(line: bytes) -> tuple[bytes, ...]:
    """A line in two pieces, and its end."""
    half = len(line) // 2
    return line[:half], line[half:], b"\n"


def _damaged(body: bytes, damage: tuple[int, int, str]) -> bytes:
    at, gone, new = damage
    at %= len(body) + 1
    return body[:at] + new.encode("utf-8", "surrogateescape") + body[at + gone :]


def _stamped(resource: Resource[Any], obj: Data, version: int) -> Data:
    """The object with its resourceVersion, unless it says one itself or has no place for it.

    No API server stores a cluster-wide object with a namespace.
    """
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    if not isinstance(metadata, dict) or any(key[:1] == "@" for key in metadata):
        return obj
    if not resource.namespaced:
        metadata = {key: value for key, value in metadata.items() if key != "namespace"}
    return {**obj, "metadata": {"resourceVersion": str(version), **metadata}}


def _kept(resource: Resource[Any], obj: Data) -> dict[str, Any]:
    """What the server makes of an object: with names of its own, and with parts where others will look for them."""
    whole = texts.plain(obj)
    data = dict(whole) if isinstance(whole, dict) else {}
    metadata = _mapping(data.get("metadata"))
    for name in ("name", "namespace", "uid"):
        if not isinstance(metadata.get(name), str):
            metadata[name] = f"odd-{name}" if name != "namespace" else ""
    for name in ("labels", "annotations"):
        metadata[name] = _mapping(metadata.get(name))
    if not resource.namespaced:
        metadata["namespace"] = ""
    elif not metadata["namespace"]:
        metadata["namespace"] = "default"
    data |= {"metadata": metadata, "apiVersion": resource.api_version, "kind": resource.kind}
    if resource in (PODS, NODES):
        data["spec"] = _mapping(data.get("spec"))
        data["status"] = {"phase": "Pending", **_mapping(data.get("status"))}
        data["status"]["conditions"] = []
    return data


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, dict) else {}
