"""Keeps the server's certificate up to date: after its files have changed, new connections get the new certificate."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from pathlib import Path

from gangline.errors import ConfigError

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two looks at the files."""


class Certificates:
    """A certificate and its key in PEM files; ``context`` is the TLS context for a server.

    The context stays the same object: connections that are open keep the certificate they began with.
    ConfigError if the files are invalid at the start. Later an invalid pair is logged, and the last valid pair stays.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._complaint = ""
        self.version = 0
        """Number of changed pairs that came into use."""
        self._seen = self._fingerprint()
        self._try()
        self.context = server_context()
        self.load(self.context)

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.look()

    def look(self) -> bool:
        """Load a changed pair; True if a new pair is in use."""
        try:
            now = self._fingerprint()
            if now == self._seen:
                return False
            self._try()
            self.load(self.context)
        except ConfigError as error:
            self._complain(str(error))
            return False
        self._seen = now
        self.version += 1
        self._complaint = ""
        log.info("certificate reloaded from %s", self._certificate)
        return True

    def _try(self) -> None:
        """Load the pair first into another context: a context that fails to load a pair keeps half of the pair."""
        self.load(server_context())

    def load(self, context: ssl.SSLContext) -> None:
        """Make a context use the pair in the files. ConfigError if the pair is invalid."""
        try:
            context.load_cert_chain(self._certificate, self._key, password="")  # an encrypted key must not ask for one
        except (OSError, ValueError) as error:  # an SSLError is an OSError
            raise ConfigError(f"{self._certificate}, {self._key}", "", f"no usable pair: {error}") from error

    def _fingerprint(self) -> bytes:
        digest = hashlib.sha256()
        for file in (self._certificate, self._key):
            try:
                content = file.read_bytes()
            except OSError as error:
                raise ConfigError(str(file), "", error.strerror or str(error)) from error
            digest.update(len(content).to_bytes(8, "big") + content)
        return digest.digest()

    def _complain(self, complaint: str) -> None:
        if complaint != self._complaint:  # once per change, not once per look
            self._complaint = complaint
            log.error("certificate not reloaded, the old one stays: %s", complaint)


def server_context() -> ssl.SSLContext:
    """The TLS settings of every server: TLS 1.2 or newer, HTTP/1.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
