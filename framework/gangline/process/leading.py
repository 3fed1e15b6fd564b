"""Elects one leader among the replicas by a Lease, with the rules and the timing of client-go.

Rules
- Only the local clock decides whether another replica's lease has expired: the time counts from the moment at which
  this process first saw the current record, so the clocks of replicas need not agree.
- A write names the resourceVersion of the record that it is based on; after a Conflict the replica does not lead.
- A Lease that somebody deletes counts as still held: its holder goes on leading, and creates the Lease again with its
  next renewal.
- A candidate watches the lease: it tries at once when the lease is released, and when the lease has expired. If the
  watch fails, it still tries every one or two retry periods.
- The leader stops before its lease can have expired: a deadline cancels its work, and only a renewal extends the
  deadline. `Tenure` has the same deadline for writes of another thread, where a cancellation may come late.
- A process that hangs must lose the lease: while there is a ``complaint`` the lease is not taken or renewed.
- The lease is released after the work has ended, never before, and only if the tenure is clean. Otherwise, for example
  after an error, writes may still be on the way, and the lease is left to expire.
- With the release goes a record that saves the next leader from listing all objects again; see `kube.handing_over`. If
  a leader was cut off shortly before, the release says for how long writes of that leader may still arrive.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import math
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from random import Random
from typing import cast

from gangline.api.plugin import Clock
from gangline.clock import rfc3339
from gangline.config import LeaderElection
from gangline.errors import Conflict, GanglineError, LeadershipLost, NotFound
from gangline.kube.handing_over import ANNOTATION, number
from gangline.kube.interface import Client, WatchEvent
from gangline.kube.outbox import LANDING
from gangline.kube.resources import LEASES
from gangline.model import Lease, LeaseSpec, ObjectMeta
from gangline.process.tenure import Tenure

log = logging.getLogger(__name__)

TICK = 0.002
"""Seconds; timers are not more exact."""
JITTER = 1.2
"""A candidate waits between 1 and 1 + JITTER retry periods between two tries, at random."""
UNSETTLED = "gangline.dev/unsettled"
"""The annotation of the lease, while nobody holds it, that says for how many seconds after the release writes of
leaders before the last one may arrive. Without the annotation none can.
"""
_SECONDS = re.compile(r"[1-5]?\d|60", re.ASCII)


class LeaseStep(enum.Enum):
    """What a replica does next about the lease."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def decide(record: LeaseSpec | None, observed_at: float, now: float, identity: str) -> LeaseStep:
    """What the replica ``identity`` does next about the lease; ``record`` is None if there is no Lease.

    ``observed_at`` and ``now`` are seconds of the same local clock. At ``observed_at`` this replica has seen the record
    change last.
    """
    if record is None:
        return LeaseStep.CREATE
    if record.holder_identity == identity:
        return LeaseStep.RENEW
    if record.holder_identity and now < observed_at + (record.lease_duration_seconds or 0):
        return LeaseStep.WAIT
    return LeaseStep.TAKE


def claim(record: LeaseSpec | None, action: LeaseStep, identity: str, duration: float, time: float) -> LeaseSpec:
    """The record to write for an action other than WAIT, at a ``time`` in seconds since the epoch."""
    stamp = rfc3339(time, micros=True)
    before = record or LeaseSpec()
    transitions = before.lease_transitions or 0
    return LeaseSpec(
        holder_identity=identity,
        lease_duration_seconds=math.ceil(duration),
        acquire_time=before.acquire_time if action is LeaseStep.RENEW else stamp,
        renew_time=stamp,
        lease_transitions=transitions + 1 if action is LeaseStep.TAKE else transitions,
    )


class Elector:
    """One replica's part in the election.

    ``leader`` is the last known holder of the lease, empty if there is none. ``on_leading`` is told False
    when `run` starts, True when this replica becomes the leader, and False when it no longer is.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        settings: LeaderElection,
        identity: str,
        rng: Random,
        on_leading: Callable[[bool], None] = lambda leads: None,
        tenure: Tenure | None = None,
        complaint: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.leader = ""
        self.is_leading = False
        self._client = client
        self._clock = clock
        self._settings = settings
        self._identity = identity
        self._rng = rng
        self._on_leading = on_leading
        self._tenure = tenure or Tenure(clock)
        self._unfit = complaint
        self._name = f"{settings.resource_namespace}/{settings.resource_name}"
        self._record: LeaseSpec | None = None
        self._observed_at = -math.inf
        self._written: Lease | None = None  # as this replica wrote it last; None once it may have changed
        self._complaint = ""
        self._handed_over: str | None = None  # what the leader before has left; None if it has not released the lease
        self._unsettled = LANDING
        self._version = ""  # the resourceVersion of the lease as last seen
        self._tried_at = -math.inf
        self._given_up = asyncio.Event()
        # client-go waits one retry period after a renewal and then tries for the renew deadline.
        self._term = min(settings.retry_period + settings.renew_deadline, settings.lease_duration)

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Waits for leadership, then runs ``lead`` while the lease is renewed; returns when ``lead`` does.

        When the lease cannot be renewed, or another holds it, ``lead`` is cancelled and LeadershipLost raised. In every
        other case, cancellation too, the lease is released as soon as ``lead`` has ended, if the tenure is clean then.
        """
        self._on_leading(False)
        tenure = asyncio.timeout_at(await self._acquire())
        try:
            async with tenure:
                await self._lead(lead, tenure)
        except TimeoutError:
            if not tenure.expired():
                raise  # the error is one of `lead`
            raise LeadershipLost(self._name, self._why_lost()) from None
        finally:
            self._leads(False)
            if not tenure.expired() and self._tenure.is_clean:
                await self._release()

    async def _acquire(self) -> float:
        """Tries until this replica has the lease; returns when the lease expires, in the loop's time."""
        log.info("waiting to become the leader: lease %s, identity %s", self._name, self._identity)
        watching: asyncio.Task[None] | None = None
        try:
            while True:
                self._given_up.clear()
                began, self._tried_at = asyncio.get_running_loop().time(), self._clock.monotonic()
                if await self._try():
                    self._begin_tenure(self._tried_at)
                    return began + self._term
                if self._version and (watching is None or watching.done()):
                    watching = asyncio.create_task(self._watch())
                await self._rest()
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.wait([watching])

    def _begin_tenure(self, began: float) -> None:
        number = (self._record.lease_transitions or 0) if self._record is not None else 0
        self._tenure.begin(self._name, number, began, began + self._term, self._handed_over, self._unsettled)

    async def _rest(self) -> None:
        """Sleep until the next try."""
        usual = self._tried_at + self._settings.retry_period * (1 + JITTER * self._rng.random())
        while (pause := min(usual, self._runs_out_at + TICK) - self._clock.monotonic()) > TICK / 2:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._given_up.wait()
                    return

    @property
    def _runs_out_at(self) -> float:
        """When the lease of another replica expires; infinite if it had expired at the last try."""
        duration = (self._record.lease_duration_seconds or 0) if self._record is not None else 0
        when = self._observed_at + duration
        return when if when > self._tried_at else math.inf

    async def _watch(self) -> None:
        """Follow the lease until the watch ends; the next try reads the lease."""
        stream = self._client.watch(
            LEASES,
            resource_version=self._version,
            namespace=self._settings.resource_namespace,
            field_selector=f"metadata.name={self._settings.resource_name}",
        )
        try:
            async with aclosing(cast("AsyncGenerator[WatchEvent[Lease], None]", stream)) as events:
                async for event in events:
                    if event.object is not None and number(event.resource_version) > number(self._version):
                        self._version = event.resource_version
                        self._observe(event.object.spec)
                        if not event.object.spec.holder_identity:
                            self._given_up.set()
        except GanglineError as error:
            log.debug("lease %s is not watched: %s", self._name, error)

    async def _lead(self, lead: Callable[[], Awaitable[None]], tenure: asyncio.Timeout) -> None:
        """Runs ``lead`` in this task, so that a cancellation reaches it while renewals go on until it has ended."""
        self._leads(True)
        renewing = asyncio.create_task(self._renew(tenure))
        try:
            await lead()
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])
            if not renewing.cancelled():
                renewing.result()  # raises the error that ended the renewals: a bug

    async def _renew(self, tenure: asyncio.Timeout) -> None:
        """Extends the deadline with every renewal, and sets it to now when another replica holds the lease."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._settings.retry_period)
        while not tenure.expired():  # a lost lease stays lost, though the work may take a while to end
            began, began_at = loop.time(), self._clock.monotonic()
            renewed = await self._try()
            if tenure.expired():
                return
            if renewed:
                self._tenure.extend(began_at + self._term)
                tenure.reschedule(began + self._term)
            elif self._is_taken:
                self._tenure.end()
                tenure.reschedule(loop.time())
                return
            await asyncio.sleep(self._settings.retry_period)

    def _leads(self, leads: bool) -> None:
        self.is_leading = leads
        if not leads:
            self._tenure.end()
        self._on_leading(leads)

    @property
    def _is_taken(self) -> bool:
        return self.leader not in ("", self._identity)

    def _why_lost(self) -> str:
        if self._is_taken:
            return f"{self.leader} holds it now"
        return f"not renewed for {self._term:g} s: {self._complaint or 'the event loop was held up'}"

    # One try

    async def _try(self) -> bool:
        """One attempt to take or renew the lease; True if this replica holds the lease now."""
        if why := self._unfit():
            self._complain(why)
            return False
        try:
            # Half the deadline, as kube-scheduler's client for leases has it: one lost answer must not cost the lease.
            async with asyncio.timeout(self._settings.renew_deadline / 2):
                ours = await self._renew_unread() or await self._take_or_renew()
        except Conflict as error:
            log.debug("lease %s: another was quicker: %s", self._name, error)
            self._complaint = str(error)
            return False
        except (GanglineError, TimeoutError) as error:
            self._complain(str(error) or "no answer in time")
            return False
        self._complaint = ""
        return ours

    async def _renew_unread(self) -> bool:
        """Renew without reading the lease, based on the last record; returns False if the record is out of date, or if
        this replica does not lead.
        """
        known, self._written = self._written, None
        if known is None or not self.is_leading:
            return False
        with suppress(Conflict):
            await self._write(LeaseStep.RENEW, known)
            return True
        return False

    async def _take_or_renew(self) -> bool:
        lease = await self._read()
        if lease is not None:
            self._version = lease.metadata.resource_version
            self._observe(lease.spec)
        known = lease.spec if lease is not None else self._record  # the holder of a deleted Lease goes on leading
        action = decide(known, self._observed_at, self._clock.monotonic(), self._identity)
        if action is LeaseStep.WAIT:
            return False
        self._inherit(lease)
        await self._write(action, lease)
        return True

    def _inherit(self, lease: Lease | None) -> None:
        """Take from the lease what the leader before has left."""
        self._handed_over, self._unsettled = None, LANDING
        if lease is None:
            return
        annotations = lease.metadata.annotations or {}
        handed_over, unsettled = annotations.pop(ANNOTATION, ""), annotations.pop(UNSETTLED, "0")
        if not lease.spec.holder_identity:
            self._handed_over = handed_over
            self._unsettled = float(unsettled) if _SECONDS.fullmatch(unsettled) else LANDING

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(
                LEASES, self._settings.resource_name, namespace=self._settings.resource_namespace
            )
        except NotFound:
            return None

    async def _write(self, action: LeaseStep, lease: Lease | None) -> None:
        now = self._clock.now()
        before = lease.spec if lease else self._record  # leaseTransitions goes on after a Lease was deleted
        if lease is None and before is not None:
            action = LeaseStep.RENEW if self.is_leading else LeaseStep.TAKE
        spec = claim(before, action, self._identity, self._settings.lease_duration, now)
        if lease is None:
            meta = ObjectMeta(name=self._settings.resource_name, namespace=self._settings.resource_namespace)
            self._written = await self._client.create(LEASES, Lease(meta, spec))
        else:
            self._written = await self._client.replace(LEASES, Lease(lease.metadata, spec))
        self._version = self._written.metadata.resource_version
        self._observe(self._written.spec)

    def _observe(self, spec: LeaseSpec) -> None:
        if spec == self._record:
            return
        self._record, self._observed_at = spec, self._clock.monotonic()
        holder = spec.holder_identity or ""
        if holder != self.leader:
            log.info("lease %s: the leader is %s", self._name, holder or "nobody")
            self.leader = holder

    def _complain(self, why: str) -> None:
        level = logging.DEBUG if why == self._complaint else logging.WARNING
        log.log(level, "lease %s: %s", self._name, why)
        self._complaint = why

    def _bequest(self) -> dict[str, str]:
        """The annotations that the next leader inherits."""
        unsettled = math.ceil(self._tenure.unsettled())
        left = {ANNOTATION: self._tenure.hands_over(), UNSETTLED: str(unsettled) if unsettled else ""}
        return {key: text for key, text in left.items() if text}

    async def _release(self) -> None:
        """Releases the lease, so that another replica need not wait until it expires."""
        try:
            async with asyncio.timeout(self._settings.renew_deadline):
                lease = await self._read()
                if lease is None or lease.spec.holder_identity != self._identity:
                    return
                given = claim(lease.spec, LeaseStep.RENEW, "", 1, self._clock.now())
                given.acquire_time = given.renew_time
                if left := self._bequest():
                    lease.metadata.annotations = {**(lease.metadata.annotations or {}), **left}
                released = await self._client.replace(LEASES, Lease(lease.metadata, given))
                self._observe(released.spec)
        except (GanglineError, TimeoutError) as error:
            log.warning("lease %s: not released: %s", self._name, str(error) or "no answer in time")
