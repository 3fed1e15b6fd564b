"""Makes event loops, runs one in a thread of its own, and lets one loop await a coroutine in another loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

log = logging.getLogger(__name__)

T = TypeVar("T")
Work = Callable[[], Awaitable[T]]
LoopFactory = Callable[[], asyncio.AbstractEventLoop]


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of uvloop. Its log does not tell with a traceback of connections that broke when nobody waited for them.

    If a connection is reset between the handshakes of TCP and TLS, uvloop raises the error to who connects, and leaves
    the error also in a future that nobody reads. If a connection is closed while TLS has something to send on it, for
    example an alert, uvloop calls that fatal.
    """
    loop = uvloop.new_event_loop()
    loop.set_exception_handler(_unhandled)
    return loop


def _unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    future, error = context.get("future"), context.get("exception")
    is_of_task = future is None or isinstance(future, asyncio.Task)
    is_left = isinstance(error, (ConnectionError, ssl.SSLError)) and not is_of_task
    if is_left or _is_of_a_closed_connection(error, context.get("transport")):
        log.debug("a connection broke: %r", error)
    else:
        loop.default_exception_handler(context)


def _is_of_a_closed_connection(error: BaseException | None, transport: Any) -> bool:
    """Whether uvloop could not send on a connection because the connection is closed."""
    is_refused = isinstance(error, RuntimeError) and str(error).endswith("; the handler is closed")
    return is_refused and transport is not None and bool(transport.is_closing())


async def across(loop: asyncio.AbstractEventLoop, work: Work[T], gone: asyncio.Future[None] | None = None) -> T:
    """Run ``work`` in another loop; returns its result, or raises its exception.

    A cancellation is passed on to ``work``, and waits until ``work`` has ended. ``gone`` is a future of this loop
    that is done when the other loop has ended; then RuntimeError is raised.
    """
    here = asyncio.get_running_loop()
    ended: asyncio.Future[asyncio.Task[T]] = here.create_future()
    tasks: list[asyncio.Task[T]] = []

    def start() -> None:
        tasks.append(loop.create_task(_awaited(work)))
        tasks[0].add_done_callback(lambda task: here.call_soon_threadsafe(ended.set_result, task))

    def cancel() -> None:
        tasks[0].cancel()

    loop.call_soon_threadsafe(start)
    cancelled: asyncio.CancelledError | None = None
    while not ended.done():
        try:
            await asyncio.wait((ended, gone) if gone else (ended,), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError as error:
            cancelled = error
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(cancel)
        if gone is not None and gone.done() and not ended.done():
            raise RuntimeError("the event loop of the other thread has ended") from cancelled
    task = ended.result()
    if task.cancelled() and cancelled is None:
        raise RuntimeError("the event loop of the other thread has ended")
    if cancelled is not None and (task.cancelled() or task.exception() is None):
        raise cancelled
    return task.result()


async def _awaited(work: Work[T]) -> T:
    return await work()


class LoopThread:
    """An event loop in a thread of its own, for the time of the block; at its end the loop's tasks are cancelled."""

    def __init__(self, name: str, factory: LoopFactory = asyncio.new_event_loop) -> None:
        self._factory = factory
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def __aenter__(self) -> Self:
        self._home = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._home.create_future()
        self._started: asyncio.Future[asyncio.AbstractEventLoop] = self._home.create_future()
        self._thread.start()
        await asyncio.wait((self._started, self._gone), return_when=asyncio.FIRST_COMPLETED)
        if not self._started.done():
            raise RuntimeError(f"the thread {self._thread.name} has not started")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._gone.done():
            with suppress(RuntimeError):  # the loop has just ended by itself
                self._started.result().call_soon_threadsafe(self._stop.set)
            await asyncio.wait((self._gone,))
        self._thread.join()

    async def call(self, work: Work[T]) -> T:
        """See `across`."""
        return await across(self._started.result(), work, self._gone)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._factory) as runner:
                runner.run(self._stay())
        except Exception:  # nobody reads it here: callers learn that this loop has ended
            log.exception("the event loop of thread %s has ended", self._thread.name)
        finally:
            with suppress(RuntimeError):  # the other loop is closed: nobody waits
                self._home.call_soon_threadsafe(self._end)

    async def _stay(self) -> None:
        self._stop = asyncio.Event()
        self._home.call_soon_threadsafe(self._started.set_result, asyncio.get_running_loop())
        await self._stop.wait()

    def _end(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
