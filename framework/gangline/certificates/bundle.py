"""The certificate of a server behind a Service: its content, when to renew it, and the CAs that clients have to trust.

Rules
- Every certificate has a CA of its own. The CA's key is forgotten after it has signed the certificate.
- A CA stays trusted until it expires, so servers may use an old certificate until they read the new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from gangline.certificates.signing import SERVER, Authority, subject_of

CERTIFICATE = "tls.crt"
KEY = "tls.key"
AUTHORITIES = "ca.crt"


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of a TLS Secret, as PEM: a certificate, its key, and the CAs that clients have to trust."""

    certificate: bytes
    key: bytes
    authorities: bytes

    @classmethod
    def of(cls, data: Mapping[str, bytes]) -> Bundle:
        """The parts in the data of a Secret; a missing part is empty."""
        return cls(data.get(CERTIFICATE, b""), data.get(KEY, b""), data.get(AUTHORITIES, b""))

    @property
    def data(self) -> dict[str, bytes]:
        """The parts by the file names that Kubernetes uses in TLS Secrets."""
        return {CERTIFICATE: self.certificate, KEY: self.key, AUTHORITIES: self.authorities}

    @property
    def expires(self) -> datetime:
        """When the certificate expires. ValueError if it cannot be read."""
        leaf = x509.load_pem_x509_certificates(self.certificate)[0]
        ends = [each.not_valid_after_utc for each in _readable(self.authorities) if _signed(leaf, each)]
        return min([leaf.not_valid_after_utc, *([max(ends)] if ends else [])])


def server_names(service: str, namespace: str) -> tuple[str, ...]:
    """The names under which a Service is reached in its cluster."""
    inside = f"{service}.{namespace}"
    return service, inside, f"{inside}.svc", f"{inside}.svc.cluster.local"


def issue(names: Sequence[str], now: datetime, lifetime: timedelta, trusted: bytes = b"") -> Bundle:
    """A new certificate for the names, the first of which is its subject.

    ``trusted`` has CAs, as PEM, that clients go on trusting until these CAs expire.
    """
    authority = Authority(f"gangline webhook authority {now:%Y-%m-%d}", now, lifetime)
    identity = authority.sign(subject_of(names[0]), [SERVER], [x509.DNSName(name) for name in names])
    authorities = merged(now, authority.certificate_pem, trusted)
    return Bundle(identity.certificate_pem, identity.key_pem, authorities)


def why_renew(bundle: Bundle, names: Sequence[str], now: datetime, renew_before: timedelta) -> str | None:
    """Why a certificate has to be replaced; None if it is valid."""
    try:
        leaf = x509.load_pem_x509_certificates(bundle.certificate)[0]
        key = serialization.load_pem_private_key(bundle.key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # TypeError: the key is encrypted
        return "it could not be read"
    if key.public_key() != leaf.public_key():
        return "the key did not belong to it"
    if missing := [name for name in names if name not in _names(leaf)]:
        return f"it was not for {missing[0]}"
    if not any(_signed(leaf, each) for each in _readable(bundle.authorities)):
        return f"nobody in {AUTHORITIES} had signed it"
    if leaf.not_valid_before_utc > now:
        return f"it was valid only from {leaf.not_valid_before_utc:%Y-%m-%d %H:%M}"
    if bundle.expires - now <= renew_before:
        return f"it ended on {bundle.expires:%Y-%m-%d}"
    return None


def merged(now: datetime, *bundles: bytes) -> bytes:
    """One PEM bundle of the certificates in several bundles: each once, without expired ones and without other text."""
    kept: dict[x509.Certificate, None] = {}
    for bundle in bundles:
        kept |= {each: None for each in _readable(bundle) if now < each.not_valid_after_utc}
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in kept)


def _readable(bundle: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(bundle)
    except ValueError:
        return []


def _names(leaf: x509.Certificate) -> list[str]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return names.get_values_for_type(x509.DNSName)


def _signed(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
