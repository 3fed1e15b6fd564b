"""Requests to an API server through an HTTP proxy, by aiohttp, which is loaded only where there is a proxy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import aiohttp
from yarl import URL

from gangline.kube.auth import Credentials
from gangline.kube.connecting import Connector
from gangline.kube.connections import CONNECT_TIMEOUT
from gangline.kube.reading import BUFFER, Limits, StreamedAnswer
from gangline.kube.writing import HttpAnswer, MaySend, check


class Proxied:
    """An HttpReader and a Writer; make it inside a running event loop."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        connections: int,
        timeout: float,
        headers: Mapping[str, str],
        may_send: MaySend,
    ) -> None:
        self._server = credentials.server
        self._server_name = credentials.server_name
        self._session = aiohttp.ClientSession(
            connector=Connector(limit=connections, keepalive_timeout=60, ssl=credentials.ssl_context or True),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=BUFFER,
            proxy=credentials.proxy,
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT),
            trace_configs=[last_check(may_send)],
        )

    @asynccontextmanager
    async def open(self, target: str, headers: Mapping[str, str], limits: Limits) -> AsyncIterator[StreamedAnswer]:
        """See HttpReader."""
        within = aiohttp.ClientTimeout(total=limits.total, sock_read=limits.silence, sock_connect=CONNECT_TIMEOUT)
        with _errors_of_the_system():
            async with self._session.get(
                self._url(target),
                headers=headers,
                timeout=within,
                server_hostname=self._server_name,
                allow_redirects=False,
            ) as answer:
                yield _ProxiedAnswer(answer)

    async def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """See Writer."""
        with _errors_of_the_system():
            async with self._session.request(
                method,
                self._url(target),
                data=body,
                headers=headers,
                server_hostname=self._server_name,
                allow_redirects=False,
            ) as answer:
                text = await answer.read()
                return HttpAnswer(answer.status, answer.reason or "", answer.headers.get("Retry-After"), text)

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()

    def _url(self, target: str) -> URL:
        return URL(f"{self._server}{target}", encoded=True)


class _ProxiedAnswer:
    """A StreamedAnswer."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self.status = answer.status
        self.phrase = answer.reason or ""
        self.retry_after = answer.headers.get("Retry-After")
        self._content = answer.content

    def parts(self) -> AsyncIterator[bytes]:
        """See StreamedAnswer."""
        return self._content.iter_any()


def last_check(may_send: MaySend) -> aiohttp.TraceConfig:
    """Makes aiohttp call `may_send` before each write, when the connection is open and nothing is sent yet.

    aiohttp would send a PUT or DELETE again when the connection breaks, though the first one may have been carried out.
    """

    async def ask(session: aiohttp.ClientSession, context: object, sent: aiohttp.TraceRequestHeadersSentParams) -> None:
        if sent.method in ("GET", "CONNECT"):
            return
        check(may_send)
        if getattr(context, "is_sent", False):  # the context belongs to the request
            raise ConnectionResetError("the server closed the connection")
        setattr(context, "is_sent", True)  # noqa: B010  # aiohttp gives it no type

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(ask)
    return config


@contextmanager
def _errors_of_the_system() -> Iterator[None]:
    """Raises every error of aiohttp as an OSError; many are one already."""
    try:
        yield
    except OSError:
        raise
    except aiohttp.ServerDisconnectedError as error:
        raise ConnectionResetError("the server closed the connection") from error
    except aiohttp.ClientPayloadError as error:
        raise ConnectionResetError("the connection broke in the middle of the answer") from error
    except aiohttp.ClientError as error:
        raise ConnectionError(str(error) or type(error).__name__) from error
