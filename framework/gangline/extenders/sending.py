"""Sends a body to an extender and returns the answer: the only module here that uses HTTP."""

from __future__ import annotations

from importlib.metadata import version

import aiohttp

from gangline.errors import ExtenderError
from gangline.extenders.endpoint import Endpoint
from gangline.kube.connecting import Connector


class SessionAsker:
    """An Asker with one session for all extenders, opened at the first request."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def ask(self, endpoint: Endpoint, verb: str, body: bytes) -> bytes:
        """Send a POST. Raises ExtenderError; no request is repeated."""
        url, extender = endpoint.url_of(verb), endpoint.extender
        seconds = float(extender.http_timeout)
        try:
            async with self._opened().post(
                url,
                data=body,
                headers={"Content-Type": "application/json"},
                ssl=endpoint.tls,
                server_hostname=(extender.tls_config.server_name or None) if extender.tls_config else None,
                timeout=aiohttp.ClientTimeout(total=seconds),
            ) as answer:
                if answer.status != 200:
                    why = f"failed {verb} with extender at URL {url}, code {answer.status}"
                    raise ExtenderError(endpoint.url, verb, why)
                return await answer.read()
        except TimeoutError as error:
            raise ExtenderError(endpoint.url, verb, f"no answer within {seconds:g}s") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ExtenderError(endpoint.url, verb, str(error) or type(error).__name__) from error

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=Connector(),
                headers={"User-Agent": f"gangline/{version('gangline')}", "Accept": "application/json"},
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session
