"""Sets up logging: one handler on stderr that writes lines of text or of JSON.

A log that nobody reads, or that is full, does not stop the process: lines that cannot be written soon are lost, and the
next line that can be written says how many.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from typing import Any, Literal, TextIO, get_args

from gangline.clock import rfc3339
from gangline.errors import ConfigError
from gangline.process.lines import Lines

Form = Literal["text", "json"]

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def level_from(environ: Mapping[str, str]) -> str:
    """The value of LOG_LEVEL; info if the variable is missing or empty."""
    return environ.get("LOG_LEVEL") or "info"


def configure(level: str, form: Form) -> None:
    """Send records of ``level`` and above to stderr, in place of earlier handlers.

    The level is debug, info, warning or error, in any case. ConfigError for another level or form.
    """
    if level.lower() not in LEVELS:
        raise ConfigError("", "LOG_LEVEL", f"must be one of {', '.join(LEVELS)}, got {level!r}")
    if form not in get_args(Form):
        raise ConfigError("", "log format", f"must be text or json, got {form!r}")
    handler = LineHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=LEVELS[level.lower()], handlers=[handler], force=True)


class LineHandler(logging.Handler):
    """Writes each record as a line, or loses it if the stream takes no more; see `lines`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._lines = Lines(stream)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or count it as lost."""
        try:
            line = self.format(record)
        except Exception as error:  # the arguments do not fit the message
            line = f"{record.levelname} {record.name}: {record.msg!r} cannot be written: {error!r}"
        self._lines.write(line)


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON: ts, level, logger, msg, the fields given as ``extra``, and exc for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """See the class; values that JSON cannot express are written as text."""
        entry: dict[str, Any] = {
            "ts": rfc3339(record.created, micros=True),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["exc"] = self.formatException(record.exc_info)
        for name, value in vars(record).items():
            if name not in _STANDARD:
                entry.setdefault(name, value)
        return json.dumps(entry, default=str)
