"""Asks the API server about pods that were bound, and of which the watch has told nothing for a while.

A connection may be dead for a minute before that shows. Until the API server has answered where such a pod is, the
pod's room counts as taken: a node must not get more pods than it can hold because a watch is silent. After the answer
the watch goes on over a new connection.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable

from gangline.api.hints import Action
from gangline.errors import GanglineError, NotFound
from gangline.kube.interface import Client
from gangline.kube.resources import PODS
from gangline.loop.watching import Cluster, PodHandler
from gangline.model import Pod
from gangline.state.cache import ASSUMED_LIFETIME
from gangline.state.pods import PodInfo
from gangline.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds between two looks."""
AT_ONCE = 32
"""Pods that are asked about in one look."""


class Confirmations:
    """Asks about overdue pods. `watch_anew` lets the watch of pods go on over a new connection."""

    def __init__(
        self, cluster: Cluster, pods: PodHandler, client: Client, metrics: Metrics, watch_anew: Callable[[], None]
    ) -> None:
        self._cluster = cluster
        self._cache = cluster.cache
        self._pods = pods
        self._client = client
        self._metrics = metrics
        self._watch_anew = watch_anew
        self._renewed = -math.inf

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(PAUSE)
            try:
                await self.look()
            except Exception as error:
                self._metrics.fault("confirmations", error)

    async def look(self) -> None:
        """Ask about the pods that the watch should have confirmed by now, at most AT_ONCE of them."""
        overdue = self._cache.overdue(self._cluster.clock.monotonic())[:AT_ONCE]
        await asyncio.gather(*map(self._confirm, overdue))

    async def _confirm(self, pod: PodInfo) -> None:
        try:
            live = await self._live(pod)
        except GanglineError as error:
            log.warning("pod %s was bound, but neither watch nor API server confirms it: %s", pod.key, error)
            self._wait_on(pod)
            return
        if self._cache.pods.get(pod.uid) is pod and self._cache.is_assumed(pod.uid):  # the watch has told nothing yet
            self._conclude(pod, live)
            self._renew()

    async def _live(self, pod: PodInfo) -> Pod | None:
        """The pod as the API server has it; None if it is gone."""
        try:
            live = await self._client.get(PODS, pod.name, namespace=pod.namespace)
        except NotFound:
            return None
        return live if live.metadata.uid == pod.uid else None

    def _conclude(self, pod: PodInfo, live: Pod | None) -> None:
        if live is not None and live.spec.node_name == pod.node_name and not self._cache.record(live).is_terminal:
            log.warning("pod %s is bound, but the watch has not told of that in time", pod.key)
            self._wait_on(pod)
            return
        log.warning("pod %s was bound, but the API server has it elsewhere, waiting or not at all", pod.key)
        self._cache.forget(pod)
        self._cluster.happened("pods", Action.DELETE, pod, None)
        if live is not None:
            self._pods.upsert(live)

    def _wait_on(self, pod: PodInfo) -> None:
        """The room stays taken, and some time later the API server is asked again."""
        self._cache.binding_ended(pod, self._cluster.clock.monotonic())

    def _renew(self) -> None:
        now = self._cluster.clock.monotonic()
        if now - self._renewed >= ASSUMED_LIFETIME:
            self._renewed = now
            self._watch_anew()
