"""`gangline`, with a watch over its event loop: how much CPU time passes between two turns of the loop.

    python -m scaling.watched FILE run --config ...

A timer of the loop comes due in each of its turns; two ticks are as far apart as one turn is long. The CPU time of the
process between two ticks counts, not the time: beside other programs a process stops for as long as they run. FILE gets
a line for each turn of at least `LEAST`: when it ended (`time.monotonic`), and its CPU seconds.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from pathlib import Path
from typing import TextIO

import uvloop

EVERY = 0.002
"""Seconds until the next tick; a turn that takes longer ends with a tick."""
LEAST = 0.02


class Ticks:
    """Measures one loop from its second turn on: in the first one the scheduler is built, and nobody waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop, file: TextIO) -> None:
        self._loop = loop
        self._file = file
        self._last = math.inf
        loop.call_soon(self._tick)

    def _tick(self) -> None:
        now = time.process_time()
        if now - self._last >= LEAST:
            print(time.monotonic(), now - self._last, file=self._file, flush=True)
        self._last = now
        self._loop.call_later(EVERY, self._tick)


def turns(file: Path, since: float = 0.0) -> list[float]:
    """The CPU seconds of the long turns that ended after `since`."""
    lines = [line.split() for line in file.read_text().splitlines()]
    return [float(seconds) for at, seconds in lines if float(at) >= since]


def main(file: Path, words: list[str]) -> None:
    """Run `gangline` with these words; the loop that it makes first is the scheduler's."""
    make, made = uvloop.new_event_loop, list[Ticks]()

    def watched() -> asyncio.AbstractEventLoop:
        loop = make()
        if not made:
            made.append(Ticks(loop, file.open("a")))
        return loop

    uvloop.new_event_loop = watched  # type: ignore[assignment]  # made by uvloop all the same
    from gangline.main import main as gangline

    sys.argv = ["gangline", *words]
    gangline()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
