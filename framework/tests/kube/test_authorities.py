"""The authority of the API server's certificate is read again, as tokens are."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangline.errors import Unavailable
from gangline.kube.access import Access
from gangline.kube.auth import Credentials
from gangline.kube.client import HttpClient

from .certificates import Certificates
from .fake_api_server import FakeApiServer


async def test_an_authority_that_takes_the_place_of_another_is_trusted_after_a_minute(
    tls_server: FakeApiServer, certificates: Certificates, tmp_path: Path
) -> None:
    authority, old = tmp_path / "ca.crt", tmp_path / "old"
    old.mkdir()
    authority.write_bytes(Certificates(old).ca.read_bytes())
    crt, key = str(certificates.client), str(certificates.client_key)
    now = 0.0

    def read() -> Access:
        return Access(tls_server.url, ca_file=str(authority), cert_file=crt, key_file=key, valid_for=60.0)

    async with HttpClient(Credentials(read, clock=lambda: now)) as client:
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await client.bind("default", "a", "", "n", {})
        authority.write_text("no certificate")
        now = 61.0
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await client.bind("default", "a", "", "n", {})
        authority.write_bytes(certificates.ca.read_bytes())
        now = 122.0

        assert await client.served("", "v1") == {"pods"}
