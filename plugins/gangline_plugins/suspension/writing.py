"""Suspends and resumes owners: reads the newest object, decides, and writes if nothing has changed since. Does the I/O.

Every write names the resourceVersion that was read, so whoever changes the object at the same moment wins, and the
decision is made again. So it is after a failure that may pass; a write that got no answer may have been made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gangline import GanglineError, Handle, NotFound
from gangline_plugins.retrying import MAY_PASS
from gangline_plugins.suspension import record as records
from gangline_plugins.suspension.owning import SuspendableOwner, is_of_kueue
from gangline_plugins.suspension.record import SUSPENDED_BY

log = logging.getLogger(__name__)
_PAUSES = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds to wait before each retry."""
Change = Callable[[Any], Mapping[str, Any] | None]
"""From the newest object to what is to be written; None if nothing is."""


class OwnerWriter:
    """Writes the field `suspend` of Jobs and JobSets, and the record of it."""

    def __init__(self, handle: Handle, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._handle = handle
        self._sleep = sleep

    async def suspend(self, owner: SuspendableOwner, priority: int, why: str) -> bool:
        """Suspend an owner, unless it is suspended; whether this was done. A failure is told in an event."""
        now, profile = self._handle.clock.now(), self._handle.profile

        def change(found: Any) -> Mapping[str, Any] | None:
            meta = found.metadata
            if found.spec.suspend or meta.deletion_timestamp is not None or is_of_kueue(meta.labels):
                return None
            said = records.written(profile, now, meta.generation + 1, priority, why)
            return {"metadata": {"annotations": said}, "spec": {"suspend": True}}

        return await self._change(owner, change)

    async def resume(self, owner: SuspendableOwner) -> bool:
        """Resume an owner that this profile has suspended; whether this was done."""

        def change(found: Any) -> Mapping[str, Any] | None:
            if not found.spec.suspend or not is_ours(found, self._handle.profile):
                return None
            return {"metadata": {"annotations": records.removed()}, "spec": {"suspend": False}}

        return await self._change(owner, change)

    async def let_go(self, owner: SuspendableOwner) -> bool:
        """Remove the record from an owner that somebody else has taken over; whether this was done."""

        def change(found: Any) -> Mapping[str, Any] | None:
            annotations = found.metadata.annotations or {}
            return {"metadata": {"annotations": records.removed()}} if SUSPENDED_BY in annotations else None

        return await self._change(owner, change)

    async def _change(self, owner: SuspendableOwner, change: Change) -> bool:
        sent: list[Mapping[str, Any]] = []
        try:
            for pause in (*_PAUSES, None):
                try:
                    return await self._try(owner, change, sent)
                except MAY_PASS:
                    if pause is None:
                        raise
                    await self._sleep(pause)
        except NotFound:
            return False
        except GanglineError as error:
            log.error("%s: %s", owner.key, error)
            self.tell(owner, "Warning", "SuspensionFailed", f"the scheduler cannot suspend or resume it: {error}")
        return False

    async def _try(self, owner: SuspendableOwner, change: Change, sent: list[Mapping[str, Any]]) -> bool:
        """Read, decide and write; `sent` has what was written before, without an answer, and what is written now."""
        client, resource = self._handle.client, owner.resource
        found = await client.get(resource, owner.name, namespace=owner.namespace)
        if found.metadata.uid != owner.uid:
            return False
        if any(_is_made(found, patch) for patch in sent):
            return True
        patch = change(found)
        if patch is None:
            return False
        sent.append(patch)
        seen = {"uid": owner.uid, "resourceVersion": found.metadata.resource_version}
        whole = {**patch, "metadata": {**patch["metadata"], **seen}}
        await client.patch(resource, owner.name, whole, namespace=owner.namespace)
        return True

    def tell(self, owner: SuspendableOwner, kind: str, reason: str, note: str) -> None:
        """Write an event on the owner."""
        self._handle.recorder.about(owner.reference, self._handle.profile, kind, reason, note, "Suspending")


def _is_made(found: Any, patch: Mapping[str, Any]) -> bool:
    """Whether an object is as a patch would make it."""
    annotations = found.metadata.annotations or {}
    said = patch["metadata"]["annotations"]
    suspend = patch.get("spec", {}).get("suspend", found.spec.suspend)
    return bool(found.spec.suspend) == bool(suspend) and all(annotations.get(key) == said[key] for key in said)


def is_ours(found: Any, profile: str) -> bool:
    """Whether this profile has suspended an object, and nobody has changed its spec since."""
    annotations = found.metadata.annotations or {}
    if annotations.get(SUSPENDED_BY) != profile or is_of_kueue(found.metadata.labels):
        return False
    try:
        return records.read(annotations).generation == found.metadata.generation
    except GanglineError:
        return False
