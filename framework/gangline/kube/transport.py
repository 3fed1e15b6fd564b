"""Requests to an API server and their answers: HTTP by aiohttp, errors as `gangline.errors`.

There is no rate limit: the server's priority and fairness limits requests, and its 429 is honoured. Reads are repeated
after failures that may pass, but never writes, because only the caller knows whether a write may happen twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from urllib.parse import urlencode

import aiohttp
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt
from yarl import URL

from gangline.errors import ApiError, GanglineError
from gangline.kube import faults
from gangline.kube.auth import Credentials
from gangline.kube.connecting import Connector
from gangline.kube.writing import CONNECT_TIMEOUT, KeptWriter, ProxiedWriter, Writer, last_check

JSON = "application/json"
READ_ATTEMPTS = 5
LARGEST_RAW = 4 << 20  # bytes of the body at a path that the API server proxies
BUFFER = 1 << 20  # bytes read ahead per connection
_NO_QUERY: Mapping[str, str] = {}


class Transport:
    """The connections to one API server, with its credentials; make it inside a running event loop.

    The arguments are those of `client.HttpClient`. Every failure is raised as an ApiError.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        timeout: float,
        connections: int,
        sleep: Callable[[float], Awaitable[None]],
        may_write: Callable[[], bool],
    ) -> None:
        self.limits = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_TIMEOUT)
        """The time limits of all requests except lists and watches."""
        self.list_limits = aiohttp.ClientTimeout(sock_read=timeout, sock_connect=CONNECT_TIMEOUT)
        self._credentials = credentials
        self._sleep = sleep
        headers = {"User-Agent": f"gangline/{version('gangline')}", "Accept": JSON}
        self._session = aiohttp.ClientSession(
            connector=Connector(limit=connections, keepalive_timeout=60, ssl=credentials.ssl_context or True),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=BUFFER,
            proxy=credentials.proxy,
            timeout=self.limits,
            trace_configs=[last_check(may_write)] if credentials.proxy else None,
        )
        self._writer: Writer = (
            ProxiedWriter(self._session, credentials.server, credentials.server_name)
            if credentials.proxy
            else KeptWriter(
                credentials.server,
                credentials.ssl_context,
                credentials.server_name,
                connections=connections,
                timeout=timeout,
                headers=headers,
                may_send=may_write,
            )
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._writer.close()
        await self._session.close()

    async def read(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str = JSON
    ) -> bytes:
        """A GET, repeated after failures that may pass."""
        attempts = AsyncRetrying(
            retry=retry_if_exception(faults.worth_retrying),
            wait=faults.retry_wait,
            stop=stop_after_attempt(READ_ATTEMPTS),
            sleep=self._sleep,
            reraise=True,
        )
        return await attempts(self._read_once, path, query, limits, accept)

    async def _read_once(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str
    ) -> bytes:
        async with self.open(path, query, limits, accept) as answer:
            return await answer.read()

    async def send(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str = JSON,
        query: Mapping[str, str] = _NO_QUERY,
    ) -> bytes:
        """The body of a successful answer to a write; every failure is raised as an ApiError."""
        target = _target(path, query)
        headers = {"Content-Type": content_type}
        try:
            authorization = await self._credentials.authorization()
            while True:
                if authorization:
                    headers["Authorization"] = authorization
                answer = await self._writer.request(method, target, headers, body)
                if answer.status < 400:
                    return answer.body
                asked = {"Retry-After": answer.retry_after} if answer.retry_after else {}
                failure = faults.from_answer(answer.status, answer.phrase, asked, answer.body)
                authorization = await self._other_authorization(failure, authorization)
        except GanglineError:
            raise
        except Exception as error:
            raise faults.from_exception(error, f"{method} {self._credentials.server}{path}") from error

    async def _other_authorization(self, failure: ApiError, rejected: str | None) -> str:
        """Another Authorization header to try once after the server has rejected this one; raises the failure if the
        failure has another reason, or if there is no other header.
        """
        renewed = await self._credentials.renewed(rejected) if failure.status == 401 else None
        if renewed is None:
            raise failure
        return renewed

    @asynccontextmanager
    async def open(
        self, path: str, query: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A successful answer to a GET, whose body is not read yet; every failure is raised as an ApiError."""
        url = URL(f"{self._credentials.server}{_target(path, query)}", encoded=True)
        headers = {"Accept": accept}
        try:
            authorization = await self._credentials.authorization()
            while True:
                if authorization:
                    headers["Authorization"] = authorization
                async with self._session.get(
                    url, headers=headers, timeout=limits, server_hostname=self._credentials.server_name
                ) as answer:
                    if answer.status < 400:
                        yield answer
                        return
                    text = await answer.read()
                    failure = faults.from_answer(answer.status, answer.reason or "", answer.headers, text)
                authorization = await self._other_authorization(failure, authorization)
        except GanglineError:
            raise
        except Exception as error:
            raise faults.from_exception(error, f"GET {self._credentials.server}{path}") from error


async def bounded(answer: aiohttp.ClientResponse, path: str) -> bytes:
    """The body of an answer of any server. Raises ApiError if it is too large."""
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > LARGEST_RAW:
            raise ApiError(answer.status, "TooLarge", f"{path}: more than {LARGEST_RAW} bytes")
    return bytes(body)


def _target(path: str, query: Mapping[str, str]) -> str:
    """Path and query, encoded; an empty value is left out."""
    if not query:
        return path
    given = urlencode({key: value for key, value in query.items() if value})
    return f"{path}?{given}" if given else path
