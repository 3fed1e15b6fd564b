"""What the plugin shows to people: the group for which room is kept, and when pods end."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gangline import ExpectedStart, Handle, PodInfo, custom_resources
from gangline_plugins.reservation.lifetimes import Lifetimes
from gangline_plugins.reservation.room import KeptRoom, Leaving


class Expected:
    """Implements `Outlook`."""

    def __init__(self, handle: Handle, lifetimes: Lifetimes, leaving: Leaving) -> None:
        self._handle = handle
        self._lifetimes = lifetimes
        self._leaving = leaving
        self._shown: tuple[KeptRoom, tuple[ExpectedStart, ...]] | None = None

    def starts(self) -> Sequence[ExpectedStart]:
        """The group for which room is kept; none without a reservation."""
        kept = self._leaving.kept
        if kept is None:
            return ()
        if self._shown is None or self._shown[0] is not kept:
            names = self._handle.nodes.names
            nodes = tuple(names[row] for row in kept.rows.tolist())
            gpus = kept.amount(custom_resources.GPU)
            self._shown = kept, (ExpectedStart(kept.key, kept.at, kept.since, kept.until, gpus, nodes),)
        return self._shown[1]

    def end_of(self, pod: PodInfo) -> float:
        """The end of a pod, by the runtime that the reserved group may believe; without a reservation, by the stated
        runtime.
        """
        kept = self._leaving.kept
        if not pod.start_time:
            return math.inf
        return self._lifetimes.end_of(pod, self._handle.clock.now(), kept.namespace if kept else pod.namespace)
