"""Run a control plane in the background: `up` records what it starts, `down` stops just that."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gangline_e2e import harness, processes
from gangline_e2e.errors import HarnessError
from gangline_e2e.harness import ControlPlane, Options
from gangline_e2e.processes import Process

RECORD = "running.json"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One process that `up` left running."""

    name: str
    pid: int
    started: int


def default_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Where `up` keeps its cluster: in $XDG_STATE_HOME, or else in ~/.local/state."""
    state = env.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "gangline" / "control-plane"


def up(folder: Path, options: Options) -> ControlPlane:
    """Start a control plane that outlives this process; HarnessError if one runs in the folder."""
    if any(process.alive() for process in recorded(folder)):
        raise HarnessError(f"{folder}: a control plane runs here already; stop it with `down --dir {folder}`")
    harness.drop_data(folder)
    control_plane = ControlPlane(folder, options)
    control_plane.start()
    try:
        record(folder, control_plane.processes.values())
    except BaseException:
        control_plane.close()
        raise
    return control_plane


def down(folder: Path) -> list[str]:
    """Stop what `up` started in the folder and drop its data; the names of what was stopped."""
    left = [process for process in recorded(folder) if process.alive()]
    for process in reversed(left):
        processes.stop([process], harness.STOP_S)
    harness.drop_data(folder)
    (folder / RECORD).unlink(missing_ok=True)
    return [process.name for process in left]


def record(folder: Path, started: Iterable[Process]) -> None:
    """Write down which processes were started."""
    rows = [Recorded(process.name, process.pid, process.started) for process in started]
    (folder / RECORD).write_bytes(msgspec.json.encode(rows))


def recorded(folder: Path) -> list[Process]:
    """The processes that were written down, in the order of starting; they may have ended since."""
    file = folder / RECORD
    if not file.is_file():
        return []
    try:
        rows = msgspec.json.decode(file.read_bytes(), type=list[Recorded])
    except msgspec.DecodeError as error:
        raise HarnessError(f"{file}: {error}") from error
    return [Process(row.name, row.pid, row.started) for row in rows]
