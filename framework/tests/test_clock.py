"""Times are written as Kubernetes writes them."""

from __future__ import annotations

import pytest

from gangline.clock import rfc3339


@pytest.mark.parametrize(
    ("seconds", "plain", "with_micros"),
    [
        (0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z"),
        (1767225600.25, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.250000Z"),
        (1767225599.9999999, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.000000Z"),
        (-0.5, "1969-12-31T23:59:59Z", "1969-12-31T23:59:59.500000Z"),
        (1767225599.999999, "2025-12-31T23:59:59Z", "2025-12-31T23:59:59.999999Z"),
    ],
)
def test_a_time_has_six_digits_of_a_second_or_none(seconds: float, plain: str, with_micros: str) -> None:
    assert rfc3339(seconds) == plain
    assert rfc3339(seconds, micros=True) == with_micros
