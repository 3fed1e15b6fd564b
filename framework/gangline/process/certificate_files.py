"""Keeps the server's certificate up to date: when its files change, new connections get the new one."""

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
    """A certificate and its key in PEM files; ``context`` is what a server takes.

    The context stays the same object: connections that are open keep the certificate they began with.
    ConfigError if the files cannot be used at the start. Later that is logged, and the last good pair stays.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._complaint = ""
        self.version = 0
        """How often a changed pair was taken."""
        self._seen = self._fingerprint()
        self._try()
        self.context = server_context()
        self.load(self.context)

    async def run(self) -> None:
        """Look at the files for ever."""
        while True:
            await asyncio.sleep(INTERVAL)
            self.look()

    def look(self) -> bool:
        """Take a changed pair; True when one was taken."""
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
        """Loads the pair where it does no harm: a context that fails to load one is left with half of it."""
        self.load(server_context())

    def load(self, context: ssl.SSLContext) -> None:
        """Have a context show the pair that the files hold now. ConfigError if it cannot be used."""
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
    """What every server of ours has: TLS 1.2 or newer, HTTP/1.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
