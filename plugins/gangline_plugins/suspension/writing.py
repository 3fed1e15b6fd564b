"""Suspends and resumes owners: reads the newest object, decides, and writes if nothing has changed since. Does the I/O.

Every write names the resourceVersion that was read, so whoever changes the object at the same moment wins, and the
decision is made again. The decision is also made again after a failure that may pass: a write without an answer may
have been made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from gangline import GanglineError, Handle, NotFound, model
from gangline_plugins.retrying import MAY_PASS
from gangline_plugins.suspension import record as records
from gangline_plugins.suspension.authors import has_another_author, with_authors
from gangline_plugins.suspension.kueue import is_of_kueue, may_be_stopped
from gangline_plugins.suspension.owning import SuspendableOwner
from gangline_plugins.suspension.record import SUSPENDED_BY, SUSPENSION, Suspender, suspended_by

log = logging.getLogger(__name__)
_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds to wait before each retry."""


class OwnerChange(msgspec.Struct, frozen=True):
    """A change of an owner that is to be written."""

    record: Mapping[str, str | None]
    """The annotations of the record to write; None removes an annotation."""
    suspend: bool | None = None
    """Whether the owner is to be suspended; None leaves the field as it is."""

    def patch(self, owner: SuspendableOwner) -> dict[str, Any]:
        """The change as a patch."""
        if self.suspend is None:
            return {"metadata": {"annotations": self.record}}
        spec = {"active": not self.suspend} if owner.is_of_kueue else {"suspend": self.suspend}
        return {"metadata": {"annotations": self.record}, "spec": spec}

    def is_made(self, found: Any) -> bool:
        """Whether an object is as this change would make it."""
        annotations = found.metadata.annotations or {}
        is_so = self.suspend is None or bool(found.spec.suspend) == self.suspend
        return is_so and all(annotations.get(key) == said for key, said in self.record.items())


Change = Callable[[Any], OwnerChange | None]
"""From the newest object to the change to write; None to write nothing."""


class OwnerWriter:
    """Writes the field `suspend` of Jobs and JobSets, or `active` of Workloads, and the record of it."""

    def __init__(
        self, handle: Handle, resume_seconds: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._handle = handle
        self._resume_seconds = resume_seconds
        self._sleep = sleep

    @property
    def election(self) -> str:
        """See `SuspensionRecord.election`."""
        return self._handle.term.name.rpartition("/")[0]

    async def suspend(self, owner: SuspendableOwner, priority: int, why: str) -> bool:
        """Suspend an owner that is not suspended yet; False if nothing was done. An event reports a failure."""
        now, by = self._handle.clock.now(), Suspender(self._handle.profile, self.election, self._resume_seconds)

        def change(found: Any) -> OwnerChange | None:
            if not _may_be_suspended(found):
                return None
            said = records.written(by, now, found.metadata.generation + 1, priority, why)
            return OwnerChange(said, suspend=True)

        return await self._change(owner, change) is not None

    async def resume(self, owner: SuspendableOwner, by: str) -> bool:
        """Resume an owner that the profile `by` has suspended; False if it is not resumed.

        An owner that somebody else has stopped meanwhile stays stopped; the record goes, and an event says so.
        """

        def change(found: Any) -> OwnerChange | None:
            if not found.spec.suspend or not is_changed_by(by, found):
                return None
            return OwnerChange(records.removed(), suspend=None if has_another_author(found) else False)

        made = await self._change(owner, change)
        if made is not None and made.suspend is None:
            self._tell_left(owner)
        return made is not None and made.suspend is False

    async def let_go(self, owner: SuspendableOwner, record: str | None, is_suspended: bool) -> bool:
        """Remove this record from an owner that somebody else has taken over; False if nothing was done.

        If the owner is suspended, an event says to whom it is left. The record of a later suspension stays: without it
        nobody would resume the owner.
        """

        def change(found: Any) -> OwnerChange | None:
            annotations = found.metadata.annotations or {}
            is_same = SUSPENDED_BY in annotations and annotations.get(SUSPENSION) == record
            return OwnerChange(records.removed()) if is_same else None

        is_made = await self._change(owner, change) is not None
        if is_made and is_suspended:
            self._tell_left(owner)
        return is_made

    def _tell_left(self, owner: SuspendableOwner) -> None:
        note = "it was changed after the scheduler had suspended it, so it is left to whoever has changed it"
        self.tell(owner, "Normal", "SuspensionLeft", note)

    async def _change(self, owner: SuspendableOwner, change: Change) -> OwnerChange | None:
        """Make the change; returns the one that was made, None if none was. An event reports a failure."""
        sent: list[OwnerChange] = []
        try:
            for pause in (*_PAUSES, None):
                try:
                    return await self._try(owner, change, sent)
                except MAY_PASS:
                    if pause is None:
                        raise
                    await self._sleep(pause)
        except NotFound:
            return None
        except GanglineError as error:
            log.error("%s: %s", owner.key, error)
            self.tell(owner, "Warning", "SuspensionFailed", f"the scheduler cannot suspend or resume it: {error}")
        return None

    async def _try(self, owner: SuspendableOwner, change: Change, sent: list[OwnerChange]) -> OwnerChange | None:
        """Read the owner, decide and write; None if nothing is to be written. Raises ApiError.

        `sent` has the changes of earlier tries, whose writes may have been made without an answer; a new change is
        added.
        """
        client, resource = self._handle.client, owner.resource
        found = await client.get(with_authors(resource), owner.name, namespace=owner.namespace)
        if found.metadata.uid != owner.uid:
            return None
        if (made := next((each for each in sent if each.is_made(found)), None)) is not None:
            return made
        wanted = change(found)
        if wanted is None:
            return None
        sent.append(wanted)
        patch = wanted.patch(owner)
        seen = {"uid": owner.uid, "resourceVersion": found.metadata.resource_version}
        whole = {**patch, "metadata": {**patch["metadata"], **seen}}
        await client.patch(resource, owner.name, whole, namespace=owner.namespace)
        return wanted

    def tell(self, owner: SuspendableOwner, kind: str, reason: str, note: str) -> None:
        """Write an event on the owner."""
        self._handle.recorder.about(owner.reference, self._handle.profile, kind, reason, note, "Suspending")


def _may_be_suspended(found: Any) -> bool:
    if isinstance(found, model.KueueWorkload):
        return may_be_stopped(found)
    meta = found.metadata
    return not found.spec.suspend and meta.deletion_timestamp is None and not is_of_kueue(meta.labels)


def is_changed_by(profile: str, found: Any) -> bool:
    """Whether this profile has suspended an object, and nobody has changed its spec since.

    Of a Workload the record alone counts: Kueue changes the spec too, and the Workload must not stay inactive for that.
    """
    if isinstance(found, model.KueueWorkload):
        return suspended_by(found) == profile
    if suspended_by(found) != profile or is_of_kueue(found.metadata.labels):
        return False
    try:
        return records.read(found.metadata.annotations).generation == found.metadata.generation
    except GanglineError:
        return False
