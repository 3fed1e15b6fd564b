"""`gangline config`: checks, converts or shows a configuration."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from gangline import config as configuration
from gangline.commands import options, profiles
from gangline.config import (
    Expanded,
    PluginConfig,
    PluginRef,
    Plugins,
    PluginSet,
    Profile,
    SchedulerConfiguration,
    Seconds,
)
from gangline.durations import format_duration
from gangline.errors import GanglineError
from gangline.groups import Groups
from gangline.plurals import many
from gangline.profile.assembly import gang_notes, judging_runtimes
from gangline.profile.registry import Catalog
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache

_FILES = click.argument("files", type=options.InputFile(path_type=Path), nargs=-1, required=True, metavar="FILE...")


@click.group()
def config() -> None:
    """Check, convert or show KubeSchedulerConfiguration files."""


@config.command(short_help="Check files and list their faults.")
@_FILES
def validate(files: Sequence[Path]) -> None:
    """Load the files, build every profile with the installed plugins, and write a line for each fault.

    A file that cannot be used does not hide the faults of the other files.
    """
    faults: list[GanglineError] = []
    usable = [file for file in files if _is_usable(file, faults)]
    runtimes = _built(usable, faults) if usable else {}
    faults.sort(key=lambda fault: fault.exit_code)  # the last one ends the command
    for fault in faults[:-1]:
        click.echo(f"gangline: {fault}", err=True)
    if faults:
        raise faults[-1]
    for note in gang_notes(runtimes).values():
        click.echo(f"gangline: {note}", err=True)
    for name, runtime in runtimes.items():
        click.echo(f"{name}: {many(len(runtime.profile.plugins), 'plugin')}")


def _is_usable(file: Path, faults: list[GanglineError]) -> bool:
    """Whether a file is a configuration by itself; its fault is added to `faults` if it is none."""
    try:
        configuration.load_files([file])
    except GanglineError as fault:
        faults.append(fault)
        return False
    return True


def _built(files: Sequence[Path], faults: list[GanglineError]) -> dict[str, Runtime]:
    """The profiles of all files together, built with the installed plugins; each fault is added to `faults`."""
    cache = Cache()
    try:
        loaded = configuration.load_files(files)
        return judging_runtimes(loaded, cache, ties=random.Random(0), grouping=Groups(cache), on_fault=faults.append)
    except GanglineError as fault:  # what the files are only together, for example two profiles of one name
        faults.append(fault)
        return {}


@config.command(short_help="Write files as kubescheduler.config.k8s.io/v1.")
@_FILES
def convert(files: Sequence[Path]) -> None:
    """Write the configuration as kubescheduler.config.k8s.io/v1, with the fields that differ from the defaults."""
    click.echo(configuration.convert(configuration.load_files(list(files))), nl=False)


@config.command(short_help="Write files with all defaults.")
@click.argument("files", type=options.InputFile(path_type=Path), nargs=-1, metavar="[FILE]...")
@click.option("--profile", default=None, help="Name of an installed profile, instead of files.")
def show(files: Sequence[Path], profile: str | None) -> None:
    """Write the configuration with all defaults: plugins of each extension point, weights, arguments.

    Without files, write the configuration that `gangline run` uses without --config.
    """
    named = files or profile
    loaded = profiles.choose([str(file) for file in files], profile) if named else profiles.served()
    click.echo(configuration.show(effective(loaded, Catalog.discover())), nl=False)


def effective(loaded: SchedulerConfiguration, catalog: Catalog) -> SchedulerConfiguration:
    """The configuration with the plugins of each extension point and all their arguments. Raises ConfigError."""
    points = catalog.points()
    expanded = configuration.expand_all(loaded.profiles, points, configuration.default_plugins(points))
    spelled = tuple(_spelled(profile, expanded[profile.scheduler_name], catalog) for profile in loaded.profiles)
    return msgspec.structs.replace(loaded, profiles=spelled)


def _spelled(profile: Profile, expanded: Expanded, catalog: Catalog) -> Profile:
    """The profile in a form in which each extension point names all of its plugins, without multiPoint and defaults."""
    nothing = (PluginRef("*"),)
    sets = {point: PluginSet(enabled=refs, disabled=nothing) for point, refs in expanded.items()}
    args = []
    for name in dict.fromkeys(ref.name for refs in expanded.values() for ref in refs):
        type_: type[msgspec.Struct] | None = getattr(catalog.load(name), "args_type", None)
        given = next((entry.args for entry in profile.plugin_config if entry.name == name), None)
        if type_ is None:
            spelled = given
        else:
            spelled = msgspec.to_builtins(configuration.plugin_args(profile, name, type_), enc_hook=_plain)
        if spelled:
            args.append(PluginConfig(name, spelled))
    plugins = Plugins(multi_point=PluginSet(disabled=nothing), **sets)
    return dataclasses.replace(profile, plugins=plugins, plugin_config=tuple(args))


def _plain(value: object) -> object:
    if isinstance(value, Seconds):
        return format_duration(value)
    raise NotImplementedError(type(value))
