"""DefaultBinder: writes node and annotations of a pod to the API server in one request."""

from __future__ import annotations

import asyncio
import math

from gangline import (
    LANDING,
    SUCCESS,
    Code,
    Conflict,
    Cycle,
    Handle,
    PodInfo,
    Status,
    TooManyRequests,
    Unavailable,
    failpoint,
    hookimpl,
    resources,
    unschedulable,
)

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""The first and the longest wait between two tries, in seconds; the wait doubles each time, and half of it is
random.
"""


class DefaultBinder:
    """Creates the Binding."""

    name = "DefaultBinder"

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    @hookimpl
    async def bind(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Bind the pod. Raises ApiError.

        Without an answer the pod may be bound or not, and its room must count as taken until that is known. So the
        plugin asks again until the API server answers. It stops if the node is deleted, or after `cycle.bind_by`: from
        then on it sends no binding, and only finds out what has become of the last one.
        """
        wait, asked_for, unsure, sent = FIRST_WAIT, 0.0, False, -math.inf
        clock = self._handle.clock
        while True:
            try:
                if self._handle.state.has_lost_node(pod.uid) and not (unsure and await self._is_bound(pod, node)):
                    return unschedulable(f"the node {node} that was chosen is no longer there")
                if clock.monotonic() > cycle.bind_by:
                    if unsure and await self._is_bound(pod, node):
                        return SUCCESS
                    if clock.monotonic() - sent >= LANDING:
                        return Status(Code.ERROR, ("the API server did not take the binding in time",))
                else:
                    sent = clock.monotonic()
                    return await self._try(cycle, pod, node, unsure)
            except (TooManyRequests, Unavailable) as error:
                unsure = unsure or isinstance(error, Unavailable)
                asked_for = error.retry_after or 0.0
            await asyncio.sleep(asked_for + wait * self._handle.random.uniform(0.5, 1.0))
            wait = min(2 * wait, LONGEST_WAIT)

    async def _try(self, cycle: Cycle, pod: PodInfo, node: str, unsure: bool) -> Status:
        """One try. After a try without an answer, a Conflict may come from this scheduler's own binding."""
        client = self._handle.client
        try:
            failpoint("bind.before-write")
            await client.bind(pod.namespace, pod.name, pod.uid, node, cycle.annotations)
            failpoint("bind.after-write")
        except Conflict:
            if not unsure:
                raise
            if not await self._is_bound(pod, node):
                raise
        return SUCCESS

    async def _is_bound(self, pod: PodInfo, node: str) -> bool:
        live = await self._handle.client.get(resources.PODS, pod.name, namespace=pod.namespace)
        return (live.metadata.uid, live.spec.node_name) == (pod.uid, node)
