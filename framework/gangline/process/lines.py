"""Writes lines to a stream, and waits only shortly if the stream takes no more: a pipe or a disk may be full."""

from __future__ import annotations

import codecs
import io
import json
import os
import select
import time
from contextlib import suppress
from typing import TextIO

PATIENCE = 0.1
"""Seconds to wait for the stream, at most."""
BETWEEN = 1.0
"""Seconds between two such waits; meanwhile a line is written without a wait, or lost."""
CHUNK = 4096
"""Bytes that can be written to a pipe without a wait if any byte can."""

_HIDDEN = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029)
_HIDDEN |= {code: f"\\u{code:04x}" for code in (*_DIRECTIONS, *_SEPARATORS)}
"""How characters are written that a terminal would obey: control characters, those that change the direction, and
those that end a line.
"""


def visible(text: str) -> str:
    """A text of somebody else, so that it cannot do anything to the terminal on which it is written."""
    return text.translate(_HIDDEN)


def on_one_line(text: str) -> str:
    """The same, without ends of lines: what somebody else has named may have some."""
    return visible(text).replace("\n", "\\n")


_DRAWN = {"█": "#", "░": ".", "▨": "/"}


def write_any_text(stream: TextIO) -> None:
    """Let a stream take every character. One that its encoding lacks is written as an escape of JSON, and a block of a
    drawing as a character that every encoding has.
    """
    if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
        codecs.register_error("gangline", _written_otherwise)
        stream.reconfigure(errors="gangline")


def _written_otherwise(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_DRAWN.get(each) or json.dumps(each)[1:-1] for each in lacking), error.end


class Lines:
    """One stream; any thread may write, one at a time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._number = _number_of(stream)
        self._poll = select.poll() if hasattr(select, "poll") and self._number is not None else None
        if self._poll is not None and self._number is not None:
            self._poll.register(self._number, select.POLLOUT)
        self._lost = 0
        """Lines that were lost since the last line that was written."""
        self._is_cut = False
        """Whether the last line was written in part."""
        self._impatient_until = 0.0

    def write(self, line: str) -> None:
        """Write a line, or lose it."""
        text = f"{line}\n"
        if self._lost:
            text = f"lines that could not be written and are lost: {self._lost}\n{text}"
        if self._is_cut:
            text = f"\n{text}"
        if self._number is None:
            with suppress(OSError, ValueError):  # it is closed
                self._stream.write(text)
                self._stream.flush()
            return
        data = text.encode("utf-8", "backslashreplace")
        written = self._put(self._number, data)
        if written == len(data):
            self._lost, self._is_cut = 0, False
        else:
            self._lost += 1
            self._is_cut = self._is_cut if not written else True

    def _put(self, number: int, data: bytes) -> int:
        """Write data to a descriptor; returns how many bytes could be written."""
        written, until = 0, time.monotonic() + PATIENCE
        while written < len(data) and self._has_room(until):
            try:
                written += os.write(number, data[written : written + CHUNK])
            except OSError:  # the disk is full, or nobody is at the other end
                break
        return written

    def _has_room(self, until: float) -> bool:
        """Whether a chunk can be written without waiting."""
        if self._poll is None or self._poll.poll(0):
            return True
        now = time.monotonic()
        if now < self._impatient_until:
            return False
        self._impatient_until = until + BETWEEN
        return bool(self._poll.poll(max(0.0, until - now) * 1000))


def _number_of(stream: TextIO) -> int | None:
    """The descriptor of a stream; None if it has none."""
    try:
        return stream.fileno()
    except (OSError, ValueError, AttributeError):
        return None
