"""Decodes the bytes of a list or a watch into structs; one invalid object never hides the others.

The fast path decodes a whole list, or a whole event, directly into structs, and skips fields that are not in the
structs. If the fast path fails, or a list is large, the objects are decoded one by one: valid objects are used, and
invalid objects are passed on as unreadable, with the part of their identity that can be read. Whatever a server
answers, only InvalidObject and ApiError are raised.

JSON can be nested too deeply for any decoder (each writer of an object can write `managedFields`, and skipping a field
needs the same recursion as reading one). Such text is cut: values deeper than all fields of the structs become null.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Generic

import msgspec

from gangline.bounds import DEEPEST
from gangline.errors import ApiError, Gone, InvalidObject, TooManyRequests, Unavailable, WatchFailed
from gangline.kube.faults import ApiStatus, from_status
from gangline.kube.interface import EventType, Listing, Unreadable, WatchEvent
from gangline.kube.resources import Resource, T
from gangline.model import ListMeta, ObjectMeta

OnInvalid = Callable[[Resource[Any], str, str, InvalidObject], None]
"""Called with the resource, namespace and name of an object that cannot be decoded, and the reason."""

LARGE = 1 << 22
"""A list of at most so many bytes is decoded at once, in some 30 ms. 500 ResourceSlices of 128 devices have 27 MiB."""
LARGEST_LINE = 1 << 24
"""Bytes of one event; an object in etcd has 1.5 MiB at most, unless etcd is told otherwise."""
SLICE = 1 << 18
"""Bytes of the objects of a larger list that are decoded without a pause."""
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_NESTING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_VERSION = re.compile(rb'"resourceVersion"\s*:\s*"(\d{1,20})"')
_WRAPPING = 4
"""Levels of JSON that a list or an event adds around an object."""
Undecodable = (msgspec.MsgspecError, RecursionError, ValueError)
"""The errors that decoders raise; ValueError is for a text that is no UTF-8, or a number with too many digits."""


class _List(msgspec.Struct, Generic[T]):
    metadata: ListMeta
    items: list[T] | None
    """Every list has them, be they null: a Status, which some proxies send with the code 200, has not."""


class _RawList(msgspec.Struct):
    metadata: ListMeta
    items: list[msgspec.Raw] | None


class _Event(msgspec.Struct, Generic[T]):
    type: EventType
    object: T


class _RawEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Served(msgspec.Struct):
    name: str


class _ServedList(msgspec.Struct):
    resources: list[_Served] | None


class _Identity(msgspec.Struct, rename="camel"):
    """The part of metadata that the API server itself checks, so that it is always well-formed."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Identified(msgspec.Struct):
    metadata: _Identity


_status = msgspec.json.Decoder(ApiStatus)


@cache
def _decoder(cls: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cls)


@cache
def _event_decoder(cls: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_Event[cls])


def decode_object(resource: Resource[T], data: bytes | msgspec.Raw) -> T:
    """One object; raises InvalidObject that names it and the field."""
    try:
        obj: T = _read(resource, data)
    except msgspec.ValidationError as error:
        raise _invalid(resource, data, error) from None
    except msgspec.DecodeError as error:
        raise _garbled(resource, error) from error
    return obj


def decode_list(resource: Resource[T], data: bytes, on_invalid: OnInvalid) -> Listing[T]:
    """Decode the body of a list. Objects that do not fit their struct are reported, and are listed as invalid.

    Raises Unavailable for a body that is no list, or a list without a version: nothing can be said of its objects.
    """
    if resource.upgrade is None:
        try:
            whole: _List[T] = _decoder(_List[resource.type]).decode(data)  # type: ignore[name-defined]  # a run-time type
        except Undecodable:
            pass
        else:
            version = _version(resource, whole.metadata)
            return Listing(whole.items or [], version, more=whole.metadata.continue_)
    *_, listing = _one_by_one(resource, data, on_invalid, len(data))
    return listing


async def decode_large_list(
    resource: Resource[T], data: bytes, on_invalid: OnInvalid, large: int = LARGE, slice_bytes: int = SLICE
) -> Listing[T]:
    """As `decode_list`; while a large body is decoded, other tasks get a turn after each slice of `slice_bytes`."""
    if len(data) <= large:
        return decode_list(resource, data, on_invalid)
    whole: Listing[T] = Listing([], "")
    await asyncio.sleep(0)
    for part in _one_by_one(resource, data, on_invalid, slice_bytes):
        whole = part  # the last part is the whole list
        await asyncio.sleep(0)
    return whole


def _one_by_one(resource: Resource[T], data: bytes, on_invalid: OnInvalid, slice_bytes: int) -> Iterator[Listing[T]]:
    """Decode a list object by object. Yields the objects so far after each `slice_bytes`, and all at the end."""
    try:
        raw: _RawList = _decode(_RawList, data)
    except msgspec.MsgspecError as error:
        raise _garbled(resource, error) from error
    version = _version(resource, raw.metadata)
    items: list[T] = []
    invalid: list[Unreadable] = []
    left = slice_bytes
    for text in raw.items or ():
        try:
            items.append(decode_object(resource, text))
        except (InvalidObject, ApiError) as error:
            invalid.append(_unreadable(resource, text, error, on_invalid))
        left -= len(memoryview(text))
        if left <= 0:
            left = slice_bytes
            yield Listing(items, version, tuple(invalid), raw.metadata.continue_)
    yield Listing(items, version, tuple(invalid), raw.metadata.continue_)


def _version(resource: Resource[Any], metadata: ListMeta) -> str:
    """The resourceVersion of a list. A watch that began without one would never tell which objects are gone."""
    if not metadata.resource_version:
        raise _garbled(resource, "a list without a resourceVersion")
    return metadata.resource_version


def decode_event(resource: Resource[T], line: bytes, on_invalid: OnInvalid) -> WatchEvent[T]:
    """Decode one line of a watch. Raises the exception that an ERROR event stands for."""
    if resource.upgrade is not None:
        return _decode_odd_event(resource, line, on_invalid)
    try:
        event: _Event[T] = _event_decoder(resource.type).decode(line)
    except Undecodable:
        return _decode_odd_event(resource, line, on_invalid)
    version = event.object.metadata.resource_version
    if event.type is EventType.BOOKMARK:
        return WatchEvent(EventType.BOOKMARK, None, version)
    return WatchEvent(event.type, event.object, version)


def _decode_odd_event(resource: Resource[T], line: bytes, on_invalid: OnInvalid) -> WatchEvent[T]:
    """Decode an event that is an error, a bookmark, about an object of an older version, or about an object that does
    not fit its struct.

    An event about an object that does not fit becomes a bookmark, so that a later watch starts after this event. Only a
    deletion stays a deletion: the identity of the object is enough for it.
    """
    try:
        raw: _RawEvent = _decode(_RawEvent, line)
    except msgspec.MsgspecError as error:
        raise WatchFailed(0, "Garbled", f"{resource.plural}: what is no event in a watch: {error}") from error
    if raw.type == "ERROR":
        raise _failure(raw.object)
    metadata = _identity(raw.object)
    version = metadata.resource_version
    if raw.type == "DELETED":
        bare = msgspec.convert({"metadata": metadata}, resource.type)
        return WatchEvent(EventType.DELETED, bare, version)
    if raw.type == "BOOKMARK":
        return WatchEvent(EventType.BOOKMARK, None, version)
    try:
        obj = decode_object(resource, raw.object)
    except (InvalidObject, ApiError) as error:
        unreadable = _unreadable(resource, raw.object, error, on_invalid)
        return WatchEvent(EventType.BOOKMARK, None, version, unreadable)
    if raw.type not in _CHANGES:
        return WatchEvent(EventType.BOOKMARK, None, version)
    return WatchEvent(EventType(raw.type), obj, version)


_CHANGES = (EventType.ADDED.value, EventType.MODIFIED.value)


def _failure(status: msgspec.Raw) -> ApiError:
    """The exception for an ERROR event."""
    try:
        found = from_status(_status.decode(status))
    except Undecodable as error:
        return WatchFailed(0, "Garbled", f"the watch failed, and the answer does not say why: {error}")
    if isinstance(found, Gone | TooManyRequests):
        return found
    return WatchFailed(found.status, found.reason, found.message, found.retry_after)


def _unreadable(
    resource: Resource[Any], text: bytes | msgspec.Raw, error: InvalidObject | ApiError, on_invalid: OnInvalid
) -> Unreadable:
    """Report an invalid object, and pass its readable parts on."""
    metadata = _identity(text)
    # A new error, because the traceback of the raised one keeps the whole body alive.
    if isinstance(error, InvalidObject):
        error = InvalidObject(error.path, error.value, error.why)
    else:
        error = InvalidObject(f"{resource.kind} {metadata.namespace}/{metadata.name}", None, error.message)
    on_invalid(resource, metadata.namespace, metadata.name, error)
    return Unreadable(metadata, error, bytes(text))


def _read(resource: Resource[Any], data: bytes | msgspec.Raw) -> Any:
    """Decode one object, also one of an older version. Raises only msgspec's errors."""
    if resource.upgrade is None:
        return _decode(resource.type, data)
    return msgspec.convert(resource.upgrade(_decode(Any, data)), resource.type)


def _decode(cls: Any, data: bytes | msgspec.Raw) -> Any:
    """Decode; a text that is nested too deeply is cut, and bytes that are no UTF-8 are replaced. Raises only msgspec's
    errors.
    """
    decoder = _decoder(cls)
    try:
        return decoder.decode(data)
    except RecursionError:
        data = cut(bytes(data))
    except UnicodeDecodeError:
        data = bytes(data).decode("utf-8", "replace").encode()
    except msgspec.MsgspecError:
        raise
    except ValueError as error:
        raise msgspec.ValidationError(str(error)) from error
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError:
        raise
    except (RecursionError, ValueError) as error:
        raise msgspec.ValidationError(str(error)) from error


def cut(data: bytes, depth: int = DEEPEST + _WRAPPING) -> bytes:
    """The same JSON with null for values that are nested deeper than depth levels."""
    pieces: list[bytes] = []
    level, start, cut_from = 0, 0, 0
    for token in _NESTING.finditer(data):
        mark = data[token.start()]
        if mark in b"[{":
            level += 1
            if level == depth + 1:
                cut_from = token.start()
        elif mark in b"]}":
            if level == depth + 1:
                pieces += (data[start:cut_from], b"null")
                start = token.end()
            level -= 1
    pieces.append(data[start:])
    return b"".join(pieces)


def decode_served(data: bytes) -> set[str]:
    """The plurals in a discovery body; subresources are left out."""
    try:
        found = _decode(_ServedList, data)
    except msgspec.MsgspecError as error:
        raise Unavailable(0, "Garbled", f"discovery: {error}") from error
    return {resource.name for resource in found.resources or () if "/" not in resource.name}


class LineSplitter:
    """Joins chunks and cuts them into lines; a line of any length may be spread over any chunks.

    An incomplete line at the end of the stream is dropped: the server sends its event again to the next watch.
    """

    def __init__(self, largest: int = LARGEST_LINE) -> None:
        self._pending: list[bytes] = []
        self._size = 0
        self._largest = largest

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without empty ones. Raises WatchFailed if a line has no end."""
        self._pending.append(chunk)
        self._size += len(chunk)
        if b"\n" not in chunk:
            if self._size > self._largest:
                raise WatchFailed(0, "Garbled", f"a watch sends an event of more than {self._largest} bytes")
            return []
        *lines, rest = b"".join(self._pending).split(b"\n")
        self._pending, self._size = [rest], len(rest)
        return [line for line in lines if line]


def is_named(text: bytes) -> bool:
    """Whether a text is an object whose name can be read, even if other fields cannot be read."""
    return bool(_identity(text).name)


def _identity(text: bytes | msgspec.Raw) -> ObjectMeta:
    """The identity of an object, as far as it can be read."""
    try:
        found = _decode(_Identified, text).metadata
    except msgspec.MsgspecError:
        version = _VERSION.search(bytes(text))
        return ObjectMeta(resource_version=version[1].decode() if version else "")
    return ObjectMeta(
        name=found.name,
        namespace=found.namespace,
        uid=found.uid,
        resource_version=found.resource_version,
    )


def _invalid(resource: Resource[Any], data: bytes | msgspec.Raw, error: msgspec.ValidationError) -> InvalidObject:
    """The error with the object's name, the field's path and its value."""
    why, _, path = str(error).partition(" - at `$")
    path = path.rstrip("`")
    metadata = _identity(data)
    name = f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name
    return InvalidObject(f"{resource.kind} {name}: {path.lstrip('.')}", _value(data, path), why)


def _value(data: bytes | msgspec.Raw, path: str) -> Any:
    """The value at a path such as ``.spec.containers[0].name``."""
    try:
        value = _decode(Any, data)
    except msgspec.MsgspecError:
        return None
    for key, index in _STEP.findall(path):
        inner = value.get(key) if key and isinstance(value, dict) else None
        value = value[int(index)] if index and isinstance(value, list) else inner
    return value


def _garbled(resource: Resource[Any], error: Exception | str) -> Unavailable:
    return Unavailable(0, "Garbled", f"{resource.plural}: the answer is not what it should be: {error}")
