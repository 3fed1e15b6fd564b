"""Sets up logging: one handler on stderr that writes lines of text or of JSON."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Literal, get_args

from gangline.clock import rfc3339
from gangline.errors import ConfigError

Form = Literal["text", "json"]

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}


def level_from(environ: Mapping[str, str]) -> str:
    """The value of LOG_LEVEL; info if the variable is missing or empty."""
    return environ.get("LOG_LEVEL") or "info"


def configure(level: str, form: Form) -> None:
    """Sends records of ``level`` and above to stderr, and replaces earlier handlers.

    The level is debug, info, warning or error, in any case. ConfigError for another level or form.
    """
    if level.lower() not in LEVELS:
        raise ConfigError("", "LOG_LEVEL", f"must be one of {', '.join(LEVELS)}, got {level!r}")
    if form not in get_args(Form):
        raise ConfigError("", "log format", f"must be text or json, got {form!r}")
    handler = logging.StreamHandler()
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    logging.basicConfig(level=LEVELS[level.lower()], handlers=[handler], force=True)


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
