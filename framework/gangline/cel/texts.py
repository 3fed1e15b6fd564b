"""Functions on strings. Places are counted in code points."""

from __future__ import annotations

from typing import Any

from gangline.cel import costs
from gangline.cel.arithmetic import bounded
from gangline.cel.formatting import formatted
from gangline.cel.overloads import Overload
from gangline.errors import ExpressionFailed

_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006"
    "\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_LOWER = {ord("A") + i: ord("a") + i for i in range(26)}
_UPPER = {ord("a") + i: ord("A") + i for i in range(26)}
_QUOTED = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _out_of_range(place: int) -> ExpressionFailed:
    return ExpressionFailed(f"index out of range: {place}")


def _char_at(text: str, place: int) -> str:
    if not 0 <= place <= len(text):
        raise _out_of_range(place)
    return text[place : place + 1]


def _index_of(text: str, wanted: str, start: int = 0) -> int:
    if not wanted:
        return start
    if start < 0:
        raise _out_of_range(start)
    return -1 if start >= len(text) else text.find(wanted, start)


def _last_index_of(text: str, wanted: str) -> int:
    if not wanted:
        return len(text)
    if len(text.encode("utf-8", "surrogatepass")) < len(wanted.encode("utf-8", "surrogatepass")):
        return -1
    return _last_index_before(text, wanted, len(text) - 1)


def _last_index_before(text: str, wanted: str, last: int) -> int:
    if not wanted:
        return last
    if last < 0:
        raise _out_of_range(last)
    return -1 if last >= len(text) else text.rfind(wanted, 0, last + len(wanted))


def _replace(text: str, old: str, new: str, most: int = -1) -> str:
    count = text.count(old) if old else len(text) + 1
    times = count if most < 0 else min(most, count)
    if len(text) + times * len(new) > 10_000_000:
        raise ExpressionFailed("the text would be too long")
    return text.replace(old, new, times) if times else text


def _split(text: str, separator: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    if separator:
        return text.split(separator, most - 1 if most > 0 else -1)
    return list(text) if most < 0 or most >= len(text) else [*text[: most - 1], text[most - 1 :]]


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise ExpressionFailed(f"invalid substring range. start: {start}, end: {end}")
    for place in (start, len(text) if end is None else end):
        if not 0 <= place <= len(text):
            raise _out_of_range(place)
    return text[start:end]


def _join(parts: list[Any], separator: str = "") -> str:
    if any(type(part) is not str for part in parts):
        raise ExpressionFailed("join() of something else than strings")
    if sum(map(len, parts)) + len(parts) * len(separator) > 10_000_000:
        raise ExpressionFailed("the text would be too long")
    return separator.join(parts)


OVERLOADS = [
    Overload("contains_string", "string|contains(string) bool", lambda s, part: part in s, costs.searches),
    Overload("ends_with_string", "string|endsWith(string) bool", str.endswith, costs.traverses()),
    Overload("starts_with_string", "string|startsWith(string) bool", str.startswith, costs.traverses()),
    Overload("string_char_at_int", "string|charAt(int) string", _char_at),
    Overload("string_index_of_string", "string|indexOf(string) int", _index_of, costs.scans),
    Overload("string_index_of_string_int", "string|indexOf(string; int) int", _index_of, costs.scans),
    Overload("string_last_index_of_string", "string|lastIndexOf(string) int", _last_index_of, costs.scans),
    Overload("string_last_index_of_string_int", "string|lastIndexOf(string; int) int", _last_index_before, costs.scans),
    Overload("string_lower_ascii", "string|lowerAscii() string", lambda s: s.translate(_LOWER), costs.traverses()),
    Overload("string_upper_ascii", "string|upperAscii() string", lambda s: s.translate(_UPPER), costs.traverses()),
    Overload("string_replace_string_string", "string|replace(string; string) string", _replace, costs.traverses(2)),
    Overload(
        "string_replace_string_string_int", "string|replace(string; string; int) string", _replace, costs.traverses(2)
    ),
    Overload("string_split_string", "string|split(string) list<string>", _split, costs.traverses(2)),
    Overload("string_split_string_int", "string|split(string; int) list<string>", _split, costs.traverses(2)),
    Overload("string_substring_int", "string|substring(int) string", _substring, costs.traverses()),
    Overload("string_substring_int_int", "string|substring(int; int) string", _substring, costs.traverses()),
    Overload("string_trim", "string|trim() string", lambda s: s.strip(_SPACE), costs.traverses()),
    Overload(
        "string_format",
        "string|format(list<dyn>) string",
        lambda s, args: bounded(formatted(s, args)),
        costs.traverses(),
    ),
    Overload("strings_quote", "strings.quote(string) string", lambda s: f'"{s.translate(_QUOTED)}"', costs.traverses()),
    Overload("list_join", "list<string>|join() string", _join, costs.builds),
    Overload("list_join_string", "list<string>|join(string) string", _join, costs.builds),
]
