"""Lines of trace files, and what is wrong with them: each fault names the file, the line and the column.

Bounds: a line has at most MOST_CHARACTERS, a file at most MOST_LINES.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gangline.config.explaining import quoted
from gangline.errors import InvalidQuantity, TraceError
from gangline.plurals import many
from gangline.quantity import milli

MOST_CHARACTERS = 64 * 1024
MOST_LINES = 2_000_000
MOST_SECONDS = 1e10
"""The largest number of seconds in a trace: about three hundred years."""
_GZIP = "\x1f\udc8b"
"""How a file that gzip has compressed begins, decoded as `_texts` does."""
_MOST_DIGITS = 18
_NO_TEXT = re.compile("[\udc80-\udcff]")
"""What bytes become that are no UTF-8."""
_PLAIN = re.compile(r"[\w.-]{1,80}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: by column, its text; columns without a text are left out."""

    file: str
    number: int
    cells: dict[str, str]
    columns: Sequence[str] = ()
    """The names of all columns in their order; none in JSON."""

    def error(self, column: str, why: str) -> TraceError:
        """A fault in this column."""
        if column not in self.columns:
            return TraceError(self.file, self.number, f"field {_shown(column)}", why)
        place = self.columns.index(column) + 1
        return TraceError(self.file, self.number, f"column {place} ({_shown(column)})", why)

    def text(self, column: str) -> str:
        """The text; it may not be empty."""
        found = self.optional(column)
        if not found:
            raise self.error(column, "is missing")
        return found

    def optional(self, column: str) -> str:
        """The text, or ""."""
        return self.cells.get(column, "").strip()

    def whole(self, column: str, most: int, default: int | None = None, least: int = 0) -> int:
        """A whole number."""
        text = self.optional(column)
        if not text and default is not None:
            return default
        text = self.text(column)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            raise self.error(column, f"{quoted(text)}: not a whole number")
        if len(digits) > _MOST_DIGITS or not least <= int(text) <= most:
            shown = text if len(digits) <= _MOST_DIGITS else quoted(text)
            raise self.error(column, f"{shown}: not between {least} and {most}")
        return int(text)

    def seconds(self, column: str) -> float:
        """A number of seconds, not negative."""
        text = self.text(column)
        try:
            found = float(text)
        except ValueError:
            raise self.error(column, f"{quoted(text)}: not a number of seconds") from None
        if not (math.isfinite(found) and 0 <= found <= MOST_SECONDS):
            raise self.error(column, f"{text}: not a number of seconds between 0 and {MOST_SECONDS:g}")
        return found

    def thousandths(self, column: str) -> int:
        """A quantity as Kubernetes writes it, in thousandths; 0 if there is none."""
        text = self.optional(column)
        if not text:
            return 0
        try:
            found = milli(text)
        except InvalidQuantity as error:
            raise self.error(column, f"{quoted(text)}: {error.why}") from None
        if not 0 <= found < 10**_MOST_DIGITS:
            raise self.error(column, f"{text}: negative, or too much")
        return found


def _shown(name: str) -> str:
    """The name of a column on one line, for messages: a file may have any name."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def header_of(path: Path) -> str:
    """The first line. Raises TraceError."""
    return next((text for _, text in _texts(path)), "")


def in_csv(path: Path) -> Iterator[Line]:
    """The header as a line without cells, then the lines below it. Raises TraceError."""
    texts = _texts(path)
    first, names = next(((number, _split(path, number, text)) for number, text in texts), (1, []))
    _check_text(path, first, names)
    columns = [name.strip() for name in names]
    for number, name in enumerate(columns, start=1):
        if columns.index(name) != number - 1:
            raise TraceError(str(path), first, f"column {number} ({_shown(name)})", "another column has the same name")
    yield Line(str(path), first, {}, columns)
    for number, text in texts:
        cells = _split(path, number, text)
        if len(cells) != len(columns):
            place = min(len(cells), len(columns)) + 1
            name = f" ({_shown(columns[place - 1])})" if place <= len(columns) else ""
            why = f"the header has {many(len(columns), 'column')}, and the line {len(cells)}"
            raise TraceError(str(path), number, f"column {place}{name}", why)
        if not text.isascii():
            _check_text(path, number, cells, columns)
        yield Line(str(path), number, dict(zip(columns, cells, strict=True)), columns)


def _check_text(path: Path, number: int, cells: Sequence[str], columns: Sequence[str] = ()) -> None:
    """Raises TraceError for the first cell with bytes that are no UTF-8."""
    for place, cell in enumerate(cells, start=1):
        if _NO_TEXT.search(cell):
            name = f" ({_shown(columns[place - 1])})" if columns else ""
            raise TraceError(str(path), number, f"column {place}{name}", "no text in UTF-8")


def in_json(path: Path) -> Iterator[Line]:
    """JSON lines: one object in each line. Raises TraceError."""
    for number, text in _texts(path):
        yield Line(str(path), number, _object(path, number, text))


def _object(path: Path, number: int, text: str) -> dict[str, str]:
    if wrong := _NO_TEXT.search(text):
        raise TraceError(str(path), number, f"column {wrong.start() + 1}", "no text in UTF-8")
    try:
        found = json.loads(text, object_pairs_hook=partial(_once, path, number))
    except json.JSONDecodeError as error:
        raise TraceError(str(path), number, f"column {error.colno}", f"no JSON: {error.msg}") from None
    except (RecursionError, ValueError):
        raise TraceError(str(path), number, "column 1", "no JSON that can be read") from None
    if not isinstance(found, dict):
        raise TraceError(str(path), number, "column 1", "no JSON object")
    return {name: _plain(path, number, name, value) for name, value in found.items() if value is not None}


def _once(path: Path, number: int, fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object. Raises TraceError if two have the same name."""
    found: dict[str, Any] = {}
    for name, value in fields:
        if name in found:
            raise TraceError(str(path), number, f"field {_shown(name)}", "another field has the same name")
        found[name] = value
    return found


def _plain(path: Path, number: int, name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TraceError(str(path), number, f"field {_shown(name)}", "is neither a text nor a number")
    return f"{value}"


def _split(path: Path, number: int, text: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text), strict=True), [])
    except csv.Error as error:
        raise TraceError(str(path), number, "column 1", f"no CSV: {error}") from None


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, with their numbers."""
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            for number in range(1, MOST_LINES + 2):
                text = file.readline(MOST_CHARACTERS + 1)
                if not text:
                    return
                if number == 1 and text.startswith(_GZIP):
                    raise TraceError(str(path), 1, "column 1", "compressed by gzip: unpack the file first")
                if len(text) > MOST_CHARACTERS:
                    why = f"the line has more than {MOST_CHARACTERS} characters"
                    raise TraceError(str(path), number, f"column {MOST_CHARACTERS + 1}", why)
                if number > MOST_LINES:
                    raise TraceError(str(path), number, "column 1", f"there are more than {MOST_LINES} lines")
                if text := text.strip("\r\n \t"):
                    yield number, text
    except OSError as error:
        raise TraceError(str(path), 0, "", error.strerror or str(error)) from None
