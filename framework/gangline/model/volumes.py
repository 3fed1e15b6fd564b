"""The volumes of a pod."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta
from gangline.model.storage import PersistentVolumeClaimSpec


class ClaimVolume(Object):
    """volumes[].persistentVolumeClaim."""

    claim_name: str = ""
    read_only: bool = False


class GCEPersistentDisk(Object):
    """volumes[].gcePersistentDisk."""

    pd_name: str = ""
    read_only: bool = False


class AWSElasticBlockStore(Object):
    """volumes[].awsElasticBlockStore."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    read_only: bool = False


class AzureDisk(Object):
    """volumes[].azureDisk."""

    disk_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")


class ISCSI(Object):
    """volumes[].iscsi."""

    target_portal: str = ""
    iqn: str = ""
    lun: int = 0
    read_only: bool = False


class RBD(Object):
    """volumes[].rbd."""

    monitors: list[str] = []
    image: str = ""
    pool: str = "rbd"
    read_only: bool = False


class CSIVolume(Object):
    """volumes[].csi, inline."""

    driver: str = ""
    read_only: bool | None = None


class ImageVolume(Object):
    """volumes[].image."""

    reference: str = ""
    pull_policy: str = ""


class ClaimTemplate(Object):
    """The template of a generic ephemeral volume's claim."""

    metadata: ObjectMeta | None = None
    spec: PersistentVolumeClaimSpec | None = None


class EphemeralVolume(Object):
    """volumes[].ephemeral."""

    volume_claim_template: ClaimTemplate | None = None


class Volume(Object):
    """A volume of a pod: only the sources that a scheduler has to know."""

    name: str = ""
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: EphemeralVolume | None = None
    gce_persistent_disk: GCEPersistentDisk | None = None
    aws_elastic_block_store: AWSElasticBlockStore | None = None
    azure_disk: AzureDisk | None = None
    iscsi: ISCSI | None = None
    rbd: RBD | None = None
    csi: CSIVolume | None = None
    image: ImageVolume | None = None
