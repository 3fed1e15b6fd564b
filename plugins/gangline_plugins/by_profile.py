"""Values that plugins say for their profiles, for plugins of any profile to read.

A value counts until the configuration ends whose plugin has said it.

While a configuration is built, the present one is still in use, and it stays in use if the new one is refused. So each
profile has a value for each of its configurations.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from gangline import State

T = TypeVar("T")


class ByProfile(Generic[T]):
    """The values of profiles, by the name of the profile."""

    def __init__(self, otherwise: T) -> None:
        """`otherwise` is the value of a profile for which no plugin has said one."""
        self._otherwise = otherwise
        self._said: dict[str, list[T]] = {}
        """One value for each configuration; the last one is in use, or is about to be."""

    def add(self, profile: str, value: T, state: State) -> None:
        """Say a value for a profile, until the configuration of the plugin that calls this ends."""
        said = self._said.setdefault(profile, [])
        said.append(value)
        state.at_end(lambda: said.remove(value))

    def has(self, profile: str) -> bool:
        """Whether a plugin has said a value for the profile."""
        return bool(self._said.get(profile))

    def of(self, profile: str) -> T:
        """The value of a profile."""
        said = self._said.get(profile)
        return said[-1] if said else self._otherwise
