"""The claims of a pod, and whether the pod can be scheduled with them in their present state."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from gangline import Code, PodInfo, Status, model, unschedulable
from gangline_plugins.volumes.objects import (
    WAIT_FOR_FIRST_CONSUMER,
    StorageObjects,
    claims_of,
    class_of_claim,
    is_fully_bound,
    not_found,
    not_owned,
    selected_node,
)
from gangline_plugins.volumes.volume_binding.assumed import Assumed

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


@dataclass(slots=True)
class PodVolumeClaims:
    """The claims of a pod."""

    bound: list[model.PersistentVolumeClaim] = field(default_factory=list)
    delayed: list[model.PersistentVolumeClaim] = field(default_factory=list)
    """The claims that are bound only once the pod has a node."""


def sort_claims(
    pod: PodInfo, objects: StorageObjects, claims: Assumed[model.PersistentVolumeClaim]
) -> PodVolumeClaims | Status:
    """The claims of a pod, or why it cannot run anywhere."""
    unusable = _unusable(pod, objects)
    if unusable is not None:
        return unschedulable(unusable.why, resolvable=False)
    found = PodVolumeClaims()
    immediate = False
    for use in claims_of(pod):
        claim = claims.get(use.name, pod.namespace)
        assert claim is not None  # looked up above
        if is_fully_bound(claim):
            found.bound.append(claim)
            continue
        delayed = _is_delayed(claim, objects)
        if isinstance(delayed, Status):
            return delayed
        if delayed and not claim.spec.volume_name:
            found.delayed.append(claim)
        else:
            immediate = True
    if immediate:
        return unschedulable("pod has unbound immediate PersistentVolumeClaims", resolvable=False)
    return found


def likeness_of(
    pod: PodInfo,
    objects: StorageObjects,
    claims: Assumed[model.PersistentVolumeClaim],
    volumes: Assumed[model.PersistentVolume],
) -> Hashable:
    """A value that is equal for pods of one class whose claims for ephemeral volumes allow the same nodes, or cannot be
    used for the same reason: the names of these claims, which begin with those of the pods, make no difference.

    A claim that is bound restricts the nodes by the node affinity of its volume, and another one by its spec and by the
    node for which a volume is being made.
    """
    found: list[Hashable] = []
    for use in claims_of(pod):
        claim = claims.get(use.name, pod.namespace) if use.ephemeral else None
        if claim is not None and is_fully_bound(claim):
            volume = volumes.get(claim.spec.volume_name)
            found.append(None if volume is None else _encode(volume.spec.node_affinity))
        elif claim is not None:
            found.append((_encode(claim.spec), selected_node(claim)))
    unusable = _unusable(pod, objects)
    return None if unusable is None else unusable[:3], *found


class _Unusable(NamedTuple):
    """The first claim that cannot be used."""

    number: int
    """Which of the pod's claims it is."""
    fault: str
    volume: str
    """The name of the volume that is lost, if that is the fault."""
    why: str


def _unusable(pod: PodInfo, objects: StorageObjects) -> _Unusable | None:
    for number, use in enumerate(claims_of(pod)):
        claim = objects.claim(pod.namespace, use.name)
        named = f'persistentvolumeclaim "{use.name}"'
        if claim is None:
            wait = f"waiting for ephemeral volume controller to create the {named}"
            why = wait if use.ephemeral else not_found("persistentvolumeclaims", use.name)
            return _Unusable(number, "missing", "", why)
        if claim.status.phase == "Lost":
            volume = claim.spec.volume_name
            return _Unusable(number, "lost", volume, f'{named} bound to non-existent persistentvolume "{volume}"')
        if claim.metadata.deletion_timestamp is not None:
            return _Unusable(number, "deleted", "", f"{named} is being deleted")
        if use.ephemeral and (why_not := not_owned(pod, claim)):
            return _Unusable(number, "not owned", "", why_not)
    return None


def _is_delayed(claim: model.PersistentVolumeClaim, objects: StorageObjects) -> bool | Status:
    name = class_of_claim(claim)
    storage_class = objects.storage_class(name) if name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        return Status(Code.ERROR, (f'VolumeBindingMode not set for StorageClass "{name}"',))
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
