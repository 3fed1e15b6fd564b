"""Timestamps and durations: nanoseconds as integers, within the bounds of the language."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from gangline.cel.overloads import Overload
from gangline.cel.values import LEAST_INT, MOST_INT, name_type, ordered
from gangline.errors import ExpressionFailed

SECOND = 10**9
_FIRST, _LAST = -62135596800, 253402300799
_EPOCH = date(1970, 1, 1).toordinal()
_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{1,2}):(\d{2}):(\d{2})(?:[.,](\d+))?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)
_PART = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}


class Duration:
    """A signed number of nanoseconds."""

    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        if not LEAST_INT <= ns <= MOST_INT:
            raise ExpressionFailed("integer overflow")
        self.ns = ns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.ns == other.ns

    def __hash__(self) -> int:
        return hash(self.ns)

    def __lt__(self, other: Duration) -> bool:
        return self.ns < other.ns

    def __gt__(self, other: Duration) -> bool:
        return self.ns > other.ns


class Timestamp:
    """Nanoseconds since 1970, and the offset from UTC, in seconds, that the text of the time had."""

    __slots__ = ("ns", "offset")

    def __init__(self, ns: int, offset: int = 0) -> None:
        if not _FIRST <= ns // SECOND <= _LAST:
            raise ExpressionFailed("timestamp overflow")
        self.ns = ns
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.ns == other.ns

    def __hash__(self) -> int:
        return hash(self.ns)

    def __lt__(self, other: Timestamp) -> bool:
        return self.ns < other.ns

    def __gt__(self, other: Timestamp) -> bool:
        return self.ns > other.ns


name_type(Duration, "google.protobuf.Duration")
name_type(Timestamp, "google.protobuf.Timestamp")
ordered(Duration)
ordered(Timestamp)


def duration_of(text: str) -> Duration:
    """A duration such as 1h30m or -1.5s. Raises ExpressionFailed."""
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return Duration(0)
    total, at = 0, 0
    while at < len(rest):
        match = _PART.match(rest, at)
        if match is None or not (match[1] or match[2]) or len(match[1]) > 20:
            break
        fraction = (match[2] or "")[:18]
        unit = _UNITS[match[3]]
        total += int(match[1] or 0) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        at = match.end()
    if not rest or at < len(rest):
        raise ExpressionFailed(f"not a duration: {text[:40]!r}")
    if total > MOST_INT + (sign < 0):
        raise ExpressionFailed("duration out of range")
    return Duration(sign * total)


def timestamp_of(text: str) -> Timestamp:
    """A time in the form of RFC 3339. Raises ExpressionFailed."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ExpressionFailed(f"not a timestamp: {text[:40]!r}")
    year, month, day, hour, minute, second = (int(match[i]) for i in range(1, 7))
    offset = 0
    if match[8]:
        if int(match[9]) > 24 or int(match[10]) > 60:
            raise ExpressionFailed(f"not a timestamp: {text[:40]!r}")
        offset = (int(match[9]) * 3600 + int(match[10]) * 60) * (-1 if match[8] == "-" else 1)
    try:
        # Python's years begin at 1: the year 0 is computed with the equal calendar of 400 years later.
        days = date(year + 400, month, day).toordinal() - _EPOCH - 146097 if year < 1 else _day(year, month, day)
    except ValueError:
        raise ExpressionFailed(f"not a timestamp: {text[:40]!r}") from None
    if hour > 23 or minute > 59 or second > 59:
        raise ExpressionFailed(f"not a timestamp: {text[:40]!r}")
    fraction = int((match[7] or "")[:9].ljust(9, "0"))
    seconds = days * 86400 + hour * 3600 + minute * 60 + second - offset
    return Timestamp(seconds * SECOND + fraction, offset)


def _day(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - _EPOCH


def duration_text(one: Duration) -> str:
    """The duration in seconds, as in 1.5s."""
    text = format_float(_seconds(one))
    return f"{text}s"


def _seconds(one: Duration) -> float:
    whole, rest = divmod(abs(one.ns), SECOND)
    value = float(whole) + rest / 1e9
    return -value if one.ns < 0 else value


def format_float(value: float) -> str:
    """The shortest decimal form that reads back as the same double, without an exponent."""
    from decimal import Decimal

    text = format(Decimal(repr(value)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return text if text not in ("-0", "") else ("-0" if text == "-0" else "0")


def timestamp_text(one: Timestamp) -> str:
    """The time in the form of RFC 3339, in its own offset."""
    seconds, rest = divmod(one.ns, SECOND)
    local = seconds + one.offset
    days, within = divmod(local, 86400)
    ordinal = days + _EPOCH
    if 1 <= ordinal <= date.max.toordinal():
        shown = date.fromordinal(ordinal).isoformat()
    else:
        moved = date.fromordinal(ordinal + (146097 if ordinal < 1 else -146097))
        shown = f"{moved.year - (400 if ordinal < 1 else -400):04d}-{moved.month:02d}-{moved.day:02d}"
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    if one.offset:
        minutes = abs(one.offset) // 60
        zone = f"{'-' if one.offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"
    else:
        zone = "Z"
    return f"{shown}T{within // 3600:02d}:{within // 60 % 60:02d}:{within % 60:02d}{fraction}{zone}"


_ATOI = re.compile(r"[+-]?[0-9]{1,9}")


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if ":" in name:
        hours, _, minutes = name.partition(":")
        if not _ATOI.fullmatch(hours) or not _ATOI.fullmatch(minutes):
            raise ExpressionFailed(f"not a time zone: {name[:40]!r}")
        offset = int(hours) * 60 + (-int(minutes) if name[0] == "-" else int(minutes))
        if abs(offset) >= 1440:
            raise ExpressionFailed(f"not a time zone: {name[:40]!r}")
        return timezone(timedelta(minutes=offset))
    if name in ("", "UTC"):
        return timezone.utc  # noqa: UP017
    try:
        return ZoneInfo(name)
    except Exception:
        raise ExpressionFailed(f"unknown time zone {name[:40]!r}") from None


def _at(one: Timestamp, zone: str = "") -> datetime:
    aware = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=one.ns // 1000)  # noqa: UP017
    try:
        return aware.astimezone(_zone(zone))
    except OverflowError:
        raise ExpressionFailed("timestamp overflow") from None


_PARTS: list[tuple[str, str, Any]] = [
    ("getFullYear", "year", lambda t: t.year),
    ("getMonth", "month", lambda t: t.month - 1),
    ("getDayOfYear", "day_of_year", lambda t: t.timetuple().tm_yday - 1),
    ("getDayOfMonth", "day_of_month", lambda t: t.day - 1),
    ("getDate", "day_of_month_1_based", lambda t: t.day),
    ("getDayOfWeek", "day_of_week", lambda t: t.isoweekday() % 7),
    ("getHours", "hours", lambda t: t.hour),
    ("getMinutes", "minutes", lambda t: t.minute),
    ("getSeconds", "seconds", lambda t: t.second),
    ("getMilliseconds", "milliseconds", lambda t: t.microsecond // 1000),
]
_LENGTHS = [
    ("getHours", "hours", 3600 * SECOND),
    ("getMinutes", "minutes", 60 * SECOND),
    ("getSeconds", "seconds", SECOND),
    ("getMilliseconds", "milliseconds", 10**6),
]


def _part(read: Any) -> Any:
    return lambda one, zone="": read(_at(one, zone))


def _length(unit: int) -> Any:
    return lambda one: (abs(one.ns) // unit) * (-1 if one.ns < 0 else 1)


OVERLOADS = [
    *(Overload(f"timestamp_to_{id_}", f"timestamp|{name}() int", _part(read)) for name, id_, read in _PARTS),
    *(
        Overload(f"timestamp_to_{id_}_with_tz", f"timestamp|{name}(string) int", _part(read))
        for name, id_, read in _PARTS
    ),
    *(Overload(f"duration_to_{id_}", f"duration|{name}() int", _length(unit)) for name, id_, unit in _LENGTHS),
]
