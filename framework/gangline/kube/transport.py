"""Requests to an API server and their answers, with errors as `gangline.errors`.

There is no rate limit: the server's priority and fairness limits requests, and its 429 is honoured. Reads are repeated
after failures that may pass, but never writes, because only the caller knows whether a write may happen twice.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.metadata import version
from itertools import takewhile
from urllib.parse import urlencode

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt

from gangline.errors import ApiError, Conflict, GanglineError, Unavailable
from gangline.kube import faults
from gangline.kube.auth import Credentials
from gangline.kube.outbox import Outbox
from gangline.kube.reading import HttpReader, KeptReader, Limits, StreamedAnswer
from gangline.kube.writing import HttpAnswer, KeptWriter, Posts, Writer

log = logging.getLogger(__name__)

JSON = "application/json"
READ_ATTEMPTS = 5
LONG_WAIT = 5.0
"""Seconds from which on the log says that a read waits before it is repeated."""
AT_ONCE_PAUSE = 600.0
"""Seconds for which requests are sent one after the other, after not all that were sent at once have been answered."""
LARGEST_RAW = 4 << 20  # bytes of the body at a path that the API server proxies
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
        self.outbox = outbox = Outbox(may_write)
        self.limits = Limits(total=timeout)
        """The time limits of all requests except lists and watches."""
        self.list_limits = Limits(silence=timeout)
        self._credentials = credentials
        self._sleep = sleep
        agent = {"User-Agent": f"gangline/{version('gangline')}"}
        headers = {**agent, "Accept": JSON}
        self._reader: HttpReader
        self._writer: Writer
        self._at_once: KeptWriter | None = None
        """Sends several requests at once; None through a proxy."""
        self._at_once_from = -math.inf
        """When several requests may be sent at once again, on the monotonic clock."""
        if credentials.proxy:
            from gangline.kube.proxied import Proxied

            self._reader = self._writer = Proxied(
                credentials, connections=connections, timeout=timeout, headers=headers, may_send=outbox.may_send
            )
            return
        server = credentials.server, credentials.ssl_context, credentials.server_name
        self._reader = KeptReader(*server, connections=connections, headers=agent)
        self._writer = self._at_once = KeptWriter(
            *server, connections=connections, timeout=timeout, headers=headers, may_send=outbox.may_send
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._writer.close()
        await self._reader.close()

    async def read(self, path: str, query: Mapping[str, str], limits: Limits, accept: str = JSON) -> bytes:
        """A GET, repeated after failures that may pass.

        What repeats is made after a failure only: it takes half the time of a short answer.
        """
        try:
            return await self._read_once(path, query, limits, accept)
        except Exception as error:
            if not faults.worth_retrying(error):
                raise
            failures = [error]

        async def attempt(path: str) -> bytes:
            if failures:  # this was the first attempt
                raise failures.pop()
            return await self._read_once(path, query, limits, accept)

        attempts = AsyncRetrying(
            retry=retry_if_exception(faults.worth_retrying),
            wait=faults.retry_wait,
            stop=stop_after_attempt(READ_ATTEMPTS),
            sleep=self._sleep,
            before_sleep=_tell_of_long_wait,
            reraise=True,
        )
        return await attempts(attempt, path)

    async def _read_once(self, path: str, query: Mapping[str, str], limits: Limits, accept: str) -> bytes:
        async with self.open(path, query, limits, accept) as answer:
            return b"".join([part async for part in answer.parts()])

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
        credentials = self._credentials
        with self.outbox:
            try:  # usually without a coroutine for the credentials
                authorization = (
                    await credentials.authorization() if credentials.is_due else credentials.last_authorization
                )
                while True:
                    if authorization:
                        headers["Authorization"] = authorization
                    answer = await self._writer.request(method, target, headers, body)
                    if answer.status < 300:
                        return answer.body
                    failure = faults.from_answer(answer.status, answer.phrase, answer.retry_after, answer.body)
                    authorization = await self._other_authorization(failure, authorization)
            except GanglineError:
                raise
            except Exception as error:
                raise faults.from_exception(error, f"{method} {self._credentials.server}{path}") from error

    async def post_all(self, posts: Posts) -> Sequence[ApiError | None]:
        """Create objects; for each the failure, None after a success.

        The requests are sent at once. Those that were not answered are sent again, one after the other: an object that
        is there then counts as created.
        """
        answers = await self._posted_at_once(posts)
        found = [
            None if each.status < 300 else faults.from_answer(each.status, each.phrase, each.retry_after, each.body)
            for each in takewhile(lambda answer: answer.status != 401, answers or ())
        ]
        for path, body in posts[len(found) :]:
            found.append(await self._failure(path, body, is_again=answers is not None))
        return found

    async def _posted_at_once(self, posts: Posts) -> Sequence[HttpAnswer] | None:
        """The answers to requests that are sent at once, as far as they come; None if the requests are not sent."""
        writer = self._at_once
        if writer is None or len(posts) < 2 or time.monotonic() < self._at_once_from:
            return None
        authorization = await self._credentials.authorization()
        headers = {"Content-Type": JSON, **({"Authorization": authorization} if authorization else {})}
        answers: Sequence[HttpAnswer] = ()
        with suppress(OSError, Unavailable):  # each request on its own finds out what is wrong
            answers = await writer.post_at_once(posts, headers)
        if len(answers) < len(posts):  # perhaps a gateway answers the first request alone
            self._at_once_from = time.monotonic() + AT_ONCE_PAUSE
        return answers

    async def _failure(self, path: str, body: bytes, is_again: bool) -> ApiError | None:
        """The failure of one creation."""
        try:
            await self.send("POST", path, body)
        except Conflict as error:
            return None if is_again else error
        except ApiError as error:
            return error
        return None

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
        self, path: str, query: Mapping[str, str], limits: Limits, accept: str
    ) -> AsyncIterator[StreamedAnswer]:
        """A successful answer to a GET, whose body is not read yet; every failure is raised as an ApiError."""
        target = _target(path, query)
        headers = {"Accept": accept}
        try:
            authorization = await self._credentials.authorization()
            while True:
                if authorization:
                    headers["Authorization"] = authorization
                async with self._reader.open(target, headers, limits) as answer:
                    if answer.status < 300:
                        yield answer
                        return
                    text = await bounded(answer.parts(), answer.status, path)
                    failure = faults.from_answer(answer.status, answer.phrase, answer.retry_after, text)
                authorization = await self._other_authorization(failure, authorization)
        except GanglineError:
            raise
        except Exception as error:
            raise faults.from_exception(error, f"GET {self._credentials.server}{path}") from error


async def bounded(parts: AsyncIterator[bytes], status: int, path: str) -> bytes:
    """The body of an answer of any server. Raises ApiError if it is too large."""
    body = bytearray()
    async for part in parts:
        body += part
        if len(body) > LARGEST_RAW:
            raise ApiError(status, "TooLarge", f"{path}: more than {LARGEST_RAW} bytes")
    return bytes(body)


def _tell_of_long_wait(state: RetryCallState) -> None:
    """Say in the log that a request waits for long, as a server may ask for by Retry-After: nobody else does."""
    seconds = state.next_action.sleep if state.next_action is not None else 0.0
    if seconds >= LONG_WAIT and state.attempt_number == 1:
        error = state.outcome.exception() if state.outcome else None
        log.warning("GET %s: %s; asking again in %.0f s", state.args[0], error, seconds)


def _target(path: str, query: Mapping[str, str]) -> str:
    """Path and query, encoded; an empty value is left out."""
    if not query:
        return path
    given = urlencode({key: value for key, value in query.items() if value})
    return f"{path}?{given}" if given else path
