"""Programs that run instead of the process that tries changes, and what has become of them."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from gangline import config
from gangline.commands.trying_apart import TryingApart
from gangline.testing import FakeClock

ME = "me"
CONFIGURATION = config.load_texts(
    {"test": "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration"}
)
LONG = 280
"""Seconds that a process may take which runs after everything else, as the real one does: on a machine whose cores are
busy a second of work takes a minute.
"""
ANSWER = "print(json.dumps({'found': {'unit': asked['unit'], 'note': ' '.join(map(str, (%s,)))}, 'is_last': True}))"
GONE = "print(json.dumps({'is_last': True}))"
"""The unit waits no longer."""
WAITS = "open('%s/pid', 'a').write(str(os.getpid()) + ' '); signal.pause()"
"""Says in a folder that it is there, and waits."""


def apart(program: str, left: int | None = None, patience: float = LONG, clock: FakeClock | None = None) -> TryingApart:
    """One whose process is this program instead of the real one."""
    prelude = "import json, os, signal, sys, time; asked = json.load(sys.stdin)"
    return commanded((sys.executable, "-S", "-c", f"{prelude}; {program}"), left, patience, clock)


def commanded(
    command: tuple[str, ...], left: int | None = None, patience: float = LONG, clock: FakeClock | None = None
) -> TryingApart:
    """One whose process is this command instead of the real one."""
    monotonic = (clock or FakeClock()).monotonic
    return TryingApart(lambda: CONFIGURATION, "its/kubeconfig", command, lambda: left, monotonic, patience)


def pids_in(folder: Path) -> list[int]:
    """The programs that have said in a folder that they wait, in the order of their starts."""
    with suppress(FileNotFoundError):
        return [int(each) for each in (folder / "pid").read_text().split(" ")[:-1]]
    return []


def pid_in(folder: Path) -> int:
    """The only one."""
    (pid,) = pids_in(folder)
    return pid


def is_there(pid: int) -> bool:
    """Whether a process runs, or has ended and is still in the table of processes."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
