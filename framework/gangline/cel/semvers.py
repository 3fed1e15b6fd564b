"""Semantic versions."""

from __future__ import annotations

import re
from typing import Any

from gangline.cel import costs
from gangline.cel.overloads import Overload
from gangline.cel.values import MOST_UINT, name_type, strict
from gangline.errors import ExpressionFailed

_NUMBER = r"(0|[1-9][0-9]{0,19})"
_NAME = r"[0-9A-Za-z-]+"
_NAMES = rf"{_NAME}(?:\.{_NAME})*"
_FORM = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-({_NAMES}))?(?:\+({_NAMES}))?")
_DIGITS = re.compile(r"[0-9]+")


class Semver:
    """A version; the build metadata after + does not count in comparisons."""

    __slots__ = ("key", "numbers")

    def __init__(self, numbers: tuple[int, int, int], pre: tuple[str, ...]) -> None:
        self.numbers = numbers
        names = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in pre)
        self.key = (numbers, not pre, names)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.key == other.key

    __hash__ = None  # type: ignore[assignment]


name_type(Semver, "kubernetes.Semver")
strict(Semver)


def semver_of(text: str, normalize: bool = False) -> Semver:
    """The version in a text; `normalize` allows a leading v, leading zeros and missing parts."""
    match = _FORM.fullmatch(_normalized(text) if normalize else text)
    if match is None or any(int(match[i]) > MOST_UINT for i in (1, 2, 3)):
        raise ExpressionFailed(f"not a semantic version: {text[:60]!r}")
    pre = tuple(match[4].split(".")) if match[4] else ()
    for each in pre:
        if _DIGITS.fullmatch(each) and (len(each) > 20 or (len(each) > 1 and each[0] == "0") or int(each) > MOST_UINT):
            raise ExpressionFailed(f"not a semantic version: {text[:60]!r}")
    return Semver((int(match[1]), int(match[2]), int(match[3])), pre)


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for i, part in enumerate(parts):
        if len(part) > 1:
            bare = part.lstrip("0")
            parts[i] = bare if bare and bare[0] in "0123456789" else "0" + bare
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise ExpressionFailed("a short version has no pre-release and no build")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        semver_of(text, normalize)
    except ExpressionFailed:
        return False
    return True


def _part(place: int) -> Any:
    def run(version: Semver) -> int:
        number = version.numbers[place]
        return number if number < 2**63 else number - 2**64

    return run


OVERLOADS = [
    Overload("string_to_semver", "semver(string) Semver", semver_of, costs.traverses()),
    Overload("string_bool_to_semver", "semver(string; bool) Semver", semver_of, costs.traverses()),
    Overload("is_semver_string", "isSemver(string) bool", _is_semver, costs.traverses()),
    Overload("is_semver_string_bool", "isSemver(string; bool) bool", _is_semver, costs.traverses()),
    Overload("semver_is_greater_than", "Semver|isGreaterThan(Semver) bool", lambda a, b: a.key > b.key),
    Overload("semver_is_less_than", "Semver|isLessThan(Semver) bool", lambda a, b: a.key < b.key),
    Overload("semver_compare_to", "Semver|compareTo(Semver) int", lambda a, b: (a.key > b.key) - (a.key < b.key)),
    Overload("semver_major", "Semver|major() int", _part(0)),
    Overload("semver_minor", "Semver|minor() int", _part(1)),
    Overload("semver_patch", "Semver|patch() int", _part(2)),
]
