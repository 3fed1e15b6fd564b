"""The writes that the claims of a pod need before the pod is bound, and how they are taken back.

A claim first gets the finalizer that keeps it, then its devices and the reservation for the pod in one write. A claim
that has changed meanwhile is read again and judged again: an allocation that somebody else has written stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec
import numpy as np

from gangline import (
    Action,
    ApiError,
    ClaimWriter,
    ClusterEvent,
    Code,
    Conflict,
    Handle,
    NotFound,
    PodInfo,
    Status,
    failpoint,
    model,
    node_selection,
    resources,
    rfc3339,
    unschedulable,
)
from gangline_plugins.dynamic_resources.claims import (
    MOST_CONSUMERS,
    ClaimProblem,
    Claims,
    check,
)
from gangline_plugins.dynamic_resources.entries import Allocation
from gangline_plugins.dynamic_resources.extended import is_extended, is_unwritten, pod_of, written
from gangline_plugins.dynamic_resources.ledger import Ledger
from gangline_plugins.dynamic_resources.readiness import Readiness, is_ready
from gangline_plugins.retrying import MAY_PASS
from gangline_plugins.versions import version_of

log = logging.getLogger(__name__)

_FINALIZER = "resource.kubernetes.io/delete-protection"
_TRIES = 8
"""How often a claim that keeps changing is judged again."""
SHOWN_WITHIN = 5.0
"""Seconds within which the watch has to show a write; after this time the pod is tried again."""
_PAUSE = 0.5
"""Seconds between two looks at the conditions of devices, and before a write is tried again."""
TAKEN_BACK = "gangline.dev/claims"
"""The kind of the event that devices which were written to a claim have been taken back."""
IN_USE = "resourceclaim in use"
LEFT_BEHIND = "cannot schedule extended resource claim"
NOT_HERE = "resourceclaim not available on the node"
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class ReservedClaims:
    """The claims of a pod that is being bound."""

    claims: Claims
    chosen: Mapping[str, Allocation]
    """The chosen devices of each claim, by the UID of the claim."""
    touched: dict[str, model.ResourceClaim] = field(default_factory=dict)
    """The claims to which this binding has written, or may have written, by UID."""
    versions: dict[str, int] = field(default_factory=dict)
    """The resourceVersion at which this process wrote the devices of a claim, by the UID of the claim."""

    def replace(self, before: model.ResourceClaim, after: model.ResourceClaim) -> None:
        """The claim `before`, which was in memory alone, has been created as the claim `after`, with another UID."""
        old, new = before.metadata.uid, after.metadata.uid
        self.claims = [after if each is before else each for each in self.claims]
        self.chosen = {new if uid == old else uid: each for uid, each in self.chosen.items()}
        self.touched.pop(old, None)
        self.touched[new] = after

    @property
    def uids(self) -> tuple[str, ...]:
        """The UIDs of the claims."""
        return tuple(self.chosen)


class ClaimBinding:
    """Writes claims for pods of one profile."""

    def __init__(self, handle: Handle, ledger: Ledger, readiness: Readiness) -> None:
        self._handle = handle
        self._ledger = ledger
        self._writer = ClaimWriter(handle.client)
        self._readiness = readiness

    def reaches(self, allocation: Allocation, node: str, row: int) -> bool:
        """Whether the devices of an allocation can be used on a node; `row` is the row of the node."""
        if allocation.node_selector is None or _is_for(node, allocation.node_selector):
            return True
        view = self._handle.nodes.at(np.array([row], dtype=np.intp))
        return bool(node_selection.match_selector(allocation.node_selector, view)[0])

    async def write(self, pod: PodInfo, node: str, reserved: ReservedClaims) -> Status | None:
        """Write all claims of a pod and wait for their devices. Raises ApiError."""
        for claim in list(reserved.claims):
            is_new = is_unwritten(claim.metadata.uid)
            try:
                if is_new:
                    found = await self._create(pod, reserved, claim)
                    if isinstance(found, Status):
                        return found
                    claim = found
                uid = claim.metadata.uid
                failed = await self._write(pod, node, reserved, self._ledger.newest(claim), reserved.chosen[uid])
                if is_new and failed is None:
                    await self._tell_pod(pod, claim)
            except ClaimProblem as problem:
                failed = unschedulable(str(problem))
            except NotFound:
                failed = unschedulable(f'resourceclaim "{claim.metadata.name}" not found')
            if failed is not None:
                return failed
        return await self._compare(pod, reserved) or await self._wait(pod, node, reserved)

    async def _has_seen(self, claims: Claims) -> bool:
        """Wait until the watch has shown the newest known states of claims, and so every earlier write to any claim.

        Returns False if it has not after SHOWN_WITHIN seconds.
        """
        newest = max((version_of(self._ledger.newest(claim).metadata) for claim in claims), default=0)
        return await self._ledger.written.has_shown(newest, SHOWN_WITHIN)

    async def _create(
        self, pod: PodInfo, reserved: ReservedClaims, claim: model.ResourceClaim
    ) -> model.ResourceClaim | Status:
        """Create the claim for the extended resources of a pod, and wait until the watch shows the claim.

        Returns why the pod cannot be bound if the watch is late, or if it shows another such claim for the pod. Raises
        ApiError.
        """
        uid = claim.metadata.uid
        reserved.touched[uid] = claim
        metadata = msgspec.structs.replace(claim.metadata, name="", uid="")
        created = await self._writer.create(msgspec.structs.replace(claim, metadata=metadata))
        reserved.replace(claim, created)
        self._ledger.created(pod, uid, created)
        if not await self._has_seen([created]):
            return Status(Code.ERROR, (f"the watch has not shown the claims of the pod after {SHOWN_WITHIN:g} s",))
        if any(each.metadata.uid != created.metadata.uid for each in self._ledger.extended.there(pod)):
            return unschedulable(LEFT_BEHIND)
        return created

    async def _tell_pod(self, pod: PodInfo, claim: model.ResourceClaim) -> None:
        """Write into the status of a pod which claim has the devices for its extended resources."""
        status = written(self._ledger.extended.mappings(pod, claim), claim.metadata.name)
        patch = {"metadata": {"uid": pod.uid}, "status": status}
        await self._handle.client.patch(resources.PODS, pod.name, patch, namespace=pod.namespace, subresource="status")

    async def _write(
        self, pod: PodInfo, node: str, reserved: ReservedClaims, claim: model.ResourceClaim, chosen: Allocation
    ) -> Status | None:
        uid = claim.metadata.uid
        for _ in range(_TRIES):
            if claim.metadata.uid != uid:
                return unschedulable(f'resourceclaim "{claim.metadata.name}" is another one now')
            check(pod, claim, self._ledger.references.group_of(pod))
            allocation = claim.status.allocation
            row = self._handle.nodes.row_of(node)
            if allocation is not None and (row is None or not self.reaches(allocation, node, row)):
                return unschedulable(NOT_HERE)
            if allocation is not None and self._ledger.references.is_reserved(pod, claim):
                return None
            if len(claim.status.reserved_for) >= MOST_CONSUMERS:
                return unschedulable(IN_USE)
            try:
                await self._reserve(pod, reserved, claim, chosen)
                return None
            except Conflict:
                if not is_extended(claim):
                    reserved.touched.pop(uid, None)  # another scheduler has written the claim meanwhile
                claim = await self._writer.read(claim)
                self._ledger.learn(claim)
        return Status(Code.ERROR, (f'resourceclaim "{claim.metadata.name}" keeps changing',))

    async def _reserve(
        self, pod: PodInfo, reserved: ReservedClaims, claim: model.ResourceClaim, chosen: Allocation
    ) -> None:
        consumer = self._ledger.references.of(pod, claim)
        reserved.touched[claim.metadata.uid] = claim
        if claim.status.allocation is not None:
            self._ledger.learn(await self._writer.reserve(claim, consumer))
            return
        if _FINALIZER not in claim.metadata.finalizers:
            failpoint("claim.before-finalizer")
            claim = await self._writer.protect(claim)
            self._ledger.learn(claim)
        failpoint("claim.before-status")
        stamped = msgspec.structs.replace(chosen, allocation_timestamp=rfc3339(self._handle.clock.now()))
        allocated = await self._writer.allocate(claim, stamped, consumer)
        failpoint("claim.after-status")
        reserved.versions[claim.metadata.uid] = version_of(allocated.metadata)
        self._ledger.learn(allocated)

    async def _compare(self, pod: PodInfo, reserved: ReservedClaims) -> Status | None:
        """Give way to claims that other schedulers gave the same devices before, when the watch has shown them."""
        if not await self._has_seen(reserved.claims):
            return Status(Code.ERROR, (f"the watch has not shown the claims of the pod after {SHOWN_WITHIN:g} s",))
        for claim in reserved.claims:
            uid = claim.metadata.uid
            newest = self._ledger.shown(uid)
            if newest is None or not self._has_devices(pod, newest):
                return unschedulable(f'resourceclaim "{claim.metadata.name}" was given back')
            other = self._ledger.written.first(uid, reserved.versions.get(uid, 0))
            if other is not None:
                if self._ledger.written.came_before(other.metadata.uid, uid):
                    reserved.touched.setdefault(uid, newest)  # the scheduler that wrote this claim gives way too
                is_near = other.metadata.namespace == claim.metadata.namespace
                name = other.metadata.name if is_near else "of another namespace"
                return unschedulable(f'devices of resourceclaim "{claim.metadata.name}" belong to claim {name}')
        return None

    def _has_devices(self, pod: PodInfo, claim: model.ResourceClaim) -> bool:
        """Whether a claim has devices that the pod may use."""
        return claim.status.allocation is not None and self._ledger.references.is_reserved(pod, claim)

    # Conditions of devices

    async def _wait(self, pod: PodInfo, node: str, reserved: ReservedClaims) -> Status | None:
        """Wait until the drivers say that the devices are ready. Devices without binding conditions are ready at once.

        If somebody takes the devices away meanwhile, or deletes a claim, the pod is not bound.
        """
        until, has_told = self._handle.clock.monotonic() + self._readiness.timeout, False
        while True:
            waiting = False
            for claim in reserved.claims:
                newest = self._ledger.shown(claim.metadata.uid)
                if newest is None or not self._has_devices(pod, newest):
                    return unschedulable(f'resourceclaim "{claim.metadata.name}" was given back')
                why, ready = self._readiness.problem(newest), is_ready(newest)
                if not ready and self._handle.clock.monotonic() >= until:
                    why = why or self._readiness.late(newest)
                if why:
                    reserved.touched.setdefault(newest.metadata.uid, newest)
                    return unschedulable(why)
                waiting = waiting or not ready
            if not waiting:
                return None
            if self._handle.state.has_lost_node(pod.uid):
                return unschedulable("the node is gone")
            if not has_told:
                has_told = True
                note = f"waiting for binding conditions for device on node {node}"
                self._handle.recorder.event(pod, "Normal", "BindingConditionsPending", note)
            await asyncio.sleep(_PAUSE)

    # Taking back

    async def take_back(self, pod: PodInfo, reserved: ReservedClaims) -> None:
        """Remove the reservations of a pod that is not bound, and the devices of claims that nobody else uses.

        Another scheduler that serves the same pod may have bound it: then its claims stay.
        """
        try:
            if await self._may_be_bound(pod):
                return
            for claim in list(reserved.touched.values()):
                give_back = self._delete if is_extended(claim) else self._take_back
                await _persist(pod, partial(give_back, pod, claim), None, None)
        finally:
            self._ledger.extended.leaving.discard(pod.uid)
            self._ledger.forget(pod, reserved.uids)
            self._came_free(reserved.touched)

    async def drop(self, pod: PodInfo, claims: Claims) -> None:
        """Delete the claims for extended resources that were left behind for a pod which is not bound."""
        try:
            if not await self._may_be_bound(pod):
                for claim in claims:
                    await _persist(pod, partial(self._delete, pod, claim), None, None)
        finally:
            self._ledger.extended.leaving.discard(pod.uid)
            self._came_free(())

    async def _delete(self, pod: PodInfo, claim: model.ResourceClaim) -> None:
        """Delete a claim for extended resources. Raises ApiError.

        If it is not known whether the claim was created, all such claims of the pod are deleted.
        """
        if is_unwritten(claim.metadata.uid):
            found = await self._writer.in_namespace(pod.namespace)
            mine = [each for each in found if pod_of(each) == pod.uid]
        else:
            newest = await self._writer.read(claim)
            mine = [newest] if newest.metadata.uid == claim.metadata.uid else []
        for each in mine:
            await self._writer.delete(each)

    async def _may_be_bound(self, pod: PodInfo) -> bool:
        """Whether the pod has a node; True also if the API server gives no answer after some tries."""

        return await _persist(pod, partial(self._has_node, pod.namespace, pod.name, pod.uid), False, True)

    async def _has_node(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the pod with this UID has a node. Raises ApiError."""
        found = await self._handle.client.get(resources.PODS, name, namespace=namespace)
        return found.metadata.uid == uid and bool(found.spec.node_name)

    def _came_free(self, uids: Iterable[str]) -> None:
        """Claims are no longer being taken back: pods may use them."""
        for uid in uids:
            self._ledger.leaving(uid, False)
        self._handle.announce(ClusterEvent(TAKEN_BACK, Action.UPDATE_OTHER))

    async def _take_back(self, pod: PodInfo, claim: model.ResourceClaim) -> None:
        newest, uid = await self._writer.read(claim), claim.metadata.uid
        if newest.metadata.uid != uid:
            return
        self._ledger.learn(newest)
        mine = self._ledger.references.reserved_as(pod, newest)
        if not mine or (mine != pod.uid and self._ledger.consumers(uid) - {pod.uid, mine}):
            return  # other pods of the PodGroup use the claim
        others = {each.uid for each in newest.status.reserved_for} - {mine}
        if newest.status.allocation is not None and not others:
            self._ledger.learn(await self._writer.deallocate(newest, mine))
        else:
            self._ledger.learn(await self._writer.release(newest, mine))

    async def deallocate(
        self, claim: model.ResourceClaim, uids: Iterable[str], strays: frozenset[str] = frozenset()
    ) -> None:
        """Take the devices from a claim that only these consumers use, unless the claim has changed.

        Nothing is done if a pod in `strays`, by UID, has a node by now: another scheduler may have bound the pod.
        """
        try:
            for each in claim.status.reserved_for:
                with suppress(NotFound):
                    if each.uid in strays and await self._has_node(claim.metadata.namespace, each.name, each.uid):
                        return
            self._ledger.learn(await self._writer.deallocate(claim, *uids))
        except ApiError:
            return  # the next attempt of the pod looks at the claim again
        finally:
            self._came_free((claim.metadata.uid,))


async def _persist(pod: PodInfo, work: Callable[[], Awaitable[T]], gone: T, late: T) -> T:
    """Do the work for a pod, and repeat it while that may help; returns its answer.

    The answer is `gone` if the object of the work does not exist any more, and `late` after _TRIES failures, or at once
    if the API server refuses the work, for example because of a webhook.
    """
    for attempt in range(_TRIES):
        try:
            return await work()
        except NotFound:
            return gone
        except ApiError as error:
            if not isinstance(error, MAY_PASS) or attempt + 1 == _TRIES:
                log.warning("pod %s: what was written for its claims is not taken back: %s", pod.key, error)
                return late
            if not isinstance(error, Conflict):
                await asyncio.sleep(_PAUSE * 2**attempt)
    return late


def _is_for(node: str, selector: model.NodeSelector) -> bool:
    """Whether a node selector does nothing but name this node, as for devices that only one node has."""
    if len(selector.node_selector_terms) != 1:
        return False
    (term,) = selector.node_selector_terms
    if term.match_expressions or len(term.match_fields) != 1:
        return False
    (field_,) = term.match_fields
    return field_.key == "metadata.name" and field_.operator == "In" and field_.values == [node]
