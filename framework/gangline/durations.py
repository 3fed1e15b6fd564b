"""Go's duration strings, as Kubernetes writes them: "15s", "1m30s", "100ms"."""

from __future__ import annotations

import re
from fractions import Fraction

_NANOSECONDS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
_WHOLE = re.compile(rf"\+?(?:{_PART})+")
_EACH = re.compile(_PART)


class Seconds(float):
    """A span of time in seconds; a Go duration string in YAML."""


def parse_duration(text: object) -> Seconds:
    """The seconds of a Go duration; ValueError for any other text, and for negative durations."""
    if text in ("0", "+0"):
        return Seconds(0)
    if not isinstance(text, str) or not _WHOLE.fullmatch(text):
        raise ValueError('expected a duration such as "15s", "1m30s" or "100ms"')
    parts = _EACH.findall(text)
    return Seconds(int(sum(Fraction(n) * _NANOSECONDS[unit] for n, unit in parts)) / 1e9)


def format_duration(seconds: float) -> str:
    """The Go duration string of ``seconds``; ``parse_duration`` reads it back."""
    nanoseconds = round(seconds * 1e9)
    if nanoseconds == 0:
        return "0s"
    parts = []
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, nanoseconds = divmod(nanoseconds, _NANOSECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)
