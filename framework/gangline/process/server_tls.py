"""The TLS certificate of a server, from files or self-signed, and the CA of its clients' certificates.

A self-signed certificate is made for the first connection: many processes never get a connection, and importing the
library that makes the certificate takes as long as a hundred decisions.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.errors import ConfigError
from gangline.failures import described
from gangline.process.certificate_files import INTERVAL, Certificates, server_context

if TYPE_CHECKING:
    from gangline.certificates import CertificateIdentity

log = logging.getLogger(__name__)

LIFETIME = timedelta(days=3650)
"""How long a self-signed certificate is valid."""


def pair_of_files(certificate: Path | None, key: Path | None) -> Certificates | None:
    """The pair of files that the options name, or None. Raises ConfigError."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ConfigError("", "--tls-cert-file, --tls-private-key-file", "one goes with the other")
    return Certificates(certificate, key)


class ServerTLS:
    """The server asks clients for a certificate once it trusts a CA. Raises OSError if no file can be written."""

    def __init__(self, files: Certificates | None) -> None:
        if files is None:
            tempfile.gettempdir()  # raises OSError now if there is no such folder
        self._files = files
        self._own: CertificateIdentity | None = None
        self._has_complained = False
        self._authorities = ""
        self._context = self._build("")

    @property
    def context(self) -> ssl.SSLContext:
        """The context for the next connection. Raises, and logs once, the error of making a self-signed certificate."""
        if self._files is None and self._own is None:
            try:
                self._make_own()
            except Exception as error:
                self._complain(error)
                raise
        return self._context

    def trust(self, authorities: str) -> None:
        """Accept only client certificates that one of these CAs, in PEM, has signed."""
        if authorities == self._authorities:
            return
        try:
            self._context = self._build(authorities)
        except (ssl.SSLError, ValueError, ConfigError) as error:
            log.error("the authorities of clients cannot be used, the old ones stay: %s", error)
            return
        self._authorities = authorities

    async def run(self) -> None:
        """Look at the files until cancelled. Other tasks may call `look` of the same files, too."""
        version = 0
        while self._files is not None:
            await asyncio.sleep(INTERVAL)
            self._files.look()
            if self._files.version != version:
                version = self._renew(self._files, version)

    def _make_own(self) -> None:
        own = _self_signed(socket.gethostname())
        _load(self._context, own)
        self._own = own

    def _complain(self, error: Exception) -> None:
        """Log the error only once, because each new connection tries to make the certificate again."""
        if not self._has_complained:
            self._has_complained = True
            log.error("TLS cannot be served, as the certificate of this process cannot be made: %s", described(error))

    def _renew(self, files: Certificates, version: int) -> int:
        """Use the changed pair of files; returns its version. If only one of the files has changed yet, the old pair
        and its version stay until the next look.
        """
        try:
            self._context = self._build(self._authorities)
        except ConfigError:
            return version
        return files.version

    def _build(self, authorities: str) -> ssl.SSLContext:
        context = server_context()
        if self._files is not None:
            self._files.load(context)
        elif self._own is not None:
            _load(context, self._own)
        if authorities:
            context.load_verify_locations(cadata=authorities)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def _self_signed(name: str) -> CertificateIdentity:
    """A self-signed certificate, as kube-scheduler makes it: it encrypts, but does not prove the server's identity."""
    from cryptography import x509

    from gangline.certificates import Authority
    from gangline.certificates.signing import SERVER, subject_of

    authority = Authority(f"{name} {datetime.now(UTC):%Y-%m-%d}", datetime.now(UTC), LIFETIME)
    return authority.sign(subject_of(name), [SERVER], [x509.DNSName(name), x509.DNSName("localhost")])


def _load(context: ssl.SSLContext, identity: CertificateIdentity) -> None:
    """Load a certificate into a context. OpenSSL reads only files, so a temporary file is written and removed."""
    from gangline.certificates.signing import write_secret

    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        write_secret(pair, identity.certificate_pem + identity.key_pem)
        context.load_cert_chain(pair)
