"""The plugin: remembers gangs without a place, and has requests made, followed and deleted for them.

1. A gang has no place, and nobody makes room for it. After `delaySeconds` a ProvisioningRequest asks for the room of
   all its waiting pods, and the pods say which request that is. The gangs of the highest priority come first, and a
   bounded number of requests waits for the autoscaler.
2. When the room is provisioned, the gang is tried at once.
3. When a request fails, or the room expires or is revoked before the gang has its place, the gang gets an event, and
   another request after a time that doubles.
4. When the gang has its place, by whatever means, or is gone, its requests are deleted.

All that has to outlast the process is in the requests: their names follow from the gang, and they say for which gang
they are, the number of their attempt, and since when they have failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gangline import (
    Action,
    EventHint,
    GanglineError,
    GroupAttempt,
    Handle,
    NotFound,
    PodGroup,
    PodInfo,
    Progress,
    Status,
    custom_resources,
    hookimpl,
    model,
    on,
    resources,
    unschedulable,
)
from gangline_plugins.memberships import group_of, key_of
from gangline_plugins.provisioning.arguments import ProvisioningArgs
from gangline_plugins.provisioning.asking import fault_of
from gangline_plugins.provisioning.book import GangBook, LackingGang, namespace_of
from gangline_plugins.provisioning.carrying_out import Asking
from gangline_plugins.provisioning.conditions import RequestPhase, RequestState, state_of
from gangline_plugins.provisioning.planning import GangView, ProvisioningStep, backoff, next_step
from gangline_plugins.provisioning.telling import ProvisioningNotices

log = logging.getLogger(__name__)
LOOK = 5.0
"""Seconds between two looks while there are gangs or requests."""
GRACE = 30.0
"""Seconds for which a gang may be gone or incomplete before its requests are deleted: its pods may be created anew."""
AGAIN = 30.0
"""Seconds after which a request is tried again that could not be made."""
NOT_SERVED = "the API server does not serve ProvisioningRequests (autoscaling.x-k8s.io/v1)"


@dataclass(frozen=True, slots=True)
class DueStep:
    """What is due for the gang with this key."""

    key: str
    step: ProvisioningStep
    gang: LackingGang | None


class Provisioning:
    """Asks cluster-autoscaler for the room of whole gangs."""

    name = "Provisioning"
    args_type = ProvisioningArgs
    watches = (
        resources.Selection(
            resources.PROVISIONING_REQUESTS, label_selector=f"{custom_resources.PROVISIONING}=true", is_needed=False
        ),
    )

    def __init__(self, args: ProvisioningArgs, handle: Handle) -> None:
        self._args = args
        self._handle = handle
        self._book = GangBook(handle)
        self._asking = Asking(handle, args)
        self._notices = ProvisioningNotices(handle)
        self._absent: dict[str, float] = {}
        """Since when each gang is gone, incomplete or running, by the key of the gang."""
        self._phases: dict[str, tuple[RequestPhase, float]] = {}
        """The phase of each request, by UID, and when it was first seen, in seconds since the epoch."""
        self._complete: set[str] = set()
        """The UIDs of requests whose templates were made."""
        self._not_before: dict[str, float] = {}
        """When to try again after a failure, by the key of the gang."""
        self._refused: dict[str, str] = {}
        """The reported reason why no request can be made, by the key of the gang."""
        handle.run(self._work)

    # Hooks

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """The request for the pod's gang is provisioned."""
        return (on(resources.PROVISIONING_REQUESTS.key, Action.ADD | Action.UPDATE_OTHER, self._is_provisioned_for),)

    def _is_provisioned_for(
        self, pod: PodInfo, old: model.ProvisioningRequest | None, new: model.ProvisioningRequest | None
    ) -> bool:
        key = key_of(self._handle, pod)
        if new is None or not key or new.metadata.namespace != pod.namespace:
            return False
        if (new.metadata.annotations or {}).get(custom_resources.PROVISIONING_GANG) != key:
            return False
        before = state_of(old).phase if old is not None else None
        return before is not RequestPhase.PROVISIONED and state_of(new).phase is RequestPhase.PROVISIONED

    @hookimpl
    def post_reject(self, pod: PodInfo) -> bool:
        """Whether a request may help the pod."""
        return bool(key_of(self._handle, pod))

    @hookimpl
    def pod_group_post_filter(self, attempt: GroupAttempt) -> Status | None:
        """Remember that the gang has no place, and say what has become of its request."""
        if not attempt.needed:
            return None
        now = self._handle.clock.monotonic()
        gang = self._book.lacks(attempt, now)
        states = [state_of(each) for each in self._book.requests(attempt.group.key)]
        newest = max(states, key=lambda each: each.attempt, default=None)
        if newest is not None:
            return unschedulable(f"ProvisioningRequest {newest.name} is {newest.phase}")
        left = gang.since + self._args.delay_seconds - now
        return unschedulable(f"a ProvisioningRequest is made for it in {max(0.0, left):.0f} s") if left > 0 else None

    @hookimpl
    async def post_bind(self, pod: PodInfo) -> None:
        """The gang of the pod may not need its request any more."""
        if self._book.gangs() and key_of(self._handle, pod) in self._book.gangs():
            self._book.news.set()

    # In the background

    async def _work(self) -> None:
        """Look after the requests until cancelled."""
        while True:
            self._book.news.clear()
            pause = await self._round()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._book.news.wait()

    async def _round(self) -> float | None:
        """Do what is due; returns after how many seconds to look again, None if nothing is left to look after."""
        self._book.drop_unseen(self._handle.clock.monotonic())
        due = [self._due(key) for key in self._book.gangs()]
        self._forget(due)
        flying = [each for each in due if each.step.current is not None and each.step.current.phase.is_in_flight]
        self._notices.show(len(flying))
        taken = Counter(namespace_of(each.key) for each in flying)
        for each in sorted(due, key=_rank):
            try:
                await self._carry_out(each, taken)
            except GanglineError as error:
                self._failed(each, error)
        pauses = [each.step.after for each in due if each.step.after is not None]
        return min([LOOK, *pauses]) if due else None

    def _due(self, key: str) -> DueStep:
        now, gang = self._handle.clock.monotonic(), self._book.lacking.get(key)
        states = [state_of(each) for each in self._book.requests(key)]
        is_served = self._is_served(key, gang, now)
        lacks = gang is not None and self._handle.is_queued(key) and not self._is_helped(key)
        view = GangView(is_served, gang.since if gang and lacks else None, gang.base if gang else "", states)
        over_for = {each.uid: self._seen(each) for each in states}
        newest = max(states, key=lambda each: each.attempt, default=None)
        step = next_step(view, over_for[newest.uid] if newest else 0.0, now, self._args)
        if is_served:
            self._book.forget(key)
        return DueStep(key, step, gang)

    def _is_served(self, key: str, gang: LackingGang | None, now: float) -> bool:
        """Whether the gang has its place, or has been gone for a while."""
        queued, placed = self._handle.queued_members(key), self._handle.members(key)
        group = gang.group if gang is not None else self._group_of((*queued, *placed))
        runs = group is not None and Progress.of(group, len(placed)).runs
        if runs and not queued:
            return True
        if not runs and self._handle.is_queued(key):
            self._absent.pop(key, None)
            return False
        return now - self._absent.setdefault(key, now) >= GRACE

    def _group_of(self, pods: Sequence[PodInfo]) -> PodGroup | None:
        return group_of(self._handle, pods[0]) if pods else None

    def _is_helped(self, key: str) -> bool:
        """Whether room is being made for members of the gang already."""
        return any(pod.nominated_node_name for pod in self._handle.queued_members(key))

    def _seen(self, state: RequestState) -> float:
        """For how many seconds a request has been in its present phase; reports a change of the phase."""
        now = self._handle.clock.now()
        phase, first = self._phases.get(state.uid, (None, now))
        if phase is not state.phase:
            first = now
            self._phases[state.uid] = state.phase, first
            self._report(state)
        return now - min(first, state.since or first)

    def _report(self, state: RequestState) -> None:
        request = self._handle.state.store(resources.PROVISIONING_REQUESTS).get(state.name, state.namespace)
        key = (request.metadata.annotations or {}).get(custom_resources.PROVISIONING_GANG, "") if request else ""
        pods = tuple(self._handle.queued_members(key))
        group = self._group_of(pods)
        if group is not None:
            retry = backoff(state.attempt, self._args) if state.phase.is_over else None
            self._notices.became(group, pods, state, retry)

    def _forget(self, due: Sequence[DueStep]) -> None:
        """Drop what is remembered of gangs and requests that are no more."""
        keys = {each.key for each in due}
        uids = {each.metadata.uid for key in keys for each in self._book.requests(key)}
        for by_gang in (self._absent, self._not_before, self._refused):
            for key in by_gang.keys() - keys:
                del by_gang[key]
        for uid in self._phases.keys() - uids:
            del self._phases[uid]
        self._complete &= uids

    async def _carry_out(self, due: DueStep, taken: Counter[str]) -> None:
        """Do what is due for one gang; `taken` counts by namespace the requests that wait. Raises GanglineError."""
        step, gang, namespace = due.step, due.gang, namespace_of(due.key)
        if self._handle.clock.monotonic() < self._not_before.get(due.key, 0.0):
            return
        if step.attempt and gang is not None and self._may_ask(due, taken):
            made = await self._asking.ask(gang.group, gang.kinds, step.attempt)
            taken[namespace] += 1
            self._complete.add(made.metadata.uid)
            self._book.made(made, self._handle.clock.monotonic())
            self._notices.asked(gang.group, gang.pods, made.metadata.name, len(gang.pods))
        if not step.attempt or gang is None or self._book_has(due.key, f"{gang.base}-{step.attempt}"):
            for each in step.remove:
                await self._asking.remove(each)
        if step.current is not None and not step.current.phase.is_over:
            await self._look_after(due.key, step.current, gang)

    def _book_has(self, key: str, name: str) -> bool:
        return any(each.metadata.name == name for each in self._book.requests(key))

    async def _look_after(self, key: str, current: RequestState, gang: LackingGang | None) -> None:
        """Make templates that are missing, and tell the pods of the request."""
        request = next((each for each in self._book.requests(key) if each.metadata.uid == current.uid), None)
        if request is None:
            return
        if gang is not None and current.phase.is_in_flight and current.uid not in self._complete:
            await self._asking.complete(request, gang.kinds)
            self._complete.add(current.uid)
        pods = self._handle.queued_members(key)
        await self._asking.tell(pods, current.name, request.spec.provisioning_class_name)

    def _may_ask(self, due: DueStep, taken: Mapping[str, int]) -> bool:
        """Whether a request for the gang can be made now; tells why none ever can."""
        gang, args = due.gang, self._args
        if gang is None:
            return False
        why = fault_of(gang.kinds)
        if why:
            self._refuse(due.key, gang, why)
            return False
        is_free = sum(taken.values()) < args.max_in_flight
        return is_free and taken.get(namespace_of(due.key), 0) < args.max_in_flight_per_namespace

    def _failed(self, due: DueStep, error: GanglineError) -> None:
        """A write has failed: tell why, and try again later."""
        self._not_before[due.key] = self._handle.clock.monotonic() + AGAIN
        log.warning("gang %s: its ProvisioningRequest: %s", due.key, error)
        if due.gang is not None and due.step.attempt:
            self._refuse(due.key, due.gang, NOT_SERVED if isinstance(error, NotFound) else str(error))

    def _refuse(self, key: str, gang: LackingGang, why: str) -> None:
        if self._refused.get(key) != why:
            self._refused[key] = why
            self._notices.refused(gang.group, gang.pods, f"no ProvisioningRequest is made: {why}")


def _rank(due: DueStep) -> tuple[float, float, str]:
    """Gangs of a higher priority come first, and among equals those that have waited longer."""
    gang = due.gang
    return (0.0, 0.0, due.key) if gang is None else (-gang.priority, gang.since, due.key)
