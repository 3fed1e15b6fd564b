"""The writes that a pod's volumes need before the pod is bound, and the wait until the volumes are bound.

The PV controller and the provisioners do the binding itself. It starts when a volume names a claim, or when a claim
names a node. It has failed when the controller or provisioner removes that name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangline import Clock, Code, Handle, Status, model, resources
from gangline_plugins.volumes.objects import SELECTED_NODE, StorageObjects, is_fully_bound, selected_node
from gangline_plugins.volumes.volume_binding.matching import is_bound_to, reaches

Sleep = Callable[[float], Awaitable[None]]
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0


@dataclass(slots=True, eq=False)
class Match:
    """A claim and its volume as they will be; `volume` is replaced by the API server's answer."""

    claim: model.PersistentVolumeClaim
    volume: model.PersistentVolume
    dirty: bool
    """Whether the volume does not name the claim yet."""


@dataclass(slots=True, eq=False)
class Provision:
    """A claim for which a volume is to be provisioned, as it will be; `claim` is replaced by the API server's
    answer.
    """

    claim: model.PersistentVolumeClaim
    dirty: bool
    """Whether the claim does not name the node yet."""


@dataclass(slots=True, eq=False)
class PodVolumes:
    """The writes for a pod's volumes on its node."""

    matches: list[Match] = field(default_factory=list)
    provisions: list[Provision] = field(default_factory=list)


async def write(client: Any, volumes: PodVolumes) -> None:
    """Write the claims into the volumes, and the node into the claims.

    Raises ApiError, and Conflict if an object has changed since it was read; earlier writes remain.
    """
    for match in volumes.matches:
        if match.dirty:
            metadata = match.volume.metadata
            patch = {
                "metadata": _metadata(metadata, BOUND_BY_CONTROLLER),
                "spec": {"claimRef": msgspec.to_builtins(match.volume.spec.claim_ref)},
            }
            match.volume = await client.patch(resources.PVS, metadata.name, patch)
            match.dirty = False
    for provision in volumes.provisions:
        if provision.dirty:
            metadata = provision.claim.metadata
            patch = {"metadata": _metadata(metadata, SELECTED_NODE)}
            provision.claim = await client.patch(resources.PVCS, metadata.name, patch, namespace=metadata.namespace)
            provision.dirty = False


class Checks:
    """Whether the volumes of a pod are bound, by the objects of the API server."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._objects = StorageObjects(handle.state)

    def outcome(self, uid: str, node: str, volumes: PodVolumes) -> Status | bool:
        """True if all are bound, False if some may still become bound, or why the binding has failed."""
        row = self._handle.nodes.row_of(node)
        if row is None:
            return _failed(f'failed to get node "{node}"')
        if uid not in self._handle.state.pods:
            return _failed("pod does not exist any more")
        for match in volumes.matches:
            found = self._match(match, node, row)
            if found is not True:
                return found
        for provision in volumes.provisions:
            found = self._provision(provision, node, row)
            if found is not True:
                return found
        return True

    def _match(self, match: Match, node: str, row: int) -> Status | bool:
        name = match.volume.metadata.name
        volume = self._objects.volume(name)
        claim = self._objects.claim(match.claim.metadata.namespace, match.claim.metadata.name)
        if volume is None or claim is None:
            return _failed(f'failed to check binding: volume "{name}" or its claim is gone')
        if _is_older(volume.metadata, match.volume.metadata):
            return False
        if not reaches(volume, self._handle.nodes)[row]:
            return _unreachable(name, node)
        if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
            return _failed(f'ClaimRef got reset for pv "{name}"')
        return is_fully_bound(claim)

    def _provision(self, provision: Provision, node: str, row: int) -> Status | bool:
        metadata = provision.claim.metadata
        claim = self._objects.claim(metadata.namespace, metadata.name)
        if claim is None:
            return _failed(f'failed to check provisioning pvc: "{metadata.namespace}/{metadata.name}" not found')
        if _is_older(claim.metadata, metadata):
            return False
        if selected_node(claim) != node:
            return _failed(f'provisioning failed for PVC "{metadata.name}"')
        if claim.spec.volume_name:
            volume = self._objects.volume(claim.spec.volume_name)
            if volume is None:  # not seen yet
                return False
            if not reaches(volume, self._handle.nodes)[row]:
                return _unreachable(claim.spec.volume_name, node)
        return is_fully_bound(claim)


async def wait_for(outcome: Callable[[], Status | bool], limit: float, clock: Clock, sleep: Sleep) -> Status | None:
    """Check the outcome until it is True (returns None) or a failure, for at most `limit` seconds."""
    deadline = clock.monotonic() + limit
    pause = _FIRST_PAUSE
    while (found := outcome()) is False:
        left = deadline - clock.monotonic()
        if left <= 0:
            return _failed(f"timed out after {limit:g} s")
        await sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE)
    return None if found is True else found


def for_claim(volume: model.PersistentVolume, claim: model.PersistentVolumeClaim) -> Match:
    """The volume as it will be for the claim: it names the claim, and notes if this is the scheduler's choice and not
    the user's.
    """
    ref, metadata = volume.spec.claim_ref, claim.metadata
    wanted = (metadata.name, metadata.namespace, metadata.uid)
    dirty = ref is None or (ref.name, ref.namespace, ref.uid) != wanted
    annotations = dict(volume.metadata.annotations or {})
    if not is_bound_to(volume, claim) and BOUND_BY_CONTROLLER not in annotations:
        annotations[BOUND_BY_CONTROLLER] = "yes"
        dirty = True
    if dirty:
        volume = msgspec.structs.replace(
            volume,
            metadata=msgspec.structs.replace(volume.metadata, annotations=annotations),
            spec=msgspec.structs.replace(volume.spec, claim_ref=_reference(claim)),
        )
    return Match(claim, volume, dirty)


def for_node(claim: model.PersistentVolumeClaim, node: str) -> Provision:
    """The claim as it will be for a provisioner: it names the node."""
    if selected_node(claim) == node:
        return Provision(claim, dirty=False)
    annotations = {**(claim.metadata.annotations or {}), SELECTED_NODE: node}
    metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
    return Provision(msgspec.structs.replace(claim, metadata=metadata), dirty=True)


def _reference(claim: model.PersistentVolumeClaim) -> model.TypedReference:
    metadata = claim.metadata
    return model.TypedReference(
        kind="PersistentVolumeClaim",
        api_version="v1",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def _metadata(metadata: model.ObjectMeta, annotation: str) -> dict[str, Any]:
    """A patch that sets an annotation as it is in metadata, provided that the object is still of this version."""
    value = (metadata.annotations or {}).get(annotation)
    patch: dict[str, Any] = {"resourceVersion": metadata.resource_version}
    return patch if value is None else {**patch, "annotations": {annotation: value}}


def _is_older(stored: model.ObjectMeta, written: model.ObjectMeta) -> bool:
    """Whether the store does not contain this process's write yet."""
    return int(stored.resource_version) < int(written.resource_version)


def _unreachable(volume: str, node: str) -> Status:
    return _failed(f'pv "{volume}" node affinity doesn\'t match node "{node}"')


def _failed(why: str) -> Status:
    return Status(Code.ERROR, (f"binding volumes: {why}",))
