"""`gangline config`: check a configuration, convert it, or spell it out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import click

from gangline import config as configuration
from gangline.assembly import build_runtimes
from gangline.cache import Cache
from gangline.clock import SystemClock
from gangline.metrics import Metrics
from gangline.recording import NoRecorder
from gangline.registry import Catalog
from gangline.waiting import WaitingPods

_FILES = click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="FILE...")


@click.group()
def config() -> None:
    """Check, convert or show KubeSchedulerConfiguration files."""


@config.command()
@_FILES
def validate(files: Sequence[Path]) -> None:
    """Load the files and build every profile with the plugins that are installed."""
    loaded = configuration.load_files(list(files))
    runtimes = build_runtimes(
        loaded,
        Catalog.discover(),
        Cache(),
        SystemClock(),
        NoRecorder(),
        WaitingPods(),
        None,
        Metrics(),
        random.Random(0),
    )
    for name, runtime in runtimes.items():
        click.echo(f"{name}: {len(runtime.profile.plugins)} plugins")


@config.command()
@_FILES
def convert(files: Sequence[Path]) -> None:
    """Write the configuration as kubescheduler.config.k8s.io/v1, with what differs from the defaults."""
    click.echo(configuration.convert(configuration.load_files(list(files))), nl=False)


@config.command()
@_FILES
def show(files: Sequence[Path]) -> None:
    """Write the configuration with every default spelled out."""
    click.echo(configuration.show(configuration.load_files(list(files))), nl=False)
