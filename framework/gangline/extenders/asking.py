"""Who asks extenders."""

from __future__ import annotations

from typing import Protocol

from gangline.extenders.endpoint import Endpoint


class Asker(Protocol):
    """Sends bodies to extenders."""

    async def ask(self, endpoint: Endpoint, verb: str, body: bytes) -> bytes:
        """Send a request; returns the body of a successful answer. Raises ExtenderError."""
        ...

    async def aclose(self) -> None:
        """Close all connections; a later request opens new ones."""
        ...


class HttpAsker:
    """Sends bodies over HTTP. The HTTP client is imported at the first request: most schedulers have no extenders."""

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
