"""What a log line looks like, and which lines are written."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest

from gangline.errors import ConfigError
from gangline.process.logs import Form, LineHandler, configure, level_from

log = logging.getLogger("gangline.loop.binding")


@pytest.fixture(autouse=True)
def untouched_root() -> Iterator[None]:
    """Afterwards the root logger is without the handler that a test set up, and at its level."""
    root = logging.getLogger()
    level = root.level
    yield
    for handler in root.handlers[:]:
        if type(handler) is LineHandler:
            root.removeHandler(handler)
    root.setLevel(level)


def lines(captured: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.readouterr().err.splitlines()]


def test_a_json_line_has_time_level_logger_message_and_the_extra_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")

    log.warning("bound %s", "a/b", extra={"node": "n1", "gpus": [0, 1]})

    (line,) = lines(capsys)
    ts = line.pop("ts")
    assert len(ts) == len("2026-01-01T00:00:00.000000Z") and ts[10] + ts[-1] == "TZ"
    assert line == {
        "level": "warning",
        "logger": "gangline.loop.binding",
        "msg": "bound a/b",
        "node": "n1",
        "gpus": [0, 1],
    }


def test_a_traceback_stays_on_the_line_of_its_record(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")

    try:
        raise ValueError("broken\nin two")
    except ValueError:
        log.exception("failed")

    (line,) = lines(capsys)
    assert line["exc"].startswith("Traceback") and line["exc"].endswith("ValueError: broken\nin two")


def test_extra_fields_never_replace_the_lines_own_and_may_be_any_object(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")

    log.info("m", extra={"level": "fake", "error": ConfigError("f", "p", "w")})

    (line,) = lines(capsys)
    assert (line["level"], line["error"]) == ("info", "f: p: w")


def test_a_text_line_has_time_level_logger_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "text")

    log.info("bound %s", "a/b")

    time, _, rest = capsys.readouterr().err.partition(" ")
    assert [len(part) for part in time.split(":")] == [2, 2, 2]
    assert rest == "INFO gangline.loop.binding: bound a/b\n"


@pytest.mark.parametrize(
    ("level", "written"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("WARNING", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_the_level_decides_what_is_written(level: str, written: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    configure(level, "json")

    for each in (log.debug, log.info, log.warning, log.error):
        each("m")

    assert [line["level"] for line in lines(capsys)] == written


def test_setting_up_twice_writes_every_line_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "text")
    configure("info", "json")

    log.info("m")

    assert len(lines(capsys)) == 1


@pytest.mark.parametrize(
    ("environ", "level"),
    [
        pytest.param({}, "info", id="not set"),
        pytest.param({"LOG_LEVEL": ""}, "info", id="empty"),
        pytest.param({"LOG_LEVEL": "debug"}, "debug", id="set"),
    ],
)
def test_the_level_comes_from_the_environment(environ: dict[str, str], level: str) -> None:
    assert level_from(environ) == level


def test_an_unknown_level_is_an_error_that_names_the_known_ones() -> None:
    before = logging.getLogger().handlers[:]

    with pytest.raises(ConfigError) as raised:
        configure("loud", "text")

    assert str(raised.value) == "LOG_LEVEL: must be one of debug, info, warning, error, got 'loud'"
    assert logging.getLogger().handlers == before


def test_an_unknown_form_is_an_error() -> None:
    with pytest.raises(ConfigError, match="log format: must be text or json, got 'xml'"):
        configure("info", cast(Form, "xml"))
