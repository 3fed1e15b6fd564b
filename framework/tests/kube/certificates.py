"""A certificate authority with a server's and a client's certificate, as files."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Certificates:
    """``ca``, ``server``, ``server_key``, ``client`` and ``client_key`` are PEM files in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ca_key = ec.generate_private_key(ec.SECP256R1())
        self._ca_name = _name("fake authority")
        self.ca, _ = self._make("ca", self._ca_name, self._ca_key, authority=True)
        server_key = ec.generate_private_key(ec.SECP256R1())
        self.server, self.server_key = self._make("server", _name("127.0.0.1"), server_key)
        client_key = ec.generate_private_key(ec.SECP256R1())
        self.client, self.client_key = self._make("client", _name("gangline"), client_key)

    def _make(
        self,
        file: str,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        authority: bool = False,
    ) -> tuple[Path, Path]:
        now = datetime.now(UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
                critical=False,
            )
            .sign(self._ca_key, hashes.SHA256())
        )
        cert_file, key_file = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return cert_file, key_file


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
