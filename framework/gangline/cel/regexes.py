"""Regular expressions in RE2's syntax and in linear time, by RE2 itself."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import re2

from gangline.cel import costs
from gangline.cel.overloads import Overload
from gangline.errors import ExpressionFailed

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@lru_cache(maxsize=1024)
def regex(pattern: str) -> Any:
    """The compiled pattern. Raises ExpressionFailed."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except (re2.error, UnicodeError):
        raise ExpressionFailed(f"not a regular expression: {pattern[:80]!r}") from None


def _search(pattern: str, text: str, at: int = 0) -> Any:
    try:
        return regex(pattern).search(text, at)
    except UnicodeError:
        raise ExpressionFailed("a text with a lone surrogate") from None


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern occurs in the text. Raises ExpressionFailed."""
    return _search(pattern, text) is not None


def find(text: str, pattern: str) -> str:
    """The first match, or an empty text. Raises ExpressionFailed."""
    match = _search(pattern, text)
    return "" if match is None else match.group()


def find_all(text: str, pattern: str, most: int = -1) -> list[str]:
    """The matches from left to right, at most `most` of them if `most` is not negative; no empty match directly after
    another match.
    """
    found: list[str] = []
    at, end = 0, -1
    while at <= len(text) and (most < 0 or len(found) < most):
        match = _search(pattern, text, at)
        if match is None:
            break
        keep = match.end() > match.start() or match.start() != end
        at = max(match.end(), at + 1) if match.end() == at else match.end()
        end = match.end()
        if keep:
            found.append(match.group())
    return found


OVERLOADS = [
    Overload("matches", "matches(string; string) bool", matches),
    Overload("matches_string", "string|matches(string) bool", matches, costs.matches),
    Overload("string_find_string", "string|find(string) string", find, costs.matches),
    Overload("string_find_all_string", "string|findAll(string) list<string>", find_all, costs.matches),
    Overload("string_find_all_string_int", "string|findAll(string; int) list<string>", find_all, costs.matches),
]
