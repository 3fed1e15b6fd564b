"""Answers that say no: whatever their body is, the status and a bounded wait are read from them."""

from __future__ import annotations

import pytest

from gangline.errors import Conflict, NotFound, TooManyRequests
from gangline.kube.faults import LONGEST_WAIT, from_answer, from_exception


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b"\xff\xfe", b'{"message": "\xff"}', b"[" * 100_000, b'{"details":' * 50_000, b'{"code": "x"}'],
)
def test_the_status_counts_whatever_the_body_is(body: bytes) -> None:
    assert isinstance(from_answer(404, "Not Found", None, body), NotFound)
    assert isinstance(from_answer(409, "Conflict", None, body), Conflict)


@pytest.mark.parametrize("seconds", ["3600", "9" * 400])
def test_nobody_is_put_off_for_longer_than_a_minute(seconds: str) -> None:
    by_header = from_answer(429, "Too Many Requests", seconds, b"")

    assert isinstance(by_header, TooManyRequests)
    assert by_header.retry_after == LONGEST_WAIT


@pytest.mark.parametrize(
    ("seconds", "expected"), [(2**62, LONGEST_WAIT), (10**400, LONGEST_WAIT), (-(10**400), 0.0), (7, 7.0)]
)
def test_what_a_status_asks_for_is_bounded_too(seconds: int, expected: float) -> None:
    body = b'{"details": {"retryAfterSeconds": %d}}' % seconds

    assert from_answer(429, "Too Many Requests", None, body).retry_after == expected


def test_an_error_without_words_is_named_by_its_type() -> None:
    assert from_exception(ConnectionResetError(), "GET /api").message == "GET /api: ConnectionResetError"
