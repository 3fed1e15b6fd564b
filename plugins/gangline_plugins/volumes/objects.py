"""How pods, claims, volumes and storage classes are related; shared by the volume plugins. Nothing here decides about
nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gangline import PodClass, PodInfo, State, model, requests, resources

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_STORAGE = "storage"
_KIND_OF = {
    "persistentvolumeclaims": "persistentvolumeclaim",
    "persistentvolumes": "persistentvolume",
    "storageclasses": "storageclass.storage.k8s.io",
}


class VolumeClaimUse(NamedTuple):
    """A claim that a pod uses. The claim of an ephemeral volume is created for the pod and named after it."""

    name: str
    ephemeral: bool


class StorageObjects:
    """The claims, volumes and classes that the cluster has now."""

    def __init__(self, state: State) -> None:
        self._claims = state.store(resources.PVCS)
        self._volumes = state.store(resources.PVS)
        self._classes = state.store(resources.STORAGE_CLASSES)

    def claim(self, namespace: str, name: str) -> model.PersistentVolumeClaim | None:
        """A claim, or None."""
        claim: model.PersistentVolumeClaim | None = self._claims.get(name, namespace)
        return claim

    def volume(self, name: str) -> model.PersistentVolume | None:
        """A persistent volume, or None."""
        volume: model.PersistentVolume | None = self._volumes.get(name)
        return volume

    def storage_class(self, name: str) -> model.StorageClass | None:
        """A storage class, or None."""
        found: model.StorageClass | None = self._classes.get(name)
        return found


def claims_of(pod: PodInfo) -> tuple[VolumeClaimUse, ...]:
    """The claims that a pod uses, one per volume, in the order of its volumes."""
    return tuple(
        VolumeClaimUse(f"{pod.name}-{use.name}" if use.ephemeral else use.name, use.ephemeral) for use in _uses(pod.cls)
    )


def uses_claims(cls: PodClass) -> bool:
    """Whether a pod of the class uses any claim."""
    return bool(_uses(cls))


def has_ephemeral_claims(cls: PodClass) -> bool:
    """Whether pods of the class have claims of their own, for ephemeral volumes."""
    return any([use.ephemeral for use in _uses(cls)])


def named_claims(cls: PodClass) -> tuple[str, ...]:
    """The claims that the spec itself names; those of ephemeral volumes are left out."""
    return tuple(use.name for use in _uses(cls) if not use.ephemeral)


def is_claim_of(pod: PodInfo, claim: model.PersistentVolumeClaim) -> bool:
    """Whether the pod uses this claim, by namespace and name."""
    metadata = claim.metadata
    return metadata.namespace == pod.namespace and any(use.name == metadata.name for use in claims_of(pod))


def names_claim(pod: PodInfo, claim: model.PersistentVolumeClaim) -> bool:
    """Whether the pod's spec itself names this claim."""
    metadata = claim.metadata
    return metadata.namespace == pod.namespace and metadata.name in named_claims(pod.cls)


def not_found(plural: str, name: str) -> str:
    """The message for a missing object, in the API's words."""
    return f'{_KIND_OF[plural]} "{name}" not found'


def not_owned(pod: PodInfo, claim: model.PersistentVolumeClaim) -> str | None:
    """Why the claim of an ephemeral volume does not belong to the pod; None if it does."""
    owner = next((o for o in claim.metadata.owner_references if o.controller), None)
    if claim.metadata.namespace == pod.namespace and owner is not None and owner.uid == pod.uid:
        return None
    name = f"{claim.metadata.namespace}/{claim.metadata.name}"
    return f"PVC {name} was not created for pod {pod.key} (pod is not owner)"


def class_of_claim(claim: model.PersistentVolumeClaim) -> str:
    """The name of the storage class that a claim asks for; the old annotation takes precedence."""
    beta = (claim.metadata.annotations or {}).get(_BETA_CLASS)
    return beta if beta is not None else claim.spec.storage_class_name or ""


def class_of_volume(volume: model.PersistentVolume) -> str:
    """The name of the storage class of a volume; the old annotation takes precedence."""
    beta = (volume.metadata.annotations or {}).get(_BETA_CLASS)
    return beta if beta is not None else volume.spec.storage_class_name


def is_fully_bound(claim: model.PersistentVolumeClaim) -> bool:
    """Whether claim and volume are bound in both directions."""
    return claim.spec.volume_name != "" and BIND_COMPLETED in (claim.metadata.annotations or {})


def selected_node(claim: model.PersistentVolumeClaim) -> str | None:
    """The node for which a provisioner was asked to create the volume."""
    return (claim.metadata.annotations or {}).get(SELECTED_NODE)


def requested_bytes(claim: model.PersistentVolumeClaim) -> int | None:
    """The size that a claim asks for; None if it names none. Raises InvalidQuantity."""
    resources = claim.spec.resources
    return _bytes(resources.requests if resources else None, f"claim {_key(claim.metadata)}: spec.resources.requests")


def capacity_bytes(volume: model.PersistentVolume) -> int:
    """The size of a volume. Raises InvalidQuantity."""
    return _bytes(volume.spec.capacity, f"volume {volume.metadata.name}: spec.capacity") or 0


def limit_bytes(capacity: model.CSIStorageCapacity) -> int | None:
    """The largest volume that fits; None if that is unknown. Raises InvalidQuantity."""
    limit = capacity.maximum_volume_size if capacity.maximum_volume_size is not None else capacity.capacity
    return None if limit is None else _bytes({_STORAGE: limit}, f"CSIStorageCapacity {_key(capacity.metadata)}")


def _bytes(resources: model.Resources | None, path: str) -> int | None:
    if not resources or _STORAGE not in resources:
        return None
    return requests.allocatable({_STORAGE: resources[_STORAGE]}, path)[_STORAGE]


def _key(metadata: model.ObjectMeta) -> str:
    return f"{metadata.namespace}/{metadata.name}"


def _uses(cls: PodClass) -> tuple[VolumeClaimUse, ...]:
    """As `claims_of`, for all pods of a class: an ephemeral claim has the name of its volume here."""
    found: tuple[VolumeClaimUse, ...] | None = cls.memo.get(VolumeClaimUse)
    if found is None:
        found = cls.memo[VolumeClaimUse] = tuple(_find_uses(cls.spec))
    return found


def _find_uses(spec: model.PodSpec) -> Iterator[VolumeClaimUse]:
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            yield VolumeClaimUse(volume.persistent_volume_claim.claim_name, False)
        elif volume.ephemeral is not None:
            yield VolumeClaimUse(volume.name, True)
