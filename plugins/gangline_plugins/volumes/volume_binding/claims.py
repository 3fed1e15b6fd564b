"""The claims of a pod, and whether the pod can be scheduled with them in their present state."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

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
    why = _unusable(pod, objects)
    if why is not None:
        return unschedulable(why, resolvable=False)
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
    """A value that is equal for pods of one class whose claims for ephemeral volumes allow the same nodes.

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
    return _unusable(pod, objects) is None, *found


def _unusable(pod: PodInfo, objects: StorageObjects) -> str | None:
    for use in claims_of(pod):
        claim = objects.claim(pod.namespace, use.name)
        if claim is None:
            if use.ephemeral:
                return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
            return not_found("persistentvolumeclaims", use.name)
        if claim.status.phase == "Lost":
            volume = claim.spec.volume_name
            return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{volume}"'
        if claim.metadata.deletion_timestamp is not None:
            return f'persistentvolumeclaim "{use.name}" is being deleted'
        if use.ephemeral and (why := not_owned(pod, claim)):
            return why
    return None


def _is_delayed(claim: model.PersistentVolumeClaim, objects: StorageObjects) -> bool | Status:
    name = class_of_claim(claim)
    storage_class = objects.storage_class(name) if name else None
    if storage_class is None:
        return False
    if storage_class.volume_binding_mode is None:
        return Status(Code.ERROR, (f'VolumeBindingMode not set for StorageClass "{name}"',))
    return storage_class.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER
