"""The profiles that suspend workloads, for whoever takes pods off their nodes.

A workload is suspended by the profile of its own pods, which resumes it later. So the pods of another scheduler, or of
a profile without the plugin Suspension, are always evicted one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from gangline import PodInfo

Mark = Callable[[PodInfo], Awaitable[object]]
"""Writes on a pod that it is going to be removed, and why."""


class TakesOff(Protocol):
    """A profile that suspends workloads."""

    async def take_off(self, pods: Sequence[PodInfo], why: str, mark: Mark, is_restart: bool) -> list[PodInfo]:
        """See `Suspenders.take_off`, for pods of the profile."""
        ...


class Suspenders:
    """All profiles that suspend workloads; shared by all plugins."""

    def __init__(self) -> None:
        self._of: defaultdict[str, list[TakesOff]] = defaultdict(list)

    def add(self, profile: str, suspender: TakesOff) -> None:
        """From now on, until `remove`, the suspender suspends the workloads of the profile."""
        self._of[profile].append(suspender)

    def remove(self, profile: str, suspender: TakesOff) -> None:
        """The suspender's configuration has ended, so it suspends no workloads any more."""
        self._of[profile].remove(suspender)

    @property
    def profiles(self) -> list[str]:
        """The profiles that suspend workloads, in order."""
        return sorted(profile for profile, suspenders in self._of.items() if suspenders)

    async def take_off(self, pods: Sequence[PodInfo], why: str, mark: Mark, is_restart: bool = False) -> list[PodInfo]:
        """Suspend the workloads all of whose pods are among these; returns the pods that are left to be removed.

        With `is_restart` the workloads are resumed as soon as their pods are going. Raises ApiError if a pod cannot be
        marked; what goes wrong with a workload only leaves its pods over.
        """
        gone: set[str] = set()
        for profile in sorted({pod.scheduler_name for pod in pods}):
            own = [pod for pod in pods if pod.scheduler_name == profile]
            if self._of.get(profile):
                left = {pod.uid for pod in await self._of[profile][-1].take_off(own, why, mark, is_restart)}
                gone.update(pod.uid for pod in own if pod.uid not in left)
        return [pod for pod in pods if pod.uid not in gone]
