"""Which configuration a command works with: files, a profile by name, or every profile that is installed."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

from gangline import config
from gangline.config import SchedulerConfiguration
from gangline.errors import ConfigError

GROUP = "gangline.profiles"


def installed() -> dict[str, str]:
    """The text of each installed profile by its name."""
    found: dict[str, str] = {}
    for entry in entry_points(group=GROUP):
        module = entry.load()
        found |= {name: module.read(name) for name in module.names()}
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
