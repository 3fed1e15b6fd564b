"""PersistentVolumeClaims, PersistentVolumes, and the classes and CSI drivers that volumes come from."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta, Quantity, ResourceRequirements, Resources, TypedReference
from gangline.model.selecting import LabelSelector, NodeSelector


class PersistentVolumeClaimSpec(Object):
    """spec of a claim."""

    access_modes: list[str] = []
    resources: ResourceRequirements | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    selector: LabelSelector | None = None


class PersistentVolumeClaimStatus(Object):
    """status of a claim."""

    phase: str = ""
    capacity: Resources | None = None


class PersistentVolumeClaim(Object):
    """A claim for a volume."""

    metadata: ObjectMeta
    spec: PersistentVolumeClaimSpec = msgspec.field(default_factory=PersistentVolumeClaimSpec)
    status: PersistentVolumeClaimStatus = msgspec.field(default_factory=PersistentVolumeClaimStatus)


class CSIPersistentVolume(Object):
    """spec.csi of a persistent volume."""

    driver: str = ""
    volume_handle: str = ""


class VolumeNodeAffinity(Object):
    """Which nodes can reach a volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(Object):
    """spec of a volume."""

    capacity: Resources | None = None
    access_modes: list[str] = []
    claim_ref: TypedReference | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolume | None = None
    persistent_volume_reclaim_policy: str = ""


class PersistentVolumeStatus(Object):
    """status of a volume."""

    phase: str = ""


class PersistentVolume(Object):
    """A volume."""

    metadata: ObjectMeta
    spec: PersistentVolumeSpec = msgspec.field(default_factory=PersistentVolumeSpec)
    status: PersistentVolumeStatus = msgspec.field(default_factory=PersistentVolumeStatus)


class TopologySelectorLabelRequirement(Object):
    """A label key and the values allowed."""

    key: str
    values: list[str] = []


class TopologySelectorTerm(Object):
    """Requirements, ANDed."""

    match_label_expressions: list[TopologySelectorLabelRequirement] = []


class StorageClass(Object):
    """How the volumes of a class are provisioned."""

    metadata: ObjectMeta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologySelectorTerm] = []


class CSINodeDriverAllocatable(Object):
    """The number of volumes of a driver that can be attached to a node."""

    count: int | None = None


class CSINodeDriver(Object):
    """A driver on a node."""

    name: str = ""
    node_id: str = msgspec.field(default="", name="nodeID")
    allocatable: CSINodeDriverAllocatable | None = None
    topology_keys: list[str] = []


class CSINodeSpec(Object):
    """spec of a CSINode."""

    drivers: list[CSINodeDriver] | None = None


class CSINode(Object):
    """The drivers of a node."""

    metadata: ObjectMeta
    spec: CSINodeSpec = msgspec.field(default_factory=CSINodeSpec)


class CSIDriverSpec(Object):
    """spec of a CSIDriver."""

    storage_capacity: bool = False


class CSIDriver(Object):
    """A driver."""

    metadata: ObjectMeta
    spec: CSIDriverSpec = msgspec.field(default_factory=CSIDriverSpec)


class CSIStorageCapacity(Object):
    """Free space of a storage class in one part of the cluster."""

    metadata: ObjectMeta
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


class VolumeAttachmentSource(Object):
    """The volume to attach."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Object):
    """spec of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = msgspec.field(default_factory=VolumeAttachmentSource)


class VolumeAttachment(Object):
    """A volume attached to a node."""

    metadata: ObjectMeta
    spec: VolumeAttachmentSpec = msgspec.field(default_factory=VolumeAttachmentSpec)
