"""How much CPU and memory something took, and an end to what takes far too much."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

MIB = 1 << 20
_RESET = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


class TookTooLong(BaseException):
    """Raised wherever the process is when it has used up its CPU time; no `except Exception` holds it back."""


@dataclass(slots=True)
class Spent:
    """What a block took."""

    seconds: float = 0.0
    """CPU of this thread."""
    mib: float = 0.0
    """By how much the memory of the process has grown at its highest."""


@contextmanager
def measured() -> Iterator[Spent]:
    """Measures a block; the answer is there when it has ended, whatever ended it."""
    spent = Spent()
    _forget_peak()
    memory, seconds = resident(), time.thread_time()
    try:
        yield spent
    finally:
        spent.seconds = time.thread_time() - seconds
        spent.mib = max(0.0, _memory("VmHWM") - memory)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raises TookTooLong in the block once the process has used so much CPU in it. Only in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TookTooLong(f"more than {seconds:g} s of CPU")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def resident() -> float:
    """MiB of memory that the process has now."""
    return _memory("VmRSS")


def _forget_peak() -> None:
    """Lets VmHWM begin anew, where the kernel allows it."""
    try:
        _RESET.write_text("5")
    except OSError:
        return


def _memory(field: str) -> float:
    """MiB."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0
