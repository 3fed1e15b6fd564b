"""Counts what does not depend on how busy a machine is: executed bytecode instructions of Gangline, and bytes.

With one PYTHONHASHSEED two counts of the same work are equal, or nearly so.
"""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import gangline
import gangline_plugins

OURS = tuple(f"{Path(package.__file__ or '').parent}/" for package in (gangline, gangline_plugins))
NOT_OURS = f"{Path(gangline.__file__ or '').parent}/simulate/"
"""The simulated API server is left out: in a cluster, other programs do its work."""


class Instructions:
    """Counts instructions of Gangline's own code in this thread, in `with` blocks; counting takes 30 times as long."""

    def __init__(self) -> None:
        self.count = 0
        self._counts: dict[str, bool] = {}

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the instructions of functions that are called in this block."""
        before = sys.gettrace()
        sys._getframe().f_trace_opcodes = True  # Python 3.12 traces no instructions unless some frame has asked before
        sys.settrace(self._called)
        try:
            yield
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Callable[[FrameType, str, Any], Any] | None:
        name = frame.f_code.co_filename
        if (counts := self._counts.get(name)) is None:
            counts = self._counts[name] = name.startswith(OURS) and not name.startswith(NOT_OURS)
        if not counts:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._executed

    def _executed(self, frame: FrameType, event: str, arg: Any) -> Callable[[FrameType, str, Any], Any]:
        if event == "opcode":
            self.count += 1
        return self._executed


@contextmanager
def memory() -> Iterator[None]:
    """Trace in this block the memory that Python and numpy allocate."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def kept() -> int:
    """Bytes in use now, within `memory`."""
    return tracemalloc.get_traced_memory()[0]


def peak(work: Callable[[], object]) -> int:
    """Bytes that some work has in use at most, beyond those before, within `memory`."""
    tracemalloc.reset_peak()
    before = kept()
    work()
    return tracemalloc.get_traced_memory()[1] - before
