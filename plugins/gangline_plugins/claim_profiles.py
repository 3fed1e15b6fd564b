"""The profiles that give devices to ResourceClaims, so that other plugins can tell whether claims get devices there."""

from __future__ import annotations

from gangline_plugins.by_profile import ByProfile


class ClaimProfiles(ByProfile[bool]):
    """The profiles that have DynamicResources: ResourceClaims of their pods get devices."""

    def __init__(self) -> None:
        super().__init__(False)
