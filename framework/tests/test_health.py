"""Addresses to listen on; what the paths answer is tested with the servers that have them."""

from __future__ import annotations

import pytest

from gangline.errors import ConfigError
from gangline.health import parse_address


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("0.0.0.0:8080", ("0.0.0.0", 8080)),
        (":9090", ("0.0.0.0", 9090)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:80", ("localhost", 80)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, parsed: tuple[str, int]) -> None:
    assert parse_address(address, "--listen") == parsed


@pytest.mark.parametrize("address", ["", "8080", "localhost", "host:", ":x", "host:65536", "host:-1", "::1:80"])
def test_a_malformed_address_is_an_error_that_names_the_option_and_shows_the_form(address: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_address(address, "--addr")

    assert str(raised.value) == f"--addr: expected HOST:PORT or :PORT, got {address!r}"
