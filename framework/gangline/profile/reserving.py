"""Reserve and Permit for the members of a group: for all at once where every plugin can, else for one after the other.

The result is the same either way. Each plugin is first asked for a function that reserves for all members
(`reserve_all`, `permit_all`); asking changes nothing. The functions are called only if every plugin gives one. So if a
plugin might reject a member, the members come one after the other, and the first rejection counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gangline.api.cycle_state import Cycle
from gangline.failures import SLOW, Failures, cause_of
from gangline.profile.binding_points import by
from gangline.profile.implementations import Implementation
from gangline.state.pods import PodInfo
from gangline.status import SUCCESS, Code, Status

Step = tuple[Implementation, Callable[[], Any]]
"""A plugin, and the function by which it reserves or permits for all members."""


class Reserving:
    """The plugins of a profile at reserve, and then those at permit."""

    def __init__(self, impls: Iterable[Implementation], failures: Failures) -> None:
        self._impls = [(impl, impl.name, impl.quick) for impl in impls]
        self._failures = failures

    def plan(self, cycles: Sequence[Cycle], pods: Sequence[PodInfo], nodes: Sequence[str]) -> list[Step] | None:
        """What the plugins do to reserve and permit all of these pods; None if they have to be asked one by one.

        Nothing has changed yet. Raises PluginError.
        """
        kinds = {id(cycle.skipped): cycle.skipped for cycle in cycles}.values()
        steps: list[Step] = []
        for impl, name, _ in self._impls:
            are_skipped = [name in skipped for skipped in kinds]
            if all(are_skipped):
                continue
            if impl.at_once is None:
                return None
            if any(are_skipped):
                members = zip(cycles, pods, nodes, strict=True)
                answer = impl.at_once(*zip(*[each for each in members if name not in each[0].skipped], strict=True))
            else:
                answer = impl.at_once(cycles, pods, nodes)
            if answer is None:
                return None
            if callable(answer):
                steps.append((impl, answer))
        return steps

    def carry_out(self, steps: Iterable[Step]) -> None:
        """Call the functions that the plugins gave. Raises PluginError; the caller then releases all members."""
        for impl, step in steps:
            start = time.perf_counter()
            try:
                step()
            except BaseException as error:  # a plugin's bug fails its group, not the scheduler
                raise self._failures.raised(impl.name, impl.point, error) from cause_of(error)
            seconds = time.perf_counter() - start
            if seconds > SLOW:
                self._failures.slow(impl.name, impl.point, seconds)

    def one(self, cycle: Cycle, pod: PodInfo, node: str) -> tuple[Status, dict[str, float]]:
        """The verdict of reserve and then permit on one of many pods, without timing. Raises PluginError.

        Also returns, for each plugin that holds the pod at permit, the longest time in seconds.
        """
        holds: dict[str, float] = {}
        clock, skipped = time.perf_counter, cycle.skipped
        start = clock()
        for impl, name, quick in self._impls:
            if name in skipped:
                continue
            try:
                status: Status | None = quick(cycle, pod, node)
            except BaseException as error:  # a plugin's bug fails its group, not the scheduler
                raise self._failures.raised(name, impl.point, error) from cause_of(error)
            end = clock()
            if end - start > SLOW:
                self._failures.slow(name, impl.point, end - start)
            start = end
            if status is None:
                continue
            impl.check(status)
            if status.is_success:
                continue
            if status.code is not Code.WAIT:
                return by(status, name), {}
            holds[name] = status.timeout
        return SUCCESS, holds
