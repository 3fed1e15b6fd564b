"""The configuration that a command uses: files, a profile by name, or all installed profiles."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from pathlib import Path

import click
import msgspec

from gangline import config
from gangline.commands import options
from gangline.commands.output import print_whole, table
from gangline.config import SchedulerConfiguration
from gangline.errors import ConfigError

log = logging.getLogger(__name__)

GROUP = "gangline.profiles"
PACKAGED = ("gangline", "gpu-scheduler", "topology-aware-scheduler")
"""The profiles that are served without a file or $SCHEDULER_NAME."""
OURS = "gangline_profiles"
"""The module with the profiles that come with Gangline."""
LIKE = "gpu-scheduler"
"""The profile that serves a schedulerName without a profile of its own."""


def installed() -> dict[str, str]:
    """The text of each installed profile by its name; a distribution whose profiles cannot be read is left out.

    No distribution can replace a profile that comes with Gangline.
    """
    found: dict[str, str] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.value != OURS):
        origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.name
        try:
            module = entry.load()
            texts = {str(name): _text(module.read(name)) for name in module.names()}
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # another project's module: its faults must not affect users of other profiles
            log.warning("the profiles of %s are left out: %s: %r", origin, entry.value, error)
            continue
        for name in texts.keys() & found.keys():
            log.warning("the profile %s of %s is left out: another one has this name", name, origin)
        found = {**texts, **found}
    return found


def _text(read: object) -> str:
    if not isinstance(read, str):
        raise TypeError(f"a profile is text, not {type(read).__name__}")
    return read


def served(environ: Mapping[str, str] = os.environ) -> SchedulerConfiguration:
    """The configuration of `gangline run` without a file: the profile named by `SCHEDULER_NAME`, or all of PACKAGED.

    If no profile of that name is installed, the profile gpu-scheduler serves the name. Pods that name no scheduler are
    left to kube-scheduler, so that two schedulers do not race for them, unless SCHEDULER_NAME says otherwise. Raises
    ConfigError.
    """
    texts, name = installed(), environ.get("SCHEDULER_NAME", "")
    if not name:
        return _named(texts, PACKAGED)
    for each in texts:
        if any(profile.scheduler_name == name for profile in config.load(texts[each], each).profiles):
            return config.load(texts[each], each)
    like = _named(texts, (LIKE,))
    (profile,) = like.profiles
    return msgspec.structs.replace(like, profiles=(dataclasses.replace(profile, scheduler_name=name),))


def _named(texts: Mapping[str, str], names: Sequence[str]) -> SchedulerConfiguration:
    missing = [name for name in names if name not in texts]
    if missing:
        raise ConfigError("", "", f"the profiles {', '.join(missing)} are not installed: give a file with --config")
    return _loaded(tuple((name, texts[name]) for name in names))


@lru_cache(maxsize=8)
def _loaded(texts: tuple[tuple[str, str], ...]) -> SchedulerConfiguration:
    """The configuration of installed profiles, by their names; it never changes, and to read it takes 2 ms."""
    return config.load_texts(dict(texts))


def text_of(name: str, texts: Mapping[str, str]) -> str:
    """The text of the profile that --profile names, of the installed ones. Raises UsageError."""
    if name not in texts:
        raise click.UsageError(f"--profile: {name}: not installed; there are {', '.join(sorted(texts))}")
    return texts[name]


def choose(files: Sequence[str], profile: str | None) -> SchedulerConfiguration:
    """The configuration in files, or a named profile, or all installed ones. Raises ConfigError and UsageError."""
    if files:
        return config.load_files([Path(file) for file in files])
    texts = installed()
    if profile is None:
        return _loaded(tuple(texts.items()))
    return _loaded(((profile, text_of(profile, texts)),))


@click.group("profiles")
def group() -> None:
    """List the profiles that can be chosen by name."""


@group.command("list", short_help="List all installed profiles.")
@options.OUTPUT
def list_(output: str) -> None:
    """List all installed profiles with their schedulerName, and whether `gangline run` serves them without a file."""
    rows: list[tuple[str, str, bool, list[str]]] = []
    for name, text in sorted(installed().items()):
        for profile in config.load(text, name).profiles:
            plugins = [plugin.name for plugin in profile.plugins.multi_point.enabled]
            rows.append((name, profile.scheduler_name, name in PACKAGED, plugins))
    if output == "json":
        fields = ("profile", "schedulerName", "served", "adds")
        told = [dict(zip(fields, row, strict=True)) for row in rows]
        click.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
        return
    shown = table("PROFILE", "SCHEDULERNAME", "SERVED WITHOUT A FILE", "PLUGINS BESIDE THE DEFAULT ONES")
    for name, scheduler_name, is_served, plugins in rows:
        shown.add_row(name, scheduler_name, "yes" if is_served else "no", ", ".join(plugins) or "-")
    print_whole(shown)
