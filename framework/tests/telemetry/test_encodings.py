"""Who says that gzip is not wanted does not get it."""

from __future__ import annotations

import pytest

from gangline.telemetry.encodings import gzip_accepted


@pytest.mark.parametrize(
    "header", ["gzip", "deflate, gzip, br", "GZIP;q=0.5", "gzip; q=1", "*", "identity;q=0, *;q=0.1", "gzip, gzip;q=0"]
)
def test_gzip_is_accepted(header: str) -> None:
    assert gzip_accepted(header)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "identity",
        "gzip;q=0",
        "gzip; q=0.000",
        "gzip;q=0, *",
        "*;q=0",
        "gzip;q=many",
        "gzip;q=-1",
        "gzip;q=nan",
        "x-gzip",
    ],
)
def test_gzip_is_not_accepted(header: str) -> None:
    assert not gzip_accepted(header)
