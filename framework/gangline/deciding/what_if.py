"""Answers plugins' questions outside of a cycle: where pods would go, and what would help a group that waits.

Plugins that plan ahead (recovery, suspension, defragmentation) must not have a second idea of what fits where. So they
ask through their handle, and the answer comes from the same search that decides units, run to its end on the present
columns. Nothing is reserved or announced, and the pods have no nodes afterwards. If a plugin takes pods off in a
transaction and asks there, it learns what would fit without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from gangline.api.pod_group import GroupAttempt
from gangline.deciding.group_filling import to_the_end
from gangline.deciding.group_reading import read_group
from gangline.deciding.group_scheduling import GroupCycle
from gangline.deciding.scheduling import find_place
from gangline.profile.handle import Pending
from gangline.profile.runtime import Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.status import BoolColumn


class WhatIf(Pending):
    """Decides waiting units on trial, as the profiles of one configuration would; changes and announces nothing."""

    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        cache: Cache,
        nominations: Callable[[], Nominations],
        waiting: Callable[[str], Unit | None],
        monotonic: Callable[[], float],
    ) -> None:
        self._runtimes = runtimes
        self._cache = cache
        self._nominations = nominations
        self._waiting = waiting
        self._monotonic = monotonic

    def nominated(self) -> Nominations:
        """See `Pending`."""
        return self._nominations()

    def is_queued(self, key: str) -> bool:
        """See `Pending`; here the group may be incomplete."""
        return self._waiting(key) is not None

    def queued_members(self, key: str) -> Collection[PodInfo]:
        """See `Pending`."""
        unit = self._waiting(key)
        return unit.members if unit is not None else ()

    def find_places(self, profile: str, pods: Sequence[PodInfo], allowed: BoolColumn) -> Mapping[str, int] | None:
        """See `Handle.find_places`."""
        runtime, cache = self._runtimes[profile], self._cache
        key = runtime.group_key(pods[0])
        if not key:
            return find_place(pods[0], runtime, cache, self._nominations(), allowed)
        group, members = read_group(pods, runtime)
        if isinstance(group, str):
            return None
        unit = Unit(list(pods), added=0.0, group=key)
        return to_the_end(GroupCycle(unit, group, members, runtime, cache, self._nominations(), 0.0, allowed).fit())

    def attempt(self, profile: str, key: str) -> GroupAttempt | None:
        """See `Handle.attempt`."""
        runtime, unit = self._runtimes[profile], self._waiting(key)
        waiting = [pod for pod in self.queued_members(key) if pod.uid not in self._cache.pods]
        if unit is None or not waiting:
            return None
        group, members = read_group(waiting, runtime)
        if isinstance(group, str):
            return None
        nominations, now = self._nominations(), self._monotonic()
        return to_the_end(GroupCycle(unit, group, members, runtime, self._cache, nominations, now).begin())
