"""From the bytes of a list or a watch to structs, so that one bad object never hides the others.

The fast path decodes a whole list, or a whole event, straight into structs. Only when that fails is
the text taken apart: the objects that fit are used, those that do not are handed to a callback.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Generic

import msgspec

from gangline.errors import InvalidObject, Unavailable
from gangline.kube.faults import Status, from_status
from gangline.kube.interface import EventType, Listing, WatchEvent
from gangline.kube.resources import Resource, T
from gangline.model import ListMeta, ObjectMeta

OnInvalid = Callable[[Resource[Any], str, str, InvalidObject], None]
"""Told the resource, namespace and name of an object that was skipped, and why."""

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


class _List(msgspec.Struct, Generic[T]):
    metadata: ListMeta
    items: list[T] | None = None


class _RawList(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] = []


class _Event(msgspec.Struct, Generic[T]):
    type: EventType
    object: T


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Served(msgspec.Struct):
    name: str


class _ServedList(msgspec.Struct):
    resources: list[_Served] = []


class _Identity(msgspec.Struct, rename="camel"):
    """The part of metadata that is certain to be well formed."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Identified(msgspec.Struct):
    metadata: _Identity


_raw_list = msgspec.json.Decoder(_RawList)
_raw_event = msgspec.json.Decoder(_RawEvent)
_identified = msgspec.json.Decoder(_Identified)
_status = msgspec.json.Decoder(Status)


@cache
def _decoder(cls: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cls)


def decode_object(resource: Resource[T], data: bytes | msgspec.Raw) -> T:
    """One object; raises InvalidObject that names it and the field."""
    try:
        obj: T = _decoder(resource.type).decode(data)
    except msgspec.ValidationError as error:
        raise _invalid(resource, data, error) from None
    except msgspec.DecodeError as error:
        raise _garbled(resource, error) from error
    return obj


def decode_list(resource: Resource[T], data: bytes, on_invalid: OnInvalid) -> Listing[T]:
    """A whole list body; objects that do not fit are reported and listed as invalid."""
    try:
        whole: _List[T] = _decoder(_List[resource.type]).decode(data)  # type: ignore[name-defined]  # a run-time type
        return Listing(whole.items or [], whole.metadata.resource_version)
    except msgspec.ValidationError:
        pass
    except msgspec.DecodeError as error:
        raise _garbled(resource, error) from error
    try:
        raw = _raw_list.decode(data)
    except msgspec.ValidationError as error:
        raise InvalidObject(f"list of {resource.plural}", None, str(error)) from error
    items: list[T] = []
    invalid: list[ObjectMeta] = []
    for text in raw.items:
        try:
            items.append(decode_object(resource, text))
        except InvalidObject as error:
            metadata = _identity(text)
            on_invalid(resource, metadata.namespace, metadata.name, error)
            invalid.append(metadata)
    return Listing(items, raw.metadata.resource_version, tuple(invalid))


def decode_event(resource: Resource[T], line: bytes, on_invalid: OnInvalid) -> WatchEvent[T]:
    """One line of a watch; an ERROR event is raised as the exception that it stands for."""
    try:
        event: _Event[T] = _decoder(_Event[resource.type]).decode(line)  # type: ignore[name-defined]  # a run-time type
    except msgspec.ValidationError:
        return _decode_odd_event(resource, line, on_invalid)
    except msgspec.DecodeError as error:
        raise _garbled(resource, error) from error
    version = event.object.metadata.resource_version
    if event.type is EventType.BOOKMARK:
        return WatchEvent(EventType.BOOKMARK, None, version)
    return WatchEvent(event.type, event.object, version)


def _decode_odd_event(resource: Resource[T], line: bytes, on_invalid: OnInvalid) -> WatchEvent[T]:
    """An event that is an error, a bookmark, or about an object that does not fit.

    The last becomes a bookmark, so that a later watch resumes behind it; a deletion stays a
    deletion, because it is the object's identity that counts there.
    """
    try:
        raw = _raw_event.decode(line)
    except msgspec.ValidationError as error:
        raise _garbled(resource, error) from error
    if raw.type == "ERROR":
        raise from_status(_status.decode(raw.object))
    metadata = _identity(raw.object)
    version = metadata.resource_version
    if raw.type == "DELETED":
        bare = msgspec.convert({"metadata": metadata}, resource.type)
        return WatchEvent(EventType.DELETED, bare, version)
    if raw.type != "BOOKMARK":
        try:
            decode_object(resource, raw.object)
        except InvalidObject as error:
            on_invalid(resource, metadata.namespace, metadata.name, error)
    return WatchEvent(EventType.BOOKMARK, None, version)


def decode_served(data: bytes) -> set[str]:
    """The plurals in a discovery body; subresources are left out."""
    try:
        found = msgspec.json.decode(data, type=_ServedList)
    except msgspec.DecodeError as error:
        raise Unavailable(0, "Garbled", f"discovery: {error}") from error
    return {resource.name for resource in found.resources if "/" not in resource.name}


class LineSplitter:
    """Joins chunks and cuts them into lines; a line of any length may be spread over any chunks.

    What is left when the stream ends is dropped: the server sends that event to the next watch.
    """

    def __init__(self) -> None:
        self._pending: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without empty ones."""
        self._pending.append(chunk)
        if b"\n" not in chunk:
            return []
        *lines, rest = b"".join(self._pending).split(b"\n")
        self._pending = [rest]
        return [line for line in lines if line]


def _identity(text: bytes | msgspec.Raw) -> ObjectMeta:
    try:
        found = _identified.decode(text).metadata
    except msgspec.ValidationError:
        return ObjectMeta()
    return ObjectMeta(
        name=found.name,
        namespace=found.namespace,
        uid=found.uid,
        resource_version=found.resource_version,
    )


def _invalid(resource: Resource[Any], data: bytes | msgspec.Raw, error: msgspec.ValidationError) -> InvalidObject:
    """The error with the object's name, the field's path and its value in it."""
    why, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    metadata = _identity(data)
    name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return InvalidObject(f"{resource.kind} {name}: {path.lstrip('.')}", _value(data, path), why)


def _value(data: bytes | msgspec.Raw, path: str) -> Any:
    """The value at a path such as ``.spec.containers[0].name``."""
    value = msgspec.json.decode(data)
    for key, index in _STEP.findall(path):
        inner = value.get(key) if key and isinstance(value, dict) else None
        value = value[int(index)] if index and isinstance(value, list) else inner
    return value


def _garbled(resource: Resource[Any], error: Exception) -> Unavailable:
    return Unavailable(0, "Garbled", f"{resource.plural}: the answer is not what it should be: {error}")
