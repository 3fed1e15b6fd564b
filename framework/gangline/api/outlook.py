"""What a plugin expects of the future, for people to see: room that is kept for groups, and when pods end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gangline.state.pods import PodInfo


@dataclass(frozen=True, slots=True)
class ExpectedStart:
    """Room that is kept for a waiting group. Times are seconds since the epoch."""

    key: str
    """The key of the group."""
    at: float
    """When the group is to start."""
    since: float
    """When room was first kept for it."""
    until: float
    """When the room is given up at the latest."""
    gpus: int
    """GPUs that are kept."""
    nodes: tuple[str, ...]
    """The nodes on which room is kept."""


class Outlook(Protocol):
    """What one plugin expects. Called about once a second while somebody looks at the page, so answer quickly."""

    def starts(self) -> Sequence[ExpectedStart]:
        """The groups for which room is kept now."""
        ...

    def end_of(self, pod: PodInfo) -> float:
        """Seconds since the epoch at which a pod that has started ends at the latest; infinite if that is unknown."""
        ...
