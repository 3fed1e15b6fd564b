"""Named formats such as dns1123Label, and the reasons why a text does not have a format."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

from gangline.cel import costs
from gangline.cel.overloads import Overload
from gangline.cel.urls import is_url
from gangline.cel.values import NONE, Optional, name_type, strict

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(\.{_LABEL.pattern})*")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_LABEL_VALUE = re.compile(rf"({_NAME.pattern})?")
_UUID = re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.ASCII)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(\.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))")


class Format:
    """`validate` returns the reasons why a text does not have the format; `size` is the pattern's length, for costs."""

    __slots__ = ("name", "size", "validate")

    def __init__(self, name: str, validate: Callable[[str], list[str]], size: int) -> None:
        self.name = name
        self.validate = validate
        self.size = size


name_type(Format, "kubernetes.NamedFormat")
strict(Format)


def _limited(pattern: re.Pattern[str], longest: int, what: str, prefix: bool = False) -> Callable[[str], list[str]]:
    def validate(text: str) -> list[str]:
        if prefix and len(text) > 1 and text.endswith("-"):
            text = text[:-2] + "a"
        lacks = [f"must be no more than {longest} bytes"] if len(text.encode("utf-8", "replace")) > longest else []
        return lacks if pattern.fullmatch(text) else [*lacks, f"must be {what}"]

    return validate


def _when(holds: Callable[[str], bool], why: str) -> Callable[[str], list[str]]:
    return lambda text: [] if holds(text) else [why]


def _qualified(text: str) -> list[str]:
    parts = text.split("/")
    if len(parts) > 2:
        return ["must be a name with an optional DNS subdomain and / before it"]
    lacks: list[str] = []
    if len(parts) == 2:
        lacks += ["the prefix must not be empty"] if not parts[0] else _SUBDOMAIN_CHECK(parts[0])
    name = parts[-1]
    if not name:
        lacks.append("the name must not be empty")
    elif len(name.encode("utf-8", "replace")) > 63:
        lacks.append("the name must be no more than 63 bytes")
    return lacks if _NAME.fullmatch(name) else [*lacks, "the name must consist of letters, digits, '-', '_' or '.'"]


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        date(int(match[1]) or 400, int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def _is_datetime(text: str) -> bool:
    parts = text.lower().split("t")
    if len(parts) < 2 or not _is_date(parts[0]):
        return False
    match = _TIME.search(parts[1])
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


_SUBDOMAIN_CHECK = _limited(_SUBDOMAIN, 253, "a DNS subdomain")

FORMATS = {
    "dns1123Label": Format("DNS1123Label", _limited(_LABEL, 63, "a DNS label"), 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", _SUBDOMAIN_CHECK, 60),
    "dns1035Label": Format("DNS1035Label", _limited(_LABEL_1035, 63, "a DNS-1035 label"), 30),
    "qualifiedName": Format("QualifiedName", _qualified, 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _limited(_LABEL, 63, "a DNS label", True), 30),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", _limited(_SUBDOMAIN, 253, "a DNS subdomain", True), 60),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _limited(_LABEL_1035, 63, "a DNS-1035 label", True), 30),
    "labelValue": Format("LabelValue", _limited(_LABEL_VALUE, 63, "a label value"), 40),
    "uri": Format("URI", _when(is_url, "must be an absolute URI"), 1103),
    "uuid": Format("uuid", _when(lambda text: _UUID.fullmatch(text) is not None, "does not match the UUID format"), 84),
    "byte": Format("byte", _when(lambda text: _BASE64.fullmatch(text) is not None, "invalid base64"), 84),
    "date": Format("date", _when(_is_date, "invalid date"), 97),
    "datetime": Format("datetime", _when(_is_datetime, "invalid datetime"), 97),
}


def _validate(form: Format, text: str) -> Optional:
    lacks = form.validate(text)
    return Optional(lacks) if lacks else NONE


def _named(name: str) -> Optional:
    return Optional(FORMATS[name]) if name in FORMATS else NONE


def _cost(args: Sequence[Any], _: Any) -> int:
    return costs.regex_cost(args[1], args[0].size)


def _constant(form: Format) -> Callable[[], Format]:
    return lambda: form


OVERLOADS = [
    *(Overload(f"format.{name}", f"format.{name}() Format", _constant(form)) for name, form in FORMATS.items()),
    Overload("format-named", "format.named(string) optional<Format>", _named),
    Overload("format-validate", "Format|validate(string) optional<list<string>>", _validate, _cost),
]
