"""Start, watch and stop one program, and read what it has used.

A process is known by its pid *and* its start time, so that a pid which the system has given to
another program is never signalled. Each leads a process group of its own, which is what is stopped.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from gangline_e2e.errors import StartFailed

POLL_S = 0.02
KILLED_S = 60.0
"""Seconds for which a killed process may still be there: it ends when the system finds time for it."""
LOG_LINES = 15
NO_ENV: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU time in seconds (user and system), and the highest resident memory in bytes."""

    cpu_s: float
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True)
class Process:
    """A started program; ``popen`` is None when another process started it."""

    name: str
    pid: int
    started: int
    popen: subprocess.Popen[bytes] | None = None

    def alive(self) -> bool:
        """Whether it runs still."""
        if self.popen is not None:
            return self.popen.poll() is None
        return _started(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group, if it runs still."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it has ended; False if it has not by then."""
        deadline = time.monotonic() + timeout_s
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def usage(self) -> Usage:
        """What it has used since it started."""
        return usage(self.pid)


def start(name: str, command: Sequence[str], log: Path, env: Mapping[str, str] = NO_ENV) -> Process:
    """Start a program in the background; what it prints is appended to ``log``.

    Its environment is that of this process; variables in ``env`` that are not set here are added.
    """
    with log.open("ab") as output:
        popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**env, **os.environ},
        )
    started = _started(popen.pid)
    if started is None:
        raise StartFailed(f"{name}: ended at once{last_lines(log)}")
    return Process(name, popen.pid, started, popen)


def stop(processes: Sequence[Process], grace_s: float) -> None:
    """Stop processes together: SIGTERM, and after ``grace_s`` seconds SIGKILL. Returns when they are gone."""
    for process in processes:
        process.signal(signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    for process in processes:
        if not process.wait(max(0.0, deadline - time.monotonic())):
            process.signal(signal.SIGKILL)
            process.wait(KILLED_S)


def usage(pid: int) -> Usage:
    """What a process has used, from /proc; ProcessLookupError if there is none with that pid."""
    try:
        fields = _stat(pid)
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError as error:
        raise ProcessLookupError(f"no process {pid}") from error
    ticks = int(fields[11]) + int(fields[12])
    peak = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), "0")
    return Usage(ticks / os.sysconf("SC_CLK_TCK"), int(peak) * 1024)


def last_lines(log: Path, count: int = LOG_LINES) -> str:
    """The last lines of a log file, each on a line of its own, to end an error with."""
    if not log.is_file():
        return ""
    lines = log.read_text(errors="replace").splitlines()[-count:]
    return "".join(f"\n    {line}" for line in lines)


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on: the second, the name, may hold spaces."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it is gone or a zombie."""
    try:
        fields = _stat(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
