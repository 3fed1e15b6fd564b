"""What Ctrl-C does: it ends the process at once, or, while an event loop runs, cancels what runs there.

A KeyboardInterrupt rises wherever the process is: in a module that is just imported, or in a plugin, whose callers take
any exception for a fault of the plugin and go on. So there is none, except for event loops, which have to be closed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from types import FrameType

T = TypeVar("T")

INTERRUPTED = 130
"""The exit code after Ctrl-C."""


def end_at_once() -> None:
    """From now on Ctrl-C ends the process, unless it is ignored or handled otherwise already."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _handle(_end)


def raise_from_now_on() -> None:
    """From now on Ctrl-C raises KeyboardInterrupt, if it ended the process before."""
    if signal.getsignal(signal.SIGINT) is _end:
        _handle(signal.default_int_handler)


def _handle(handler: Callable[[int, FrameType | None], Any]) -> None:
    with suppress(ValueError):  # another thread than the main one, in which no signal is handled
        signal.signal(signal.SIGINT, handler)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`: Ctrl-C cancels the coroutine, and then raises KeyboardInterrupt."""
    import asyncio

    with _raised():
        return asyncio.run(coroutine)


@contextmanager
def _raised() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    raise_from_now_on()
    try:
        yield
    finally:
        if before is _end:
            end_at_once()


def _end(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):
        os.write(2, b"\n")  # the terminal has shown ^C
    os._exit(INTERRUPTED)
