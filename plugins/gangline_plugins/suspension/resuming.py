"""Resumes owners that this profile has suspended: when their pods would have room, or when their time is over.

The records are on the owners, so a scheduler that has just taken over goes on where the last one stopped. Changes by
others have precedence: if an owner runs again, or its spec has been changed since, Gangline leaves it alone.

If the profile that a record names suspends no workloads any more (it was renamed, or lost the plugin), the owner is
resumed at once by another profile: nobody can say when its pods would have room for a profile that is gone. The module
`record` says to which schedulers a record belongs. Of several profiles the first one does it.

A Workload of Kueue is resumed as soon as Kueue has taken its quota back, whether or not it has room; or after half a
minute, because a Kueue that is not at work must not find it deactivated. If the record of its suspension cannot be
read, it is resumed at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import msgspec

from gangline import GANG_SECONDS, Deadline, GanglineError, Handle, Membership, PodInfo, model, resources
from gangline_plugins.suspension import record as records
from gangline_plugins.suspension.kueue import has_quota
from gangline_plugins.suspension.owning import SUSPENDABLE, OwnerSearch, SuspendableOwner
from gangline_plugins.suspension.record import SUSPENSION, SuspensionRecord, suspended_by
from gangline_plugins.suspension.suspenders import Suspenders
from gangline_plugins.suspension.templates import WITH_TEMPLATES, pods_to_come
from gangline_plugins.suspension.writing import OwnerWriter, is_changed_by

log = logging.getLogger(__name__)
_AT_ONCE_SECONDS = 0.05
"""CPU time of one round for trying out whether owners have room; those that are left come first in the next."""

_GONE = "the profile that has suspended it suspends no workloads any more"
_PATIENCE = 30.0
"""Seconds after which a Workload is resumed though Kueue has not taken it off."""


class SuspendedOwner(msgspec.Struct, frozen=True):
    """An owner with the record of its suspension."""

    owner: SuspendableOwner
    record: SuspensionRecord
    by: str
    """The profile that has suspended the owner."""
    since: float
    """Seconds since the epoch."""


class Resuming:
    """Looks at the suspended owners of one profile."""

    def __init__(self, handle: Handle, writer: OwnerWriter, suspenders: Suspenders, resume_seconds: float) -> None:
        self._handle = handle
        self._writer = writer
        self._suspenders = suspenders
        self._resume_seconds = resume_seconds
        self._looked_at: dict[str, int] = {}
        """The number of the round in which each owner was tried out last, by the UID of the owner."""
        self._round = 0

    async def look(self, found: Iterable[Any]) -> None:
        """One round over the objects that have a record. At most one is resumed because it has room: the next round
        sees what is left then.
        """
        self._round += 1
        now = self._handle.clock.now()
        waiting: list[SuspendedOwner] = []
        for obj in filter(self._is_to_resume, found):
            each = self._read(obj)
            if isinstance(obj, model.KueueWorkload) and obj.spec.suspend:
                if each is None or not has_quota(obj) or each.record.is_over(now, _PATIENCE):
                    await self._resume(_owner(obj), suspended_by(obj), "Kueue may admit it again")
            elif each is None:
                await self._let_go(obj)
            else:
                waiting.append(each)
        await self._look_at(waiting)

    async def _look_at(self, waiting: list[SuspendedOwner]) -> None:
        self._looked_at = {each.owner.uid: self._looked_at.get(each.owner.uid, 0) for each in waiting}
        running = self._running(waiting)
        stopped = [each for each in waiting if each.owner.uid not in running]
        for each in filter(self._is_over, stopped):
            is_own = each.by == self._handle.profile
            why = f"it was suspended for {self._resume_seconds:g} s" if is_own else f"{_GONE}: {each.by}"
            await self._resume(each.owner, each.by, why)
        budget = Deadline(_AT_ONCE_SECONDS)
        for each in sorted((each for each in stopped if not self._is_over(each)), key=self._order):
            if budget.passed:
                return
            self._looked_at[each.owner.uid] = self._round
            if await self._has_room(each):
                await self._resume(each.owner, each.by, "there is room for it")
                return

    def _order(self, each: SuspendedOwner) -> tuple[int, int, float, str]:
        """Owners in order: the one looked at longest ago, then by priority, then the longest suspended."""
        return self._looked_at[each.owner.uid], -each.record.priority, each.since, each.owner.uid

    def _is_to_resume(self, obj: Any) -> bool:
        """Whether this profile has suspended an owner, or takes it over from a profile that is not there any more."""
        by, profiles = suspended_by(obj), self._suspenders.profiles
        if by == self._handle.profile:
            return True
        if by in profiles or self._handle.profile not in profiles[:1]:
            return False
        try:
            record = records.read(obj.metadata.annotations or {})
            return record.is_left(self._writer.election, self._handle.clock.now())
        except (GanglineError, ValueError):
            return False

    def _read(self, obj: Any) -> SuspendedOwner | None:
        """A suspended owner with its record; None if its profile may not resume the owner any more."""
        by = suspended_by(obj)
        if not obj.spec.suspend or not is_changed_by(by, obj):
            return None
        try:
            record = records.read(obj.metadata.annotations or {})
            return SuspendedOwner(_owner(obj), record, by, record.since)
        except (GanglineError, ValueError):
            return None

    def _is_over(self, each: SuspendedOwner) -> bool:
        return each.by != self._handle.profile or each.record.is_over(self._handle.clock.now(), self._resume_seconds)

    async def _let_go(self, obj: Any) -> None:
        record = (obj.metadata.annotations or {}).get(SUSPENSION)
        await self._writer.let_go(_owner(obj), record, is_suspended=bool(obj.spec.suspend))

    async def _resume(self, owner: SuspendableOwner, by: str, why: str) -> None:
        if await self._writer.resume(owner, by):
            log.info("%s is resumed: %s", owner.key, why)
            self._writer.tell(owner, "Normal", "ResumedByScheduler", why)

    def _running(self, waiting: list[SuspendedOwner]) -> set[str]:
        """The UIDs of owners with pods on nodes that their controllers have not deleted yet.

        Pods that are being deleted do not count: on a node that is not heard of they stay for ever.
        """
        namespaces = {each.owner.namespace for each in waiting}
        placed = (pod for pod in self._handle.state.pods.values() if pod.namespace in namespaces)
        owners = OwnerSearch(self._handle.state)
        found = (owners.of(pod) for pod in placed if not pod.terminating)
        return {owner.uid for owner in found if owner is not None}

    async def _has_room(self, each: SuspendedOwner) -> bool:
        """Whether all pods that the owner would create, or those that start first, fit now."""
        owner = each.owner
        try:
            found = await self._handle.client.get(
                WITH_TEMPLATES[owner.resource.kind], owner.name, namespace=owner.namespace
            )
            pods = self._first(pods_to_come(self._handle.state, owner, found, each.record.priority))
            if not pods or any(pod.scheduler_name != self._handle.profile for pod in pods):
                return False
            with self._handle.within(Deadline(GANG_SECONDS)):
                places = self._handle.find_places(pods, self._handle.nodes.alive)
        except GanglineError as error:
            log.info("%s: whether it has room: %s", owner.key, error)
            return False
        return places is not None and len(places) == len(pods)

    def _first(self, pods: list[PodInfo]) -> list[PodInfo]:
        """The pods of the first one's group, or the first one alone if it is in no group."""
        memberships = [(pod, self._handle.group_of(pod)) for pod in pods]
        first = memberships[0][1] if memberships else None
        if not isinstance(first, Membership):
            return pods[:1]
        key = first.group.key
        return [pod for pod, each in memberships if isinstance(each, Membership) and each.group.key == key]


def _owner(obj: Any) -> SuspendableOwner:
    resource: resources.Resource[Any] = next(kind for kind in SUSPENDABLE if isinstance(obj, kind.type))
    return SuspendableOwner(resource, obj.metadata.namespace, obj.metadata.name, obj.metadata.uid)
