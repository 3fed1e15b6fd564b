"""How much of one object is read: the one place that says what is too large, too deep or too many.

The API server accepts objects of up to about 1.5 MB and limits little inside of them: it accepts 10,000 node selectors,
containers or resource names in one pod. Each of them would cost every scheduler time or memory. So an object that
exceeds these bounds is set aside with the reason, and is read again when it changes. No realistic object comes near.
"""

from __future__ import annotations

from collections.abc import Sized
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from gangline.errors import InvalidObject

MOST_IN_SPEC = 256
"""Entries of any list or map in a pod's spec: containers, tolerations, terms, keys of a selector. A kubelet runs 110
pods on a node by default, and a pod of more than some dozen containers is unheard of."""
MOST_ENTRIES = 4096
"""Entries of a list of texts or numbers in a pod's spec (the values of a selector), and of any list or map of any other
object: images on a node, data of a ConfigMap."""
MOST_IN_ALL = 16_384
"""Entries of all lists and maps of an object together."""
MOST_RESOURCES = 256
"""Names of resources in one map of requests, limits or allocatable amounts. Nodes with MIG and SR-IOV have dozens."""
MOST_LABELS = 1024
"""Labels or annotations of one object; the API server allows 256 KiB of annotations."""
MOST_DIGITS = 128
"""Characters of a quantity. 2^63 bytes, the most that a quantity can say, has 19 digits."""
MOST_INTEGER = 2**63 - 1
"""The integers of the API have 64 bits; a custom resource may hold larger ones."""
DEEPEST = 64
"""Levels of nesting that are read. What is read of pods, the deepest of all kinds, has 14."""
MOST_JSON = 256 * 1024
"""Characters of JSON in an annotation that are read: as many as the API server takes for all annotations together."""


_SMALL = frozenset((str, bool, float, NoneType))
"""Types whose values are never too large."""


def check(obj: msgspec.Struct, most: int = MOST_ENTRIES) -> None:
    """Raise InvalidObject, with the path, where an object goes past the bounds.

    ``most`` limits the entries of a map, and of a list of other structs; a list of texts or numbers may have
    MOST_ENTRIES. The cost is some microseconds for an object of usual size: a field that holds a single text, float or
    truth value is not looked at, because decoding has checked the type.
    """
    left = MOST_IN_ALL
    pending: list[tuple[Any, tuple[Any, str] | None]] = [(obj, None)]
    while pending:
        owner, place = pending.pop()
        for name, look_inside in _FIELDS[type(owner)]:
            value = getattr(owner, name)
            if not value:
                continue
            kind = type(value)
            if kind is list or kind is dict:
                number = len(value)
                left -= number
                if number > most:
                    limit = most if kind is dict or isinstance(value[0], msgspec.Struct) else MOST_ENTRIES
                    check_count(_path(place, name), value, limit)
                if left < 0:
                    raise InvalidObject("", None, f"more than {MOST_IN_ALL} entries in all")
                if look_inside:
                    for each in value if kind is list else value.values():
                        if isinstance(each, msgspec.Struct):
                            pending.append((each, (place, name)))
                        elif kind is list and type(each) is int and not -MOST_INTEGER <= each <= MOST_INTEGER:
                            raise InvalidObject(_path(place, name), None, "an integer of more than 64 bits")
            elif kind is int:
                if not -MOST_INTEGER <= value <= MOST_INTEGER:
                    raise InvalidObject(_path(place, name), None, "an integer of more than 64 bits")
            elif isinstance(value, msgspec.Struct):
                pending.append((value, (place, name)))


class _Fields(dict[type[msgspec.Struct], tuple[tuple[str, bool], ...]]):
    """By struct: the fields that may hold something large, and whether their entries may too."""

    def __missing__(self, struct: type[msgspec.Struct]) -> tuple[tuple[str, bool], ...]:
        found = [(field.name, _alternatives(field.type)) for field in msgspec.structs.fields(struct)]
        self[struct] = tuple(
            (name, any(map(_holds_large, types))) for name, types in found if not all(map(_is_small, types))
        )
        return self[struct]


_FIELDS = _Fields()


def _alternatives(type_: Any) -> frozenset[Any]:
    """The types that a value may have."""
    if get_origin(type_) is Annotated:
        return _alternatives(get_args(type_)[0])
    if get_origin(type_) in (Union, UnionType):
        return frozenset().union(*map(_alternatives, get_args(type_)))
    return frozenset((type_,))


def _is_small(type_: Any) -> bool:
    """Whether values of this type are never too large; a struct is small if all its fields are, like a condition."""
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        return all(_alternatives(field.type) <= _SMALL for field in msgspec.structs.fields(type_))
    return type_ in _SMALL


def _holds_large(type_: Any) -> bool:
    """Whether entries of a list or a map of this type have to be looked at; integers in a map are quantities."""
    if _is_small(type_):
        return False
    kind = get_origin(type_)
    if kind not in (list, dict):
        return True
    entries = _alternatives(get_args(type_)[-1])
    return not all(_is_small(each) or (kind is dict and each is int) for each in entries)


def check_count(path: str, entries: Sized | None, most: int) -> None:
    """Raise InvalidObject if a map or list has more entries than are read."""
    if entries is not None and len(entries) > most:
        raise InvalidObject(path, None, f"{len(entries)} entries, and at most {most} are read")


def _path(place: Any, name: str) -> str:
    """The way to a field in the names of the API, without the numbers of list entries."""
    names = [name]
    while place is not None:
        place, outer = place
        names.append(outer)
    return ".".join(_camel(each) for each in reversed(names))


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(each.title() for each in tail)
