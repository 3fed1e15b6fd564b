"""Reads the texts in annotations and labels: device ids, JSON.

Any text gives a value or an InvalidObject: no number of digits, no nesting and no encoding raises another error.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, TypeVar, cast

import msgspec

from gangline.bounds import MOST_JSON
from gangline.errors import InvalidObject

MOST_IDS = 256
"""Device ids in one list that are read; further ids are ignored."""
_MOST_ID_DIGITS = 4
_KEPT_LENGTH = 64
T = TypeVar("T")


def device_ids(text: str) -> tuple[int, ...]:
    """The ids in `0,1` or `node:0,1`, in ascending order, each once; parts that are no id are ignored."""
    return _known(text) if len(text) <= _KEPT_LENGTH else _ids(text)


@lru_cache(4096)
def _known(text: str) -> tuple[int, ...]:
    """The pods of a cluster have few different lists, which are read again and again."""
    return _ids(text)


def _ids(text: str) -> tuple[int, ...]:
    listed = text.rpartition(":")[2].split(",", MOST_IDS)[:MOST_IDS]
    parts = (part.strip() for part in listed)
    return tuple(
        sorted({int(part) for part in parts if len(part) <= _MOST_ID_DIGITS and part.isascii() and part.isdigit()})
    )


def from_json(key: str, text: str, type_: type[T]) -> T:
    """The JSON under key, as a type that msgspec knows. Raises InvalidObject."""
    if len(text) > MOST_JSON:
        raise InvalidObject(key, None, f"{len(text)} characters of JSON, and at most {MOST_JSON} are read")
    try:
        found: T = _decoder(cast(Any, type_)).decode(text)
    except (msgspec.MsgspecError, ValueError) as error:
        raise InvalidObject(key, text, str(error)) from None
    except RecursionError:
        raise InvalidObject(key, text, "is nested too deeply") from None
    return found


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)
