"""How much memory values take, and caches that are bounded by the bytes that they hold.

An entry is measured once, when it is stored, and not when it is used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

OBJECT_BYTES = 64
"""The size of a Python object without what it refers to: header, garbage collector's links, a dictionary's slot."""
_REFERENCE_BYTES = 16
_MOST_VISITED = 20_000
"""Objects that are visited for one value; of a larger value only this much is counted."""

# A union of types that is written where it is used is made anew each time.
_SMALL = (bool, int, float, type)
_TEXTS = (str, bytes)
_SEVERAL = (list, tuple, set, frozenset)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def size_of(*values: object) -> int:
    """Bytes of arrays and texts, and a fixed size for each object in containers, dataclasses and structs.

    Each object counts once. An object of any other type counts with the fixed size only, without its content.
    """
    total, visited = 0, 0
    seen: set[int] = set()
    pending: list[object] = list(values)
    while pending and visited < _MOST_VISITED:
        value = pending.pop()
        if value is None or isinstance(value, _SMALL) or id(value) in seen:
            continue
        visited += 1
        seen.add(id(value))
        total += OBJECT_BYTES
        if isinstance(value, _TEXTS):
            total += len(value)
        elif isinstance(value, np.ndarray):
            memory = value if value.base is None or not isinstance(value.base, np.ndarray) else value.base
            if memory is value or id(memory) not in seen:
                seen.add(id(memory))
                total += memory.nbytes
        else:
            parts = list(_parts(value))
            total += _REFERENCE_BYTES * len(parts)
            pending += parts
    return total


def _parts(value: Any) -> Iterator[object]:
    if isinstance(value, _SEVERAL):
        yield from value
    elif isinstance(value, dict):
        yield from value.keys()
        yield from value.values()
    else:
        for name in _field_names(value.__class__):
            yield getattr(value, name, None)


@lru_cache(maxsize=1024)
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
            self.bytes -= self._sizes.pop(oldest)

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
