"""How the process treats its memory."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def keep_memory() -> None:
    """Let glibc's allocator keep the memory of freed arrays; without glibc nothing happens.

    Returning the memory to the system and requesting it again takes a third of the time of a decision on a pod of a new
    class at 5,000 nodes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, 128 * 1024 * 1024)
        mallopt(_M_MMAP_THRESHOLD, 32 * 1024 * 1024)


@contextmanager
def nothing_collected() -> Iterator[None]:
    """The garbage collector never looks at objects created in this block: imports take a tenth longer otherwise."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def collect_rarely() -> None:
    """Most objects live long: make the garbage collector look at them less often."""
    gc.set_threshold(200_000, 50, 100)


def settle_memory() -> None:
    """The garbage collector never looks at the present objects again."""
    gc.collect()
    gc.freeze()
    collect_rarely()
