"""Certificates for a control plane on loopback, as PEM files: an authority, and the certificates that it signs."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509

from gangline import certificates
from gangline.certificates.signing import CLIENT, SERVER, key_pem, new_key, subject_of, write_secret

LIFETIME = timedelta(days=30)
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
        self._authority = certificates.Authority(name, datetime.now(UTC), LIFETIME)
        self.certificate = folder / f"{name}.crt"
        self.certificate.write_bytes(self._authority.certificate_pem)

    def server(self, name: str) -> Pair:
        """A certificate for a server on loopback, which it may also use as a client."""
        names: list[x509.GeneralName] = [x509.DNSName(dns) for dns in SERVER_NAMES]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVER_ADDRESSES]
        return self._write(name, self._authority.sign(subject_of(name), [SERVER, CLIENT], names))

    def client(self, name: str, user: str, groups: Sequence[str] = ()) -> Pair:
        """A client certificate: Kubernetes reads the user and its groups from the subject."""
        return self._write(name, self._authority.sign(subject_of(user, groups), [CLIENT]))

    def _write(self, name: str, identity: certificates.CertificateIdentity) -> Pair:
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(identity.certificate_pem)
        write_secret(pair.key, identity.key_pem)
        return pair


def signing_key(folder: Path, name: str) -> Path:
    """A key that service account tokens are signed with; it holds the public half too."""
    path = folder / f"{name}.key"
    write_secret(path, key_pem(new_key()))
    return path
