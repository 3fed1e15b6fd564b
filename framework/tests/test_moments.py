"""Whatever is written as a span or a moment, what is read of it can be added and shown, or is refused in words."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gangline.moments import LAST_MOMENT, LONGEST_SPAN, moment, shown, span

NUMBERS = st.one_of(
    st.integers(min_value=0).map(str),
    st.floats(min_value=0, allow_nan=False, allow_infinity=False).map(lambda x: f"{x:.9f}"),
    st.sampled_from(("9" * 63, "1e400", "inf", "nan", "-1", "٣", "１２", "+5", ".", "1.", ".5", "0x10", "1_000")),
)
SPANS = st.one_of(
    st.text(),
    st.text(alphabet="0123456789.hmsuµn+- eEinfaN\u0663\uff11", max_size=80),
    st.lists(st.tuples(NUMBERS, st.sampled_from(("h", "m", "s", "ms", "us", "ns", ""))), max_size=4).map(
        lambda parts: "".join(number + unit for number, unit in parts)
    ),
)
MOMENTS = st.one_of(
    st.text(),
    st.text(alphabet="0123456789-:TtZz+. W\u0663", max_size=80),
    st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
)


@given(SPANS)
@example("99999999h")
@example("9" * 63 + "h")
@example("9" * 5000 + "h")
@example("1e400s")
@example("-1h")
@example("infh")
@example("\u0663h")
def test_a_span_is_finite_and_at_most_a_hundred_years_or_it_is_refused(text: str) -> None:
    try:
        seconds = span(text)
    except ValueError as error:
        assert str(error)
        return

    assert 0.0 <= seconds <= LONGEST_SPAN
    assert shown(LAST_MOMENT - seconds) and shown(2e9 + seconds)


@given(MOMENTS)
@example("0001-01-01T00:00:00Z")
@example("9999-12-31T23:59:59-14:00")
@example("2026-13-01T00:00:00Z")
@example("2026-W01-1")
@example("2026-01-31T12:00:00")
@example("\u0662026-01-31T12:00:00Z")
@example("2026-01-31T24:00:00Z")
@example("2026-01-31T12:00:00+99:99")
def test_a_moment_is_one_that_can_be_shown_or_it_is_refused(text: str) -> None:
    try:
        seconds = moment(text)
    except ValueError as error:
        assert str(error)
        return

    assert 0.0 <= seconds <= LAST_MOMENT
    assert moment(shown(seconds)) == math.floor(seconds)


@given(st.floats())
def test_any_number_can_be_shown_as_a_moment(seconds: float) -> None:
    assert 0.0 <= moment(shown(seconds)) <= LAST_MOMENT


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90m", 5400.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("0", 0.0), ("99999999h", LONGEST_SPAN)],
)
def test_spans_are_those_of_go(text: str, seconds: float) -> None:
    assert span(text) == seconds


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00.25Z"])
def test_moments_are_those_of_kubernetes(text: str) -> None:
    assert shown(moment(text)) == "2026-01-31T12:00:00Z"
