"""Go durations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.durations import Seconds, format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("15s", 15),
        ("1m30s", 90),
        ("100ms", 0.1),
        ("1.5h", 5400),
        ("2us", 2e-6),
        ("2µs", 2e-6),
        ("7ns", 7e-9),
        (".5s", 0.5),
        ("1.s", 1),
        ("+3s", 3),
        ("0", 0),
        ("0s", 0),
        ("1h1h", 7200),
    ],
)
def test_a_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "15", "s", "-5s", "1 s", "1d", "1s ", "1e3s", ".s", 15, 1.5])
def test_what_go_does_not_write_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (15, "15s"), (90, "1m30s"), (0.1, "100ms"), (1.5, "1s500ms"), (7200, "2h")],
)
def test_seconds_are_written_as_a_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(min_value=0, max_value=10**14))
def test_a_written_duration_is_read_back_unchanged(nanoseconds: int) -> None:
    seconds = Seconds(nanoseconds / 1e9)

    assert parse_duration(format_duration(seconds)) == seconds
