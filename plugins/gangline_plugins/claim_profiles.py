"""The profiles that give devices to ResourceClaims, so that other plugins can tell whether claims get devices there."""

from __future__ import annotations

from collections import Counter

from gangline import State


class ClaimProfiles:
    """The profiles that have DynamicResources."""

    def __init__(self) -> None:
        self._profiles: Counter[str] = Counter()

    def add(self, profile: str, state: State) -> None:
        """Add a profile, until the plugin's configuration ends."""
        self._profiles[profile] += 1
        state.at_end(lambda: self._profiles.subtract((profile,)))

    def has(self, profile: str) -> bool:
        """Whether ResourceClaims of pods of the profile get devices."""
        return self._profiles[profile] > 0
