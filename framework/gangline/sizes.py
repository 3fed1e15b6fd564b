"""How much memory values take, and caches that are bounded by the bytes that they hold.

An entry is measured once, when it is stored, and not when it is used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from operator import attrgetter
from types import NoneType
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

OBJECT_BYTES = 64
"""The size of a Python object without what it refers to: header, garbage collector's links, a dictionary's slot."""
_REFERENCE_BYTES = 16
_FREE = frozenset((NoneType, bool, int, float, type))
"""Types of values that are not counted."""
_MOST_VISITED = 20_000
"""Objects that are visited for one value; of a larger value only this much is counted."""

_MOST_DROPPED = 1024
"""Dropped entries that a cache remembers."""

_TEXTS = (str, bytes)
_SEVERAL = (list, tuple, set, frozenset)
_CONTENT = (np.ndarray, dict, *_TEXTS, *_SEVERAL)
"""Types whose objects have content, but no fields."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def size_of(*values: object) -> int:
    """Bytes of arrays and texts, and a fixed size for each object in containers, dataclasses and structs.

    Each object counts once. An object of any other type counts with the fixed size only, without its content.
    """
    total, visited = 0, 0
    seen: set[int] = set()
    pending: list[Any] = list(values)
    while pending and visited < _MOST_VISITED:
        value = pending.pop()
        kind = value.__class__
        if kind in _FREE or (at := id(value)) in seen:
            continue
        visited += 1
        seen.add(at)
        if kind is str:
            total += OBJECT_BYTES + len(value)
            continue
        total += OBJECT_BYTES
        if kind is tuple:
            parts: Collection[object] = value
        elif (fields_of := _fields_of(kind)) is not None:
            parts = fields_of(value)
        elif isinstance(value, np.ndarray):
            total += _new_memory(value, seen)
            continue
        elif isinstance(value, _TEXTS):
            total += len(value)
            continue
        else:
            parts = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        total += _REFERENCE_BYTES * len(parts)
        pending += parts
    return total


def quick_size_of(*values: object) -> int:
    """About as many bytes as `size_of`, counted in a quarter of the time if the values are plain data.

    The values are written as JSON, and its separators and brackets count the objects. Names of fields and objects that
    occur twice make the number larger; only fields that a struct leaves out at their default make it smaller.
    """
    try:
        text = _AS_JSON.encode(values)
    except Exception:  # the values are no plain data, or cannot be written
        return size_of(*values)
    objects = len(text) - len(text.translate(None, b",[{:"))
    return len(text) + (OBJECT_BYTES + _REFERENCE_BYTES) * objects


def _new_memory(array: NDArray[Any], seen: set[int]) -> int:
    """The bytes of the memory that an array shows, unless they count already."""
    memory = array if array.base is None or not isinstance(array.base, np.ndarray) else array.base
    if memory is not array and id(memory) in seen:
        return 0
    seen.add(id(memory))
    return memory.nbytes


@lru_cache(maxsize=1024)
def _has_content(kind: type[Any]) -> bool:
    """Whether `size_of` looks into objects of a type."""
    return issubclass(kind, _CONTENT) or bool(_field_names(kind))


def _without_content(value: Any) -> None:
    """Stands in JSON for an object of which only the fixed size counts. Raises TypeError for any other."""
    if _has_content(value.__class__):
        raise TypeError("an object whose content has to be counted")


_AS_JSON = msgspec.json.Encoder(enc_hook=_without_content)


@lru_cache(maxsize=1024)
def _fields_of(kind: type[Any]) -> Callable[[Any], Collection[object]] | None:
    """A function that returns the fields of an object, none for an unknown type; None for texts and containers."""
    if issubclass(kind, _CONTENT):
        return None
    names = _field_names(kind)
    read = attrgetter(*names) if len(names) > 1 else None

    def fields_of(value: Any) -> Collection[object]:
        if read is not None:
            try:
                return read(value)
            except AttributeError:  # a field has not been set
                pass
        return [getattr(value, name, None) for name in names]

    return fields_of


def _field_names(kind: type[Any]) -> tuple[str, ...]:
    """The fields of a struct or dataclass."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


class BoundedCache(Generic[K, V]):
    """Keeps the last used values, up to a number of bytes, and always at least the newest `fewest` entries."""

    def __init__(self, most_bytes: int, size: Callable[[K, V], int] = size_of, fewest: int = 1) -> None:
        self._most = most_bytes
        self._size = size
        self._fewest = fewest
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._sizes: dict[K, int] = {}
        self.bytes = 0
        """The size of all entries."""

    def get(self, key: K) -> V | None:
        """The value under the key, or None; the entry then counts as last used."""
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V:
        """Store the value under the key; returns it."""
        self._kept[key] = value
        self._kept.move_to_end(key)
        self.measure(key)
        return value

    def measure(self, key: K) -> None:
        """The value under the key has grown: measure it again, and drop entries if they are too large."""
        if key not in self._kept:
            return
        size = self._size(key, self._kept[key])
        self.bytes += size - self._sizes.get(key, 0)
        self._sizes[key] = size
        while self.bytes > self._most and len(self._kept) > self._fewest:
            oldest, _ = self._kept.popitem(last=False)
            dropped = self._sizes.pop(oldest)
            self.bytes -= dropped
            self._has_dropped(oldest, dropped)

    def _has_dropped(self, key: K, size: int) -> None:
        """An entry of this size has been dropped because there was no room for it."""

    def pop(self, key: K) -> None:
        """Drop the entry of a key, if there is one."""
        if self._kept.pop(key, None) is not None:
            self.bytes -= self._sizes.pop(key)

    def clear(self) -> None:
        """Drop all entries."""
        self._kept.clear()
        self._sizes.clear()
        self.bytes = 0

    def items(self) -> Mapping[K, V]:
        """All entries, the oldest first; for tests and debugging."""
        return self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, key: K) -> bool:
        return key in self._kept


class CacheByUse(BoundedCache[K, V]):
    """Grows when a value is asked for that it has dropped for lack of room, up to a second number of bytes.

    So values that are asked for once do not make it larger.
    """

    def __init__(
        self, first_bytes: int, most_bytes: Callable[[], int], size: Callable[[K, V], int] = size_of, fewest: int = 1
    ) -> None:
        super().__init__(first_bytes, size, fewest)
        self._largest = most_bytes
        self._dropped: OrderedDict[int, int] = OrderedDict()
        """By hash of the key: the sizes of the entries that were dropped last."""

    def get(self, key: K) -> V | None:
        """The value under the key, or None; the entry then counts as last used."""
        found = super().get(key)
        if found is None and (size := self._dropped.pop(hash(key), 0)):
            self._most = max(self._most, min(self._most + size, self._largest()))
        return found

    def _has_dropped(self, key: K, size: int) -> None:
        self._dropped[hash(key)] = size
        if len(self._dropped) > _MOST_DROPPED:
            self._dropped.popitem(last=False)
