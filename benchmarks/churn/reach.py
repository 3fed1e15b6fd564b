"""How much of everything can be reached from an object, by the type and the attribute that hold it.

Rules:
- A container counts under the nearest object that has a name for it: `LeaseBook.suspects`, `Cache._pods[].labels`. All
  objects of a type count together.
- What runs counts too: the variables of coroutines and of closures, and the objects of bound methods.
- Nothing is reached through classes, modules or weak references. The variables of modules are roots of their own.
- A cache with a maximum size is no container: it cannot grow for ever. Those of the standard library are known, and
  `BOUNDED` names the others.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import sys
import types
import weakref
from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

_ATOMS: tuple[type, ...] = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    type(None),
    type,
    types.ModuleType,
    weakref.ref,
)
_PLAIN = frozenset(_ATOMS)
"""The types of most objects; a look into a set takes a tenth of `isinstance`, which knows subclasses too."""
_SEQUENCES = (list, tuple, set, frozenset, deque)
_CACHE = type(functools.lru_cache(lambda: None))
_RUNNING = {
    types.CoroutineType: ("cr_frame", "cr_await"),
    types.GeneratorType: ("gi_frame", "gi_yieldfrom"),
    types.AsyncGeneratorType: ("ag_frame", "ag_await"),
}
"""For each type of running code: the attributes with its frame, and with the object that it waits for."""
Part = tuple[str, Any]
"""What an object holds, and under which name: "" if the holder has no name for it."""


class Reach:
    """The sizes of all containers by who holds them, and the number and the bytes of all objects.

    Objects of the types `without`, objects under the names `closed`, and the objects `besides` are left out.

    A container's size is the number of its entries, an array's that of its elements.
    """

    def __init__(
        self,
        roots: Mapping[str, Any],
        without: tuple[type, ...] = (),
        closed: Container[str] = frozenset(),
        besides: Iterable[object] = (),
    ) -> None:
        self.sizes: Counter[str] = Counter()
        self.objects = 0
        self.bytes = 0
        self._without: tuple[type, ...] = (*_ATOMS, *without)
        self._closed = closed
        self._seen = set(map(id, besides))
        """The ids of the objects that were counted, or are left out."""
        self._alive: list[Any] = []
        """Keeps frames and bound methods, which are made on request, alive: otherwise another object could get the same
        id.
        """
        left = deque(roots.items())
        while left:
            name, each = left.popleft()
            if not (id(each) in self._seen or name in self._closed or isinstance(each, self._without)):
                left.extend(part for part in self._parts(name, each) if type(part[1]) not in _PLAIN)

    def _parts(self, name: str, holder: Any) -> Iterator[Part]:
        """What an object holds, each under its full name."""
        self._seen.add(id(holder))
        self._alive.append(holder)
        self.objects += 1
        self.bytes += sys.getsizeof(holder)
        if isinstance(holder, np.ndarray):
            self.sizes[name] += holder.size
            if holder.dtype == object:
                yield from _entries(f"{name}[]", holder.ravel())
        elif isinstance(holder, (dict, types.MappingProxyType)):
            self.sizes[name] += len(holder)
            yield from _entries(f"{name}[key]", holder.keys())
            yield from _entries(f"{name}[]", holder.values())
        elif isinstance(holder, _SEQUENCES):
            self.sizes[name] += len(holder)
            yield from _entries(f"{name}[]", holder)
        else:
            kind, parts = _held(holder)
            yield from ((f"{kind}.{part}" if part else name, each) for part, each in parts)
        if isinstance(holder, (dict, list, tuple, set, deque)) and type(holder).__module__ != "builtins":
            kind, parts = _held(holder)  # a subclass with attributes
            yield from ((f"{kind}.{part}", each) for part, each in parts if part)


def of_modules(prefix: str) -> dict[str, Any]:
    """The variables of all modules with such a name, and of their classes."""
    found: dict[str, Any] = {}
    for module in [each for name, each in sys.modules.items() if name.startswith(prefix) and each is not None]:
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == module.__name__:
                plain = {key: each for key, each in vars(value).items() if not key.startswith("__")}
                found |= {f"{module.__name__}.{name}.{key}": each for key, each in plain.items()}
            elif not name.startswith("__"):
                found[f"{module.__name__}.{name}"] = value
    return found


def grown(measured: Sequence[Mapping[str, int]], least: int = 2) -> dict[str, tuple[int, ...]]:
    """The names of which each measurement has more than the one before, by at least so many, and their sizes."""
    names = set().union(*measured)
    sizes = {name: tuple(each.get(name, 0) for each in measured) for name in sorted(names)}
    return {
        name: found
        for name, found in sizes.items()
        if all(after - before >= least for before, after in itertools.pairwise(found))
    }


def _entries(name: str, held: Iterable[Any]) -> list[Part]:
    """The entries of a container, all under one name; most containers hold mere texts and numbers."""
    return [(name, each) for each in held if type(each) not in _PLAIN]


def _held(holder: Any) -> tuple[str, Iterable[Part]]:
    """What to call an object that is no container, and what it holds."""
    kind = type(holder)
    if kind in _RUNNING:
        frame, waits_for = _RUNNING[kind]
        running = getattr(holder, frame)
        variables = list(running.f_locals.items()) if running is not None else []
        return f"{holder.__qualname__}()", [*variables, ("", getattr(holder, waits_for))]
    if isinstance(holder, types.FunctionType):
        cells = zip(holder.__code__.co_freevars, holder.__closure__ or (), strict=True)
        return f"{holder.__qualname__}()", [(name, _content(cell)) for name, cell in cells]
    if isinstance(holder, (types.MethodType, types.BuiltinMethodType)):
        return "", [("", holder.__self__), ("", getattr(holder, "__func__", None))]
    if isinstance(holder, _CACHE):
        inner: list[Part] = [("", holder.__wrapped__)]
        if holder.cache_parameters()["maxsize"] is None:
            inner += [("cache", each) for each in gc.get_referents(holder) if isinstance(each, dict)]
        return f"{holder.__wrapped__.__qualname__}()", inner
    if isinstance(holder, asyncio.Task):
        return "", [("", holder.get_coro()), *(("", each) for each in gc.get_referents(holder))]
    fields = [*_fields(holder)]
    return (kind.__qualname__, fields) if fields else ("", [("", each) for each in gc.get_referents(holder)])


def _fields(holder: Any) -> Iterator[Part]:
    """The attributes of an object."""
    yield from list(getattr(holder, "__dict__", {}).items())
    for each in type(holder).__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            found = getattr(holder, f"_{each.__name__.lstrip('_')}{name}" if private else name, None)
            if name not in ("__dict__", "__weakref__"):
                yield name, found
    for name in getattr(type(holder), "__struct_fields__", ()):
        yield name, getattr(holder, name)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None
