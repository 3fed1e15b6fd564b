"""Which configuration a command works with: files, a profile by name, or every profile that is installed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from gangline import config
from gangline.config import SchedulerConfiguration
from gangline.errors import ConfigError

log = logging.getLogger(__name__)

GROUP = "gangline.profiles"


def installed() -> dict[str, str]:
    """The text of each installed profile by its name; a distribution whose profiles cannot be read is left out."""
    found: dict[str, str] = {}
    for entry in entry_points(group=GROUP):
        try:
            module = entry.load()
            found |= {name: module.read(name) for name in module.names()}
        except Exception as error:  # somebody else's module: it must not stop who does not use it
            origin = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.name
            log.warning("the profiles of %s are left out: %s: %r", origin, entry.value, error)
    return found


def choose(files: Sequence[str], profile: str | None) -> SchedulerConfiguration:
    """The configuration in files, or a named profile, or all installed ones. Raises ConfigError."""
    if files:
        return config.load_files([Path(file) for file in files])
    texts = installed()
    if profile is None:
        return config.load_texts(texts)
    if profile not in texts:
        raise ConfigError("--profile", profile, f"not installed; there are {', '.join(sorted(texts))}")
    return config.load(texts[profile], profile)
