"""Who asks extenders, and where they are."""

from __future__ import annotations

import ssl
from typing import Protocol

import msgspec

from gangline.config import Extender
from gangline.extenders.tls import context_of


class Endpoint(msgspec.Struct, frozen=True, eq=False):
    """An extender and how to reach it."""

    extender: Extender
    tls: ssl.SSLContext | bool

    @property
    def url(self) -> str:
        """The urlPrefix, which identifies the extender."""
        return self.extender.url_prefix

    def url_of(self, verb: str) -> str:
        """The URL of a verb."""
        return f"{self.url.rstrip('/')}/{verb}"


def endpoint_of(extender: Extender, path: str) -> Endpoint:
    """The endpoint of an extender; `path` is the extender's path in the configuration.

    Raises ConfigError if its certificates cannot be used.
    """
    return Endpoint(extender, context_of(extender, path))


class Asker(Protocol):
    """Sends bodies to extenders."""

    async def ask(self, endpoint: Endpoint, verb: str, body: bytes) -> bytes:
        """Send a request; returns the body of a successful answer. Raises ExtenderError."""
        ...

    async def aclose(self) -> None:
        """Close all connections; a later request opens new ones."""
        ...


class HttpAsker:
    """Sends bodies over HTTP. What that takes is loaded for the first one: most schedulers have no extenders."""

    def __init__(self) -> None:
        self._asker: Asker | None = None

    async def ask(self, endpoint: Endpoint, verb: str, body: bytes) -> bytes:
        """Send a POST. Raises ExtenderError; no request is repeated."""
        if self._asker is None:
            from gangline.extenders.sending import SessionAsker

            self._asker = SessionAsker()
        return await self._asker.ask(endpoint, verb, body)

    async def aclose(self) -> None:
        """Close all connections; a later request opens new ones."""
        if self._asker is not None:
            await self._asker.aclose()
