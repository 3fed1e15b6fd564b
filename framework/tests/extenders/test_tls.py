"""Connections to extenders over TLS."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator

import pytest

from gangline.config import Extender, ExtenderTLS
from gangline.errors import ConfigError, ExtenderError
from gangline.extenders import Extenders, HttpAsker
from gangline.extenders.tls import context_of
from gangline.testing import cluster, make_node, make_pod

from ..kube.certificates import Certificates
from .fake_extender import ExtenderServer


@pytest.fixture
async def secured(certificates: Certificates) -> AsyncIterator[ExtenderServer]:
    """An extender that wants a client certificate."""
    fake = ExtenderServer()
    await fake.start(certificates.of_server())
    fake.answers("filter", {"NodeNames": ["a"]})
    yield fake
    await fake.stop()


async def left_by(asker: HttpAsker, server: ExtenderServer, tls: ExtenderTLS | None) -> list[str]:
    extender = Extender(
        url_prefix=server.url, filter_verb="filter", node_cache_capable=True, enable_https=True, tls_config=tls
    )
    nodes = {name: make_node(name) for name in ("a", "b")}
    verdicts = await Extenders([extender], asker, None).filter(cluster().record(make_pod("p")), nodes)  # type: ignore[arg-type]  # nothing is written
    return list(verdicts.passed)


async def test_files_are_used(secured: ExtenderServer, asker: HttpAsker, certificates: Certificates) -> None:
    tls = ExtenderTLS(
        ca_file=str(certificates.ca), cert_file=str(certificates.client), key_file=str(certificates.client_key)
    )

    assert await left_by(asker, secured, tls) == ["a"]


async def test_data_go_before_files(secured: ExtenderServer, asker: HttpAsker, certificates: Certificates) -> None:
    tls = ExtenderTLS(
        ca_file="nowhere",
        cert_file="nowhere",
        key_file="nowhere",
        ca_data=certificates.ca.read_bytes(),
        cert_data=certificates.client.read_bytes(),
        key_data=certificates.client_key.read_bytes(),
    )

    assert await left_by(asker, secured, tls) == ["a"]


async def test_without_an_authority_every_certificate_is_trusted(
    secured: ExtenderServer, asker: HttpAsker, certificates: Certificates
) -> None:
    tls = ExtenderTLS(cert_file=str(certificates.client), key_file=str(certificates.client_key))

    assert await left_by(asker, secured, tls) == ["a"]


@pytest.mark.parametrize(
    ("https", "tls", "read"),
    [(True, None, 0), (False, ExtenderTLS(insecure=True), 0), (False, ExtenderTLS(), 1)],
    ids=["every", "insecure", "checked"],
)
def test_the_authorities_of_the_system_are_read_only_where_they_are_asked(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch, https: bool, tls: ExtenderTLS | None, read: int
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))

    context = context_of(Extender(url_prefix="https://extender", enable_https=https, tls_config=tls), "extenders[0]")

    assert isinstance(context, ssl.SSLContext) and len(context.get_ca_certs()) == read
    assert (context.verify_mode, context.check_hostname) == (
        (ssl.CERT_REQUIRED, True) if read else (ssl.CERT_NONE, False)
    )


async def test_a_certificate_of_another_name_is_refused(
    secured: ExtenderServer, asker: HttpAsker, certificates: Certificates
) -> None:
    tls = ExtenderTLS(ca_file=str(certificates.ca), server_name="extender.example.com")

    with pytest.raises(ExtenderError, match=r"certificate verify failed: Hostname mismatch"):
        await left_by(asker, secured, tls)


async def test_a_certificate_of_another_authority_is_refused(
    secured: ExtenderServer, asker: HttpAsker, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> None:
    others = Certificates(tmp_path_factory.mktemp("others"))

    with pytest.raises(ExtenderError, match="certificate verify failed"):
        await left_by(asker, secured, ExtenderTLS(ca_file=str(others.ca)))


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        (ExtenderTLS(ca_file="nowhere.crt"), "cannot be used: .*No such file"),
        (ExtenderTLS(ca_data=b"x"), "cannot be used: "),
        (ExtenderTLS(insecure=True, ca_file="ca.crt"), "insecure does not go with a caFile or caData"),
    ],
    ids=["no file", "no certificate", "insecure with authority"],
)
def test_what_cannot_be_used_is_found_at_load(tls: ExtenderTLS, why: str) -> None:
    good = Extender(url_prefix="http://127.0.0.1:1", ignorable=True)
    bad = Extender(url_prefix="https://127.0.0.1:1", tls_config=tls)

    with pytest.raises(ConfigError, match=rf"^extenders\[1\].tlsConfig: {why}"):
        Extenders([good, bad], HttpAsker(), None)  # type: ignore[arg-type]  # nothing is written
