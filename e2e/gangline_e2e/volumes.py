"""Manifests of storage classes, volumes and claims."""

from __future__ import annotations

from collections.abc import Mapping

from gangline_e2e.workloads import Manifest

DRIVER = "disks.example.com"


def class_without_provisioner(name: str, mode: str) -> Manifest:
    """A StorageClass whose volumes are made by hand; ``mode`` is Immediate or WaitForFirstConsumer."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": mode,
    }


def local_volume(name: str, node: str, storage_class: str) -> Manifest:
    """A PersistentVolume of 10 GiB on one node."""
    spec = {"local": {"path": f"/mnt/{name}"}, "storageClassName": storage_class}
    return _volume(name, spec, {"kubernetes.io/hostname": node}, "ReadWriteOnce")


def disk(name: str, claim: str, where: Mapping[str, str], *, mode: str = "ReadWriteOnce") -> Manifest:
    """A CSI volume of 10 GiB, kept for the claim NAMESPACE/NAME, for the nodes with the labels ``where``."""
    namespace, claim_name = claim.split("/")
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim_name}
    spec = {"csi": {"driver": DRIVER, "volumeHandle": name}, "claimRef": reference}
    return _volume(name, spec, where, mode)


def claim(
    name: str, storage_class: str, size: str, *, volume: str | None = None, mode: str = "ReadWriteOnce"
) -> Manifest:
    """A PersistentVolumeClaim; ``volume`` names the one volume that it is for."""
    spec: Manifest = {
        "accessModes": [mode],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": size}},
    }
    if volume is not None:
        spec["volumeName"] = volume
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def _volume(name: str, source: Manifest, where: Mapping[str, str], mode: str) -> Manifest:
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in where.items()]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": [mode],
            "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}},
            **source,
        },
    }


def is_claim_bound(claim: Manifest) -> bool:
    """Whether a claim has a volume and both know of it."""
    return bool(claim.get("status", {}).get("phase") == "Bound")
