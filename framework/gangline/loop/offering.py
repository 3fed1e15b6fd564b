"""What the scheduler offers plugins beside the cluster: the queue, extenders and decisions on trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gangline.api.hints import ClusterEvent
from gangline.deciding.what_if import WhatIf
from gangline.extenders import Extenders
from gangline.loop.watching import Cluster
from gangline.profile.runtime import Runtime
from gangline.queueing.nominating import Nominations
from gangline.state.pods import PodInfo


class Offered(WhatIf):
    """What the scheduler offers the profiles of one configuration."""

    def __init__(
        self,
        runtimes: Mapping[str, Runtime],
        cluster: Cluster,
        nominations: Callable[[], Nominations],
        extenders: Extenders | None,
    ) -> None:
        super().__init__(runtimes, cluster.cache, nominations, cluster.queue.group, cluster.clock.monotonic)
        self._cluster = cluster
        self._extenders = extenders

    def is_queued(self, key: str) -> bool:
        """Whether a group is queued and has enough members to be tried."""
        unit = self._cluster.queue.group(key)
        runtime = self._runtimes.get(unit.scheduler_name) if unit is not None else None
        return unit is not None and runtime is not None and runtime.admit(unit.everybody()).is_success

    def expect(self, key: str, places: Iterable[tuple[PodInfo, str]]) -> None:
        """See `Handle.expect`."""
        self._cluster.queue.nominations.expect(key, places)

    def is_reviewed(self, pod: PodInfo) -> bool:
        """Whether extenders have a say in which pods are removed for this pod."""
        return self._extenders is not None and self._extenders.review_preemption_of(pod)

    def announce(self, event: ClusterEvent) -> None:
        """Move the units in the queue that the event may help."""
        self._cluster.happened(event.resource, event.action, None, None)
