"""Members of gangs that this scheduler does not place with their gangs, because they name another schedulerName."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from gangline.api.pod_group import Membership
from gangline.profile.runtime import Runtime, first_grouping
from gangline.queueing.queue import SchedulingQueue
from gangline.state.pods import PodInfo

MOST_PODS = 8192
"""Pods that are looked at, at most."""
_NAMED = 3
"""Members that a message names, at most."""


class Elsewhere:
    """Members without a node by the key of their gang: of other schedulers, and of profiles that know no gangs."""

    def __init__(
        self, queue: SchedulingQueue, others: Callable[[], Iterable[PodInfo]], runtimes: Mapping[str, Runtime]
    ) -> None:
        self._members: dict[str, list[PodInfo]] = {}
        gangs = first_grouping(runtimes.values())
        if gangs is None:
            return
        plain = {name for name, each in runtimes.items() if not each.handle.groups_pods}
        single = (unit.pod for unit in queue if unit.scheduler_name in plain) if plain else ()
        for pod in itertools.islice(itertools.chain(others(), single), MOST_PODS):
            membership = gangs.handle.group_of(pod)
            if isinstance(membership, Membership):
                self._members.setdefault(membership.group.key, []).append(pod)

    def said(self, key: str) -> str:
        """Which members of a gang name another schedulerName, for the end of a message; "" if none does."""
        members = self._members.get(key, ())
        named = [f"{pod.name} (schedulerName {pod.scheduler_name})" for pod in members[:_NAMED]]
        more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
        return f"; not decided with them: {', '.join(named)}{more}" if members else ""
