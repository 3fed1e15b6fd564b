"""The condition that says what is done for a gang that has lost members; it stays when events are gone. Does the I/O.

The condition is written on the object of the group if that is a PodGroup of Kubernetes, the one kind of object to which
the scheduler writes conditions; else on members that have a node, a bounded number. It becomes False when the recovery
has ended, however that was, and no other one follows: a release or a removal that fails is tried again. What cannot be
written for a while is written later, and a scheduler that takes over ends what an earlier one has left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from gangline import GanglineError, Handle, NotFound, PatchKind, PodGroup, model, resources, rfc3339
from gangline_plugins.memberships import group_of
from gangline_plugins.preemption.removing import Remover
from gangline_plugins.retrying import MAY_PASS

log = logging.getLogger(__name__)
RECOVERING = "gangline.dev/Recovering"
"""The type of the condition."""
_MOST_PODS = 8
"""At most this many pods of a gang get the condition."""
_MOST_BYTES = 1024
_PAUSE = 1.0
"""Seconds after a write that has failed."""
_OBJECTS = {
    (each.api_version, each.kind): each for each in (resources.POD_GROUPS_V1BETA1, resources.POD_GROUPS_V1ALPHA2)
}


@dataclass(frozen=True, slots=True)
class ToldAt:
    """Where the condition of a group is written."""

    object: model.TypedReference | None
    pods: tuple[str, ...]
    """UIDs."""


@dataclass(frozen=True, slots=True)
class Said:
    """A condition that is to be written: its status, reason and message."""

    where: ToldAt
    is_recovering: bool
    reason: str
    note: str


class RecoveryConditions:
    """Writes the conditions of groups, one after the other; what is outdated by then is not written."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._remover = Remover(handle)
        self._told: dict[str, ToldAt] = {}
        """Where the condition of each group is True, by the key of the group."""
        self._waiting: dict[str, Said] = {}
        self._failing: set[str] = set()
        """The groups of which a condition could not be written yet: that is logged once."""
        self._is_writing = False

    def find(self) -> None:
        """Remember where earlier schedulers have left the condition."""
        state = self._handle.state
        for pod in state.pods.values():
            if _is_true(pod.conditions.get(RECOVERING)) and pod.scheduler_name == self._handle.profile:
                group = group_of(self._handle, pod)
                key = group.key if group is not None else f"pod:{pod.key}"
                before = self._told.get(key, ToldAt(None, ()))
                self._told[key] = ToldAt(None, (*before.pods, pod.uid))
        for resource in _OBJECTS.values():
            for found in state.store(resource):
                meta = found.metadata
                key = PodGroup(meta.namespace, meta.name, "upstream", 1).key
                if _is_true(_condition(found.status.conditions)) and self._is_ours(key):
                    where = model.TypedReference("PodGroup", meta.namespace, meta.name, meta.uid, resource.api_version)
                    self._told[key] = ToldAt(where, ())

    def _is_ours(self, key: str) -> bool:
        """Whether no member of a group is another scheduler's; all members may be queued, or gone."""
        handle = self._handle
        pods = chain(handle.members(key), handle.leaving_members(key), handle.queued_members(key))
        return all(pod.scheduler_name == handle.profile for pod in pods)

    def recovers(self, group: PodGroup, reason: str, note: str, without: Container[str] = ()) -> None:
        """Something is done for a group, or it waits; the members with these UIDs are being removed."""
        before = self._told.get(group.key, ToldAt(None, ()))
        where = (
            ToldAt(group.object, ()) if _resource(group.object) is not None else self._members(group, before, without)
        )
        self._told[group.key] = where
        self._say(group.key, Said(where, True, reason, note))

    def _members(self, group: PodGroup, before: ToldAt, without: Container[str]) -> ToldAt:
        kept = [uid for uid in before.pods if uid not in without and uid in self._handle.state.pods]
        known = {*kept}
        more = (pod.uid for pod in self._handle.members(group.key) if pod.uid not in without and pod.uid not in known)
        lacking = max(0, _MOST_PODS - len(kept))
        return ToldAt(None, (*kept, *(uid for uid, _ in zip(more, range(lacking), strict=False))))

    def ends(self, key: str, reason: str, note: str) -> None:
        """The recovery of a group has ended."""
        where = self._told.pop(key, None)
        if where is not None:
            self._say(key, Said(where, False, reason, note))

    @property
    def any(self) -> bool:
        """Whether the condition of a group is True."""
        return bool(self._told)

    def settle(self, under_way: Container[str]) -> None:
        """The recoveries of all other groups than these, by key, have ended."""
        for key in [key for key in self._told if key not in under_way]:
            self.ends(key, "GangRecovered", "no recovery of the gang is under way")

    def _say(self, key: str, said: Said) -> None:
        self._waiting[key] = said
        if not self._is_writing:
            self._is_writing = True
            self._handle.spawn(self._write_all)

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                key = next(iter(self._waiting))
                said = self._waiting.pop(key)
                if not await self._write(key, said):
                    self._waiting.setdefault(key, said)
                    await asyncio.sleep(_PAUSE)
        finally:
            self._is_writing = False

    async def _write(self, key: str, said: Said) -> bool:
        """Best effort: what cannot be written is logged. Returns whether there is nothing to be tried again."""
        try:
            await self._write_on_object(said)
            for uid in said.where.pods:
                pod = self._handle.state.pods.get(uid)
                if pod is not None:
                    status = self._status(said, pod.conditions.get(RECOVERING))
                    await self._remover.patch_status(pod, status)
        except NotFound:
            pass  # the group is gone
        except GanglineError as error:
            if key not in self._failing:
                log.warning("the condition %s of a gang cannot be written: %s", RECOVERING, error)
            if isinstance(error, MAY_PASS):
                self._failing.add(key)
                return False
        self._failing.discard(key)
        return True

    async def _write_on_object(self, said: Said) -> None:
        where, resource = said.where.object, _resource(said.where.object)
        if where is None or resource is None:
            return
        found = self._handle.state.store(resource).get(where.name, where.namespace)
        if found is not None:
            status = self._status(said, _condition(found.status.conditions))
            patch = {"metadata": {"uid": found.metadata.uid}, "status": status}
            await self._handle.client.patch(
                resource, where.name, patch, namespace=where.namespace, subresource="status", kind=PatchKind.STRATEGIC
            )

    def _status(self, said: Said, before: model.PodCondition | None) -> dict[str, Any]:
        status = "True" if said.is_recovering else "False"
        message = said.note.encode()[:_MOST_BYTES].decode(errors="ignore")
        condition = {"type": RECOVERING, "status": status, "reason": said.reason, "message": message}
        if before is None or before.status != status:
            condition["lastTransitionTime"] = rfc3339(self._handle.clock.now())
        return {"conditions": [condition]}


def _resource(where: model.TypedReference | None) -> resources.Resource[Any] | None:
    return _OBJECTS.get((where.api_version, where.kind)) if where is not None else None


def _condition(conditions: Sequence[model.PodCondition]) -> model.PodCondition | None:
    return next((each for each in conditions if each.type == RECOVERING), None)


def _is_true(condition: model.PodCondition | None) -> bool:
    return condition is not None and condition.status == "True"
