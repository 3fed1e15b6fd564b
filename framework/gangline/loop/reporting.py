"""Writes the events and conditions of the recorder: bindings come first.

Conditions and events are written when no binding is pending, or when they have waited for long. What the API server
puts off (429) is written again after the pause that it asks for, and meanwhile nothing else is written. Events that are
put off come last: an API server may limit the events of one namespace or object. Another failure loses an event, and is
logged.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from weakref import WeakSet

import msgspec

from gangline.api.plugin import Clock
from gangline.clock import rfc3339
from gangline.errors import ApiError, Conflict, GanglineError, NotFound, TooManyRequests, Unavailable
from gangline.kube.interface import Client, PatchKind
from gangline.kube.resources import (
    EVENTS,
    POD_GROUPS_V1ALPHA2,
    POD_GROUPS_V1BETA1,
    PODS,
    SCHEDULER_PLUGINS_POD_GROUPS,
)
from gangline.model import Event
from gangline.profile.recording import Condition, EventRecorder, GroupCondition, Repeated
from gangline.state.pods import PodInfo
from gangline.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

CONCURRENCY = 8
AT_ONCE = 8
"""New events that one writer sends at once, at most. A binding that comes meanwhile has to share the API server with
them.
"""
PATIENCE = 5.0
"""Seconds that events and conditions wait for bindings at most; then one writer works beside the bindings."""
PAUSE = 1.0
"""Seconds to wait after the API server could not take a write."""
SERIES_LOOK = 30.0
"""Seconds between two looks for series of events that are to be written again."""
IDLE = 0.05
"""Seconds between two checks whether bindings leave room for what waits."""
SELDOM = 1.0
"""Seconds between two checks of a writer that nobody wakes: the first writer checks, and wakes the others."""


class Reporter:
    """Writes events and conditions in the background."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        clock: Clock,
        metrics: Metrics,
        pending_bindings: Callable[[], int],
        still_waiting: Callable[[str], PodInfo | None],
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._metrics = metrics
        self._pending_bindings = pending_bindings
        self._still_waiting = still_waiting
        self._dropped = 0
        self._waiting_since: float | None = None
        self._failures = 0
        self._put_off_until = -math.inf
        """Until when the API server wants no more writes, on the monotonic clock."""
        self._written_from: WeakSet[PodInfo] = WeakSet()
        """The records of pods to which a condition may have been written since: they do not show it. The watch replaces
        them.
        """
        self._room = asyncio.Event()
        """Bindings have left room for writing since a writer last found none."""
        self._recorded = asyncio.Event()
        """Something may wait to be written."""
        self._recorded.set()
        recorder.wakers.append(self._recorded.set)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for number in range(CONCURRENCY):
                group.create_task(self._work(first=number == 0))
            group.create_task(self._go_on_with_series())

    async def _go_on_with_series(self) -> None:
        while True:
            await asyncio.sleep(SERIES_LOOK)
            self._recorder.go_on_with_series()

    async def flush(self) -> None:
        """Write everything that waits now."""
        while await self.write_one():
            pass

    async def _work(self, first: bool) -> None:
        while True:
            await self._recorded.wait()
            has_failed = False
            if may_write := self._may_write(first):
                try:
                    if await self.write_one():
                        continue
                except Exception as error:  # a report that fails must not end the process
                    self._metrics.fault("reporting", error)
                    has_failed = True
            if self._recorder.waiting and (has_failed or not may_write):
                await self._rest(first)
            else:  # what waits now, waits for another writer, who wakes this one
                self._waiting_since = None
                self._recorded.clear()

    async def _rest(self, first: bool) -> None:
        """Wait until bindings may have left room."""
        if first:
            await asyncio.sleep(IDLE)
            return
        self._room.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(SELDOM):
                await self._room.wait()

    def _may_write(self, first: bool) -> bool:
        """Whether bindings leave room for writing; the first writer may also write after a long wait.

        Nobody writes while the API server has asked for a pause.
        """
        if self._clock.monotonic() < self._put_off_until:
            return False
        if self._pending_bindings() == 0:
            self._waiting_since = None
            self._room.set()
            return True
        if not self._recorder.waiting or not first:
            return False
        now = self._clock.monotonic()
        if self._waiting_since is None:
            self._waiting_since = now
        return now - self._waiting_since > PATIENCE

    async def write_one(self) -> bool:
        """Write the next condition or event; False when there is none."""
        self._count_dropped()
        condition = self._recorder.next_condition()
        if condition is not None:
            await self._attempt(
                f"condition of pod {condition.namespace}/{condition.name}", self._write_condition(condition)
            )
            return True
        of_group = self._recorder.next_group_condition()
        if of_group is not None:
            await self._attempt(f"condition of pod group {of_group.object.name}", self._write_group_condition(of_group))
            return True
        event = self._recorder.next_event()
        if event is None:
            return False
        if isinstance(event, Repeated):
            error = await self._attempt(f"event {event.event.metadata.name}", self._write_again(event.event))
            await self._put_off([event], [error])
        else:
            await self._write_new(event)
        return True

    async def _put_off(self, events: Sequence[Event | Repeated], errors: Sequence[GanglineError | None]) -> None:
        """Events that the API server had no time for are written again, after the time that it asks for; at once if it
        had time for others.
        """
        refused = [error for error in errors if isinstance(error, TooManyRequests)]
        for event, error in zip(events, errors, strict=True):
            if isinstance(error, TooManyRequests):
                self._recorder.put_off(event)
        if len(refused) == len(events):
            await asyncio.sleep(max(map(self._asked_for, refused)))

    def _pause_after(self, error: ApiError) -> float:
        """The pause in seconds before a condition is tried again."""
        if isinstance(error, TooManyRequests):
            return self._asked_for(error)
        return IDLE if isinstance(error, Conflict) else PAUSE

    def _asked_for(self, error: TooManyRequests) -> float:
        """The pause in seconds that the API server asks for; all writers keep it."""
        pause = PAUSE if error.retry_after is None else max(error.retry_after, IDLE)
        self._put_off_until = max(self._put_off_until, self._clock.monotonic() + pause)
        return pause

    async def _write_new(self, event: Event) -> None:
        """Create an event, and with it those that wait next: requests that are sent at once cost less."""
        events = [event, *self._recorder.next_new_events(AT_ONCE - 1)]
        if len(events) == 1:
            new = self._client.create(EVENTS, event, namespace=event.metadata.namespace)
            errors: Sequence[GanglineError | None] = [await self._attempt(f"event {event.metadata.name}", new)]
        else:
            errors = await self._client.create_all(EVENTS, events)
            for each, error in zip(events, errors, strict=True):
                self._note(f"event {each.metadata.name}", error)
        await self._put_off(events, errors)

    async def _write_again(self, event: Event) -> None:
        """Count an event in its series; an event that the API server does not have is created."""
        name, namespace = event.metadata.name, event.metadata.namespace
        patch = {"series": msgspec.to_builtins(event.series)}
        try:
            await self._client.patch(EVENTS, name, patch, namespace=namespace, kind=PatchKind.MERGE)
        except NotFound:
            await self._client.create(EVENTS, event, namespace=namespace)

    async def _write_condition(self, condition: Condition) -> None:
        """Write a condition if its pod still waits and does not have it, with the pod's newest record; a failed write
        is tried again.
        """
        pod = self._still_waiting(condition.uid)
        if pod is None or (self._is_seen(pod) and _has(pod, condition)):
            return
        metadata = {"uid": condition.uid, "resourceVersion": pod.resource_version}
        patch = {"metadata": metadata, "status": _status_of(condition, pod, self._clock.now())}
        self._written_from.add(pod)  # from now on: a write whose answer is late or lost may have succeeded
        try:
            await self._client.patch(
                PODS,
                condition.name,
                patch,
                namespace=condition.namespace,
                subresource="status",
                kind=PatchKind.STRATEGIC,
            )
        except (Conflict, Unavailable, TooManyRequests) as error:
            self._recorder.restore(condition)
            await asyncio.sleep(self._pause_after(error))
            if not isinstance(error, Conflict):
                raise

    def _is_seen(self, pod: PodInfo) -> bool:
        """Whether the record of a pod shows the last condition that was sent, or a later one."""
        return pod not in self._written_from

    async def _write_group_condition(self, condition: GroupCondition) -> None:
        """Write a condition of a group; a failed write is tried again."""
        again = False
        try:
            await self._patch_group(condition)
        except (Conflict, Unavailable, TooManyRequests) as error:
            again = True
            await asyncio.sleep(self._pause_after(error))
            if not isinstance(error, Conflict):
                raise
        finally:
            self._recorder.group_written(condition, again)

    async def _patch_group(self, condition: GroupCondition) -> None:
        """Write to a PodGroup of Kubernetes or scheduler-plugins; other groups have controllers that write to them."""
        regarding = condition.object
        resource = _GROUPS.get((regarding.api_version, regarding.kind))
        if resource is None:
            return
        status = _status_of_group(condition, regarding.api_version, self._clock.now())
        kind = PatchKind.STRATEGIC if resource.group == POD_GROUPS_V1BETA1.group else PatchKind.MERGE
        await self._client.patch(
            resource,
            regarding.name,
            {"status": status},
            namespace=regarding.namespace,
            subresource="status",
            kind=kind,
        )

    async def _attempt(self, what: str, work: Awaitable[object]) -> GanglineError | None:
        """Write, best effort: a failure is logged as a warning, further failures in a row for debugging only.

        Returns the failure.
        """
        failure: GanglineError | None = None
        try:
            await work
        except GanglineError as error:
            failure = error
        self._note(what, failure)
        return failure

    def _note(self, what: str, error: GanglineError | None) -> None:
        """A write has ended, with an error or without; that an object is gone, or an event there, is no failure."""
        if error is None:
            self._failures = 0
        elif not isinstance(error, NotFound | Conflict):
            self._failures += 1
            level = logging.WARNING if self._failures == 1 else logging.DEBUG
            log.log(level, "could not write %s: %s", what, error)

    def _count_dropped(self) -> None:
        dropped = self._recorder.dropped
        if dropped > self._dropped:
            self._metrics.events_dropped.inc(dropped - self._dropped)
            self._dropped = dropped


_GROUPS = {
    (resource.api_version, resource.kind): resource
    for resource in (POD_GROUPS_V1BETA1, POD_GROUPS_V1ALPHA2, SCHEDULER_PLUGINS_POD_GROUPS)
}
_CONDITION_TYPES = {
    POD_GROUPS_V1ALPHA2.api_version: "PodGroupScheduled",
    POD_GROUPS_V1BETA1.api_version: "PodGroupInitiallyScheduled",
}


def _status_of_group(condition: GroupCondition, api_version: str, now: float) -> dict[str, object]:
    type_ = _CONDITION_TYPES.get(api_version)
    if type_ is None:
        return {"phase": "Scheduled" if condition.scheduled else "Pending"}
    return {
        "conditions": [
            {
                "type": type_,
                "status": "True" if condition.scheduled else "False",
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": rfc3339(now),
            }
        ]
    }


def _has(pod: PodInfo, condition: Condition) -> bool:
    """Whether the status of a pod says this already. A nomination that is taken back may be newer than the record."""
    known, nominated = pod.conditions.get("PodScheduled"), condition.nominated_node_name
    return (
        known is not None
        and (known.status, known.reason, known.message) == ("False", condition.reason, condition.message)
        and (nominated is None or nominated == pod.nominated_in_status != "")
    )


def _status_of(condition: Condition, pod: PodInfo, now: float) -> dict[str, object]:
    """The patch of a status. The time of the transition stays as it is where the pod was not scheduled before."""
    known = pod.conditions.get("PodScheduled")
    scheduled: dict[str, object] = {
        "type": "PodScheduled",
        "status": "False",
        "reason": condition.reason,
        "message": condition.message,
        "lastProbeTime": None,
    }
    if known is None or known.status != "False" or known.last_transition_time is None:
        scheduled["lastTransitionTime"] = rfc3339(now)
    if condition.nominated_node_name is None:
        return {"conditions": [scheduled]}
    return {"conditions": [scheduled], "nominatedNodeName": condition.nominated_node_name or None}
