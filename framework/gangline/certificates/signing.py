"""A CA, and the certificates that it signs.

Keys are ECDSA P-256: every TLS library of the last ten years takes them, and one is made in well under a millisecond.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = timedelta(minutes=5)
"""A certificate is valid from this long before it is made, because the clocks of two machines differ."""
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True)
class CertificateIdentity:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as PEM, not encrypted."""
        return key_pem(self.key)


class Authority:
    """A CA: signs certificates that expire together with its own. Its key exists only in this object."""

    def __init__(self, name: str, now: datetime, lifetime: timedelta) -> None:
        self._key = new_key()
        self._start, self._end = now - BACKDATED, now + lifetime
        self._subject = subject_of(name)
        builder = self._builder(self._subject, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(authority=True), critical=True)
        self.certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def certificate_pem(self) -> bytes:
        """The CA's own certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def sign(
        self,
        subject: x509.Name,
        usages: Sequence[x509.ObjectIdentifier],
        names: Sequence[x509.GeneralName] = (),
    ) -> CertificateIdentity:
        """A certificate with a fresh key, for the names and addresses given."""
        key = new_key()
        builder = self._builder(subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(authority=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return CertificateIdentity(builder.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder(
            issuer_name=self._subject,
            subject_name=subject,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=self._start,
            not_valid_after=self._end,
        )
        return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def new_key() -> ec.EllipticCurvePrivateKey:
    """A private key."""
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A private key as PEM, not encrypted."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, also if a file with other rights existed before. Raises OSError."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(content)


def subject_of(name: str, groups: Sequence[str] = ()) -> x509.Name:
    """A subject; Kubernetes reads a client's user and groups from it."""
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
