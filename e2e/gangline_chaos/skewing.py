"""Shifts the wall clock of a process while it runs; its monotonic clock goes on as before.

The process maps a file into its memory, and adds the seconds in it to each answer of `time.time` and `time.time_ns`.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from pathlib import Path

VARIABLE = "GANGLINE_CHAOS_CLOCK"
"""The file, for processes that are started with `folder` as their PYTHONPATH."""
_SECONDS = struct.Struct("d")
_STARTUP = "from gangline_chaos.skewing import install\n\ninstall()\n"


def prepare(folder: Path) -> Path:
    """A folder from which Python imports, when it starts, what shifts the clock."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(_STARTUP)
    return folder


def shift(file: Path, seconds: float) -> None:
    """From now on the wall clock is so many seconds fast."""
    if not file.exists():
        file.write_bytes(_SECONDS.pack(seconds))
        return
    with file.open("r+b") as opened:
        opened.write(_SECONDS.pack(seconds))


def install() -> None:
    """Shift the clock of this process as its file says."""
    path = os.environ.get(VARIABLE)
    if path is None:
        return
    with open(path, "rb") as opened:
        seconds = mmap.mmap(opened.fileno(), _SECONDS.size, prot=mmap.PROT_READ)
    now, now_ns = time.time, time.time_ns
    time.time = lambda: now() + _SECONDS.unpack_from(seconds)[0]
    time.time_ns = lambda: now_ns() + int(_SECONDS.unpack_from(seconds)[0] * 1e9)
