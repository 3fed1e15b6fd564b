"""Which writes of this process the API server may still carry out: those that have no answer.

A leader that is told to stop may have bindings that take long, for example because a plugin waits for a volume, or
locks hundreds of devices on a slow API server. They need not end for the next leader to begin; only their writes must
not arrive while the next leader decides. So the leader stops writing, and waits for the answers to what it has sent.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from types import TracebackType

from gangline.errors import ApiError, GanglineError

NOT_LEADING = "NotLeading"
"""The reason of the error for a write that was not sent."""
LANDING = 60.0
"""Seconds after which an unanswered request has been carried out or never will be: API servers end requests by then."""
ANSWERED_WITHIN = 8.0
"""Seconds for which a process that writes no more waits for the answers to its last writes."""
_SERVER_ERROR = 500


class Outbox:
    """Counts the writes of one client: each write is made in a block of its own, `with outbox:`.

    `may_write` says whether the process may write at this moment.
    """

    def __init__(
        self, may_write: Callable[[], bool] = lambda: True, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.under_way = 0
        """The number of writes that wait for an answer, or wait to be sent."""
        self._may_write = may_write
        self._monotonic = monotonic
        self._is_closed = False
        self._given_up_at = -math.inf
        self._all_answered: asyncio.Event | None = None

    def may_send(self) -> bool:
        """Whether a write may be sent now; to be asked at the last moment, after all waiting."""
        return not self._is_closed and self._may_write()

    def __enter__(self) -> None:
        self.under_way += 1

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.under_way -= 1
        if exc is not None and _may_arrive(exc):
            self._given_up_at = self._monotonic()
        if not self.under_way and self._all_answered is not None:
            self._all_answered.set()

    async def close(self) -> bool:
        """Send nothing from now on. Returns whether the API server carries out no write of this process any more, as
        soon as that is known, after ANSWERED_WITHIN seconds at the latest.
        """
        self._is_closed = True
        self._all_answered = asyncio.Event()
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                if self.under_way:
                    await self._all_answered.wait()
        except TimeoutError:
            return False
        return self._monotonic() - self._given_up_at >= LANDING


def _may_arrive(error: BaseException) -> bool:
    """Whether a write that ended with this error may have been sent, and may still be carried out."""
    if not isinstance(error, ApiError):
        return not isinstance(error, GanglineError)
    if error.status:  # a server error comes, for example, if etcd did not answer in time
        return error.status >= _SERVER_ERROR
    return error.reason != NOT_LEADING
