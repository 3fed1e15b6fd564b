"""What plugins may ask outside of a cycle: where pods would go, and what an attempt on a waiting group looks like."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gangline.api.pod_group import GroupAttempt
from gangline.deciding.group_filling import to_the_end
from gangline.deciding.group_reading import read_group
from gangline.deciding.group_scheduling import GroupCycle
from gangline.deciding.scheduling import choose, find_feasible
from gangline.profile.runtime import Runtime
from gangline.queueing.nominating import Nominations
from gangline.queueing.units import Unit
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.status import BoolColumn


def offer_what_if(
    runtime: Runtime,
    cache: Cache,
    nominations: Callable[[], Nominations],
    waiting: Callable[[str], Unit | None],
    monotonic: Callable[[], float],
) -> None:
    """Let the plugins of a profile ask outside of a cycle where pods would go, and what would help a waiting group.

    See `Handle.find_places` and `Handle.attempt`.
    """

    def find(pods: Sequence[PodInfo], allowed: BoolColumn) -> Mapping[str, int] | None:
        key = runtime.group_key(pods[0])
        if not key:
            return _find_place(pods[0], runtime, cache, nominations(), allowed)
        group, members = read_group(pods, runtime)
        if isinstance(group, str):
            return None
        unit = Unit(list(pods), added=0.0, group=key)
        return to_the_end(GroupCycle(unit, group, members, runtime, cache, nominations(), 0.0, allowed).fit())

    def attempt(key: str) -> GroupAttempt | None:
        unit = waiting(key)
        group, members = read_group(unit.members, runtime) if unit is not None else ("", {})
        if unit is None or isinstance(group, str):
            return None
        return to_the_end(GroupCycle(unit, group, members, runtime, cache, nominations(), monotonic()).begin())

    runtime.handle.finder, runtime.handle.attempts = find, attempt


def _find_place(
    pod: PodInfo, runtime: Runtime, cache: Cache, nominations: Nominations, allowed: BoolColumn
) -> Mapping[str, int] | None:
    filtered = find_feasible(pod, runtime, cache, nominations)
    filtered.feasible = filtered.feasible & allowed
    if not filtered.feasible.any():
        return None
    return {pod.uid: choose(pod, runtime, cache, filtered)}
