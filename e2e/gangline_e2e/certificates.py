"""Certificates for a control plane on loopback: an authority, and what it signs."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=30)
SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
SERVER_ADDRESSES = ("127.0.0.1", "10.96.0.1")


@dataclass(frozen=True, slots=True)
class Pair:
    """The PEM files of a certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates with a fresh key and writes them, as PEM files, into one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(name)
        builder = _certificate(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_signing_only(), critical=True)
        self.certificate = folder / f"{name}.crt"
        self.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def server(self, name: str) -> Pair:
        """A certificate for a server on loopback, which it may also use as a client."""
        names: list[x509.GeneralName] = [x509.DNSName(dns) for dns in SERVER_NAMES]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVER_ADDRESSES]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._sign(name, _subject(name), usages, x509.SubjectAlternativeName(names))

    def client(self, name: str, user: str, groups: Sequence[str] = ()) -> Pair:
        """A client certificate: Kubernetes reads the user and its groups from the subject."""
        return self._sign(name, _subject(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH])

    def _sign(
        self,
        name: str,
        subject: x509.Name,
        usages: list[x509.ObjectIdentifier],
        names: x509.SubjectAlternativeName | None = None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _certificate(subject, self._name, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        write_key(pair.key, key)
        return pair


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key as PEM, readable by its owner alone."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    text = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(text)


def signing_key(folder: Path, name: str) -> Path:
    """A key that service account tokens are signed with; it holds the public half too."""
    path = folder / f"{name}.key"
    write_key(path, ec.generate_private_key(ec.SECP256R1()))
    return path


def _subject(user: str, groups: Sequence[str] = ()) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - datetime.timedelta(minutes=5)).not_valid_after(now + LIFETIME)


def _signing_only() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
