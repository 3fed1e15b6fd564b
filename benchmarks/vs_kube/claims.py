"""What the workloads `claims` and `claims-match` are made of: every pod has a ResourceClaim of its own.

Each node offers 8 devices in a ResourceSlice, four behind each of two PCIe roots. In `claims-match` every claim asks
for two devices behind one root. The pods ask for claims by a template. The benchmark makes the claims, as
kube-controller-manager does, before the schedulers start; nobody prepares the devices.
"""

from __future__ import annotations

from gangline_e2e import workloads
from gangline_e2e.api import Api
from gangline_e2e.claims.building import API

DRIVER = "gpu.example.com"
ROOT = f"{DRIVER}/root"
PER_NODE = 8


def _slice(node: str) -> workloads.Manifest:
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"gpu-{number}",
                    "attributes": {
                        "model": {"string": "a100"},
                        "root": {"string": f"{node}-{number // 4}"},
                    },
                    "capacity": {"memory": {"value": "40Gi"}},
                }
                for number in range(PER_NODE)
            ],
        },
    }


def _class() -> workloads.Manifest:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [selector]},
    }


def _claim(pod: workloads.Manifest, match: bool) -> workloads.Manifest:
    request = {"name": "gpus", "exactly": {"deviceClassName": DRIVER, "count": 2 if match else 1}}
    devices: workloads.Manifest = {"requests": [request]}
    if match:
        devices["constraints"] = [{"matchAttribute": ROOT}]
    metadata = {
        "name": pod["metadata"]["name"],
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpus"},
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": pod["metadata"]["name"],
                "uid": pod["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": metadata, "spec": {"devices": devices}}


async def prepare(cluster: Api, nodes: list[str]) -> None:
    """Create the class and the slices of these nodes."""
    await cluster.create(_class())
    await cluster.create_many(map(_slice, nodes))


async def give_claims(cluster: Api, pods: workloads.Manifests, match: bool) -> None:
    """Create the claim of each of these pods, and name it in the status of the pod."""
    await cluster.create_many(_claim(pod, match) for pod in pods)
    await cluster.merge_many((f"{cluster.pods}/{pod['metadata']['name']}/status", _status(pod)) for pod in pods)


def _status(pod: workloads.Manifest) -> workloads.Manifest:
    return {"status": {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": pod["metadata"]["name"]}]}}


def pod(name: str, scheduler: str) -> workloads.Manifest:
    """A pod with a claim from a template."""
    made = workloads.gpu_pod(name, gpus=0, cpu="100m", memory="100Mi", scheduler_name=scheduler)
    made["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": "gpus"}]
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    return made
