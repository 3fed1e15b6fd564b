"""`gangline snapshot`: keeps everything that Gangline reads of a cluster in a file, to answer questions later."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from gangline import config
from gangline.api.plugin import Clock
from gangline.clock import SystemClock
from gangline.commands import options
from gangline.commands.finding import find_judges
from gangline.commands.judging import judge
from gangline.commands.options import Connection
from gangline.commands.reaching import reached
from gangline.commands.running import Judges, Running, judges
from gangline.errors import ConfigError
from gangline.explain.snapshots import RecordedClient, RecordingClient, Snapshot, SnapshotClock, decode, encode
from gangline.kube.interface import Client
from gangline.plurals import many
from gangline.process import interrupting
from gangline.process.whole_files import STANDARD_OUTPUT, is_special, write_to


@click.group()
def snapshot() -> None:
    """Keep what Gangline reads of a cluster in a file, without Secrets, env, args and command."""


@snapshot.command(short_help="List the cluster once, and write FILE.")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@options.CONFIG
@options.PROFILE
@options.SCHEDULER
@options.connection
def save(connection: Connection, file: str, files: Sequence[str], profile: str | None, scheduler: str | None) -> None:
    """List the cluster once, and write FILE, or standard output for `-`. Nothing is changed.

    `whatif`, `explain` and `simulate` ask the file with --snapshot FILE.

    The file has the objects as Gangline reads them, and the profiles: those of the running scheduler or, if the
    scheduler does not answer, the installed ones.
    """
    if file == STANDARD_OUTPUT and sys.stdout.isatty():
        raise click.UsageError("a snapshot is no text for a terminal: name a file, or redirect standard output")
    taken, _ = interrupting.run(take_live(files, profile, scheduler, connection))
    size = write(file, taken)
    objects = sum(len(listed.items) for listed in taken.lists)
    # What is written to a pipe may be standard output.
    is_output = file == STANDARD_OUTPUT
    where = "standard output" if is_output else file
    click.echo(f"{where}: {many(objects, 'object')}, {many(size, 'byte')}", err=is_output or is_special(Path(file)))


async def take_live(
    files: Sequence[str], profile: str | None, scheduler: str | None, connection: Connection
) -> tuple[Snapshot, str]:
    """The cluster as it is now, and its context. Raises ApiError and ConfigError."""
    async with reached(connection) as there:
        by = await find_judges(there, files, profile, scheduler)
        return await take(there.client, by), there.where


async def take(client: Client, by: Judges, clock: Clock | None = None) -> Snapshot:
    """Record all objects that Gangline reads to judge the cluster. Raises ApiError and ConfigError."""
    clock = clock or SystemClock()
    recorder = RecordingClient(client)
    await judge(recorder, by.configuration, clock)
    return recorder.snapshot(clock.now(), by.configuration, by.source)


def write(file: str | Path, taken: Snapshot) -> int:
    """Write the file, for its owner alone, or standard output for `-`; returns its size. Raises ConfigError."""
    data = encode(taken)
    try:
        write_to(str(file), data, is_private=True)
    except BrokenPipeError:  # nobody reads it to its end, which is no failure to tell of
        raise
    except OSError as error:
        raise ConfigError(str(file), "", f"cannot be written: {error.strerror}") from error
    return len(data)


def read(file: Path) -> Snapshot:
    """Read a file that `write` has made. Raises ConfigError."""
    try:
        return decode(file.read_bytes(), str(file))
    except OSError as error:
        raise ConfigError(str(file), "", f"cannot be read: {error.strerror}") from error


async def recorded(file: Path, files: Sequence[str], profile: str | None) -> tuple[Client, Judges, Clock]:
    """A client that answers from a snapshot, the profiles to judge by, and a clock that stands at the time of the
    snapshot. Raises ConfigError.
    """
    taken = read(file)
    running = Running(f"{file}, from {taken.source}", config.load(taken.configuration, str(file)))
    client = RecordedClient(taken, str(file))
    return client, judges(files, profile, running), SnapshotClock(taken.taken_at)
