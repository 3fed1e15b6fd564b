"""How much of the machine others use: the CPU time of all processes without that of this one and its children."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
_WORK = (0, 1, 2, 7)
"""user, nice, system and steal in the first line of /proc/stat; not idle time, nor interrupts, which are nobody's."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """CPU seconds used by a moment (in seconds of a monotonic clock)."""

    at: float
    machine: float
    ours: float


def snapshot() -> Snapshot:
    """What the machine, and this process with its children, have used by now."""
    ours = tree_seconds(_stats(), os.getpid())
    return Snapshot(time.monotonic(), machine_seconds(Path("/proc/stat").read_text()), ours)


def others(before: Snapshot, after: Snapshot) -> float:
    """Cores that other processes used between two moments."""
    used = (after.machine - before.machine) - (after.ours - before.ours)
    return max(0.0, used / max(after.at - before.at, 1 / TICKS))


def machine_seconds(stat: str) -> float:
    """CPU seconds of all processes together, of a /proc/stat."""
    fields = stat.partition("\n")[0].split()[1:]
    return sum(int(fields[at]) for at in _WORK) / TICKS


def tree_seconds(stats: Iterable[str], root: int) -> float:
    """CPU seconds of a process and all its descendants, those included that have ended; of /proc/PID/stat of all."""
    children: dict[int, list[int]] = {}
    used: dict[int, int] = {}
    for stat in stats:
        pid = int(stat.split(" ", 1)[0])
        fields = stat.rpartition(")")[2].split()  # from the third field on; the second, the name, may hold spaces
        children.setdefault(int(fields[1]), []).append(pid)
        used[pid] = sum(map(int, fields[11:15]))
    total, left = 0, [root]
    while left:
        pid = left.pop()
        total += used.get(pid, 0)
        left += children.get(pid, ())
    return total / TICKS


def _stats() -> Iterable[str]:
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            yield file.read_text()
        except OSError:  # it has ended meanwhile
            continue
