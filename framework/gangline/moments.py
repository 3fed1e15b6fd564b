"""Reads durations and times that users may have written: the results can be added, compared and shown.

Rules:
- A span is a Go duration; a longer one than `LONGEST_SPAN` seconds counts as that long. A moment is RFC 3339 with an
  offset, from 1970 to 9999.
- Any other text raises ValueError, never another exception: no infinity, no NaN, no year outside of the calendar.
- A moment computed from others can always be shown.
"""

from __future__ import annotations

import re
from datetime import datetime

from gangline.clock import rfc3339
from gangline.durations import parse_duration

LONGEST_SPAN = 100 * 365 * 86_400.0
"""Seconds: a hundred years. No user needs more, and a sum of a few spans is still a valid moment."""
LONGEST_TEXT = 64
"""Characters of a span or a moment."""
LAST_MOMENT = 253_402_300_799.0
"""Seconds since the epoch: the end of the year 9999."""
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def span(text: str) -> float:
    """The seconds of a Go duration, `LONGEST_SPAN` at most. Raises ValueError that says what is wrong."""
    if len(text) > LONGEST_TEXT:
        raise ValueError("is too long for a duration")
    return min(float(parse_duration(text)), LONGEST_SPAN)


def moment(text: str) -> float:
    """The seconds since the epoch of a time as Kubernetes writes it. Raises ValueError that says what is wrong."""
    if len(text) > LONGEST_TEXT or not _MOMENT.fullmatch(text):
        raise ValueError('expected a time such as "2026-01-31T12:00:00Z"')
    try:
        seconds = datetime.fromisoformat(text.upper()).timestamp()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"is no time: {error}") from None
    if not 0.0 <= seconds <= LAST_MOMENT:
        raise ValueError("is not between 1970 and 9999")
    return seconds


def shown(seconds: float) -> str:
    """A moment as Kubernetes writes it; one outside of the calendar becomes the nearest valid one."""
    return rfc3339(min(max(0.0, seconds), LAST_MOMENT))  # NaN is not more than 0.0
