"""A certificate authority with a server's and a client's certificate, as files."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from gangline.certificates import Authority, CertificateIdentity
from gangline.certificates.signing import CLIENT, SERVER, subject_of


class Certificates:
    """``ca``, ``server``, ``server_key``, ``client`` and ``client_key`` are PEM files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority("fake authority", datetime.now(UTC), timedelta(hours=1))
        self.ca = folder / "ca.crt"
        self.ca.write_bytes(authority.certificate_pem)
        here = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        self.server, self.server_key = self._write("server", authority.sign(subject_of("127.0.0.1"), [SERVER], here))
        self.client, self.client_key = self._write("client", authority.sign(subject_of("gangline"), [CLIENT], here))

    def of_server(self) -> ssl.SSLContext:
        """For a server that takes only clients with a certificate of the authority."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        context.load_cert_chain(self.server, self.server_key)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _write(self, file: str, identity: CertificateIdentity) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        certificate.write_bytes(identity.certificate_pem)
        key.write_bytes(identity.key_pem)
        return certificate, key
