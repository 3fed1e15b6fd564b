"""The workers of one profile: they carry out pieces of work, a limited number at a time.

Work that takes long gives its place to the work that comes next: a plugin may wait for minutes until a volume is there,
or for ever because of a bug. If too much work takes long, it keeps its place. Then the post-bind that takes longest is
cancelled for each place that is kept: pods must not wait for pods that are bound.

Each profile has workers of its own, so a plugin that never returns keeps only the pods of its own profile waiting:
- A profile is full while four times as much work waits as there are places. Nothing is decided then, because pods are
  decided in the order of the queue, whatever their profile.
- If as much of its work takes long as there are places, its pods are passed: the scheduler decides the pods of other
  profiles, until little work waits again.
- When all places are kept, the profile is stuck: that is logged and told, and a gauge counts the work that takes long.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from gangline.failures import stepped
from gangline.profile.binding_points import GIVEN_UP
from gangline.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

LONG = 1.0
"""Seconds after which a piece of work gives its place to the next one."""
MOST_LONG = 16
"""Pieces of work that have given their places away, at most, as a multiple of the profile's places: an API server that
answers slowly must not get ever more requests.
"""
PAUSE = 60.0
"""Seconds during which a profile that is stuck is not told again."""


class BindingJob(NamedTuple):
    """A piece of work that waits for a worker."""

    work: Callable[[], Coroutine[Any, Any, None]]
    has_begun: Callable[[], bool] = lambda: False
    """Whether the unit to which the work belongs is bound in part."""


class ProfileListener:
    """Is told about the work of each profile."""

    def passed(self, profile: str, is_passed: bool) -> None:
        """Whether pods of other profiles pass those of this one now."""

    def is_stuck(self, profile: str, message: str) -> None:
        """The profile does no work any more until some of its work has ended."""


class Workers:
    """Carry out the work of a profile; work that takes long does not count against `places`."""

    def __init__(
        self,
        profile: str,
        places: int,
        metrics: Metrics,
        listener: ProfileListener,
        on_end: Callable[[], None],
        on_room: Callable[[], None],
    ) -> None:
        """`on_end` is called whenever a piece of work has ended, `on_room` when `has_room` may have changed."""
        self._profile = profile
        self._places = places
        self._fault = metrics.fault
        self._awaited = metrics.failures.awaited
        self._gauge = metrics.long_bindings
        self._listener = listener
        self._on_end = on_end
        self._on_room = on_room
        self._ready: deque[BindingJob] = deque()
        self._group: asyncio.TaskGroup | None = None
        self.pending = 0
        """The pieces of work that wait or are carried out, without those that have given their places away."""
        self._working = 0
        """The workers that have a place."""
        self.is_finishing = False
        """Whether only work that has begun is carried out."""
        self.in_post_bind: dict[asyncio.Task[Any] | None, None] = {}
        """The workers that tell plugins of a bound pod; the first one has done so for longest."""
        self._long: set[asyncio.Task[Any] | None] = set()
        """The workers whose work has given its place away; each ends with this work."""
        self._kept: dict[asyncio.Task[Any] | None, None] = {}
        """The workers whose work takes long, but keeps its place, because too much has none; the first one has waited
        longest.
        """
        self._is_full = self._is_passed = False
        self._told_at = -math.inf

    @property
    def slow(self) -> int:
        """The pieces of work that take long and have given their places away."""
        return len(self._long)

    @property
    def _taking_long(self) -> int:
        """All pieces of work that take long."""
        return len(self._long) + len(self._kept)

    @property
    def has_room(self) -> bool:
        """Whether so little work waits that a new piece will soon be carried out, or the profile is passed."""
        return not self._is_full or self._is_passed

    @property
    def is_stuck(self) -> bool:
        """Whether all places are kept by work that takes long."""
        return len(self._kept) >= self._places

    def start(self, group: asyncio.TaskGroup) -> None:
        """Work until the group ends; work that is carried out then is interrupted."""
        self._group = group
        for _ in range(self._places):
            self._go_on()

    def enqueue(self, job: BindingJob) -> None:
        """Carry out a piece of work as soon as there is a place for it."""
        self.pending += 1
        self._ready.append(job)
        self._go_on()
        if not self._is_full and self.pending >= 4 * self._places:
            self._is_full = True
            self._look_at_room()

    def _go_on(self) -> None:
        """Have another worker if there is a place and work for it."""
        if self._ready and self._working < self._places and self._group is not None:
            self._working += 1
            self._group.create_task(self._work())

    async def _work(self) -> None:
        """Do one piece of work after the other while there is some, until one takes long: then another worker has come
        in place of this.
        """
        worker = asyncio.current_task()
        while self._ready:
            job = self._ready.popleft()
            try:
                if not self.is_finishing or job.has_begun():
                    await self._carry_out(job, worker)
            except Exception as error:  # a fault in one unit must not end the work for the others
                self._fault("binding", error)
            finally:
                has_no_place = self._ended(worker)
            if has_no_place:
                return
        self._working -= 1

    async def _carry_out(self, job: BindingJob, worker: asyncio.Task[Any] | None) -> None:
        """Do a piece of work, which makes way if it takes long. A timer is begun when the work first waits: most
        work of a replay never does, and a timer for each pod took 1 % of the time.
        """
        loop, late = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
        due = loop.time() + LONG

        def begin() -> None:
            late.append(loop.call_at(due, self._make_way, worker))

        try:
            await stepped(job.work(), _untold, first_wait=begin)
        finally:
            for timer in late:
                timer.cancel()

    def _ended(self, worker: asyncio.Task[Any] | None) -> bool:
        """The work of a worker has ended; returns whether it had given its place away."""
        is_long = worker in self._long
        if is_long:
            self._long.remove(worker)
            self._count()
            if self._kept:
                self._make_way(next(iter(self._kept)))
        else:
            if worker in self._kept:
                del self._kept[worker]
                self._count()
            self._is_done()
        self._on_end()
        return is_long

    def _make_way(self, worker: asyncio.Task[Any] | None) -> None:
        """The work of a worker takes long: another worker does the work that comes next."""
        if self._group is None or worker is None or worker.cancelling():
            return
        if self.slow >= MOST_LONG * self._places:
            self._kept[worker] = None
            if not self._gave_up_post_bind() and self.is_stuck:
                self._tell()
            self._count()
            return
        self._kept.pop(worker, None)
        self._long.add(worker)
        self._count()
        self._is_done()
        self._working -= 1
        self._go_on()

    def _gave_up_post_bind(self) -> bool:
        """End the post-bind that takes longest: its pod is bound, and others wait. Returns whether there is one."""
        for worker in self.in_post_bind:
            if worker is not None and worker in self._long:
                del self.in_post_bind[worker]
                worker.cancel(GIVEN_UP)
                return True
        return False

    def _is_done(self) -> None:
        """A piece of work is pending no longer."""
        self.pending -= 1
        if self._is_full:
            self._is_full = self.pending >= 2 * self._places
            self._look_at_room()

    def _look_at_room(self) -> None:
        """Tell of a change of what waits for this profile."""
        is_passed = self._is_full and (self._is_passed or self._taking_long >= self._places)
        if is_passed != self._is_passed:
            self._is_passed = is_passed
            self._listener.passed(self._profile, is_passed)
        self._on_room()

    def _count(self) -> None:
        self._gauge.labels(self._profile).set(self._taking_long)

    def _tell(self) -> None:
        """Tell that the profile is stuck, unless that was told a short while ago."""
        now = asyncio.get_running_loop().time()
        if now - self._told_at < PAUSE:
            return
        self._told_at = now
        count = self._taking_long
        why = f'profile "{self._profile}": {count} bindings take long, so no other pod of this profile is bound'
        why += "".join(
            f"; plugin {plugin} at {point} has not returned {calls} times"
            for (profile, plugin, point), calls in self._awaited.most_common()
            if profile == self._profile and calls
        )
        log.warning("%s", why)
        self._listener.is_stuck(self._profile, why)


def _untold(seconds: float) -> None:
    """A step has blocked the loop: the call of the plugin in it has reported that."""
