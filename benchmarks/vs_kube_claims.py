"""The workloads `claims` and `claims-match` of vs_kube_scheduler.py: every pod has a ResourceClaim of its own.

Each node offers 8 devices in a ResourceSlice, four behind each of two PCIe roots. In `claims-match` every claim asks
for two devices behind one root. The claims are created before the schedulers start, and nobody prepares the devices.
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


def _claim(name: str, match: bool) -> workloads.Manifest:
    request = {"name": "gpus", "exactly": {"deviceClassName": DRIVER, "count": 2 if match else 1}}
    devices: workloads.Manifest = {"requests": [request]}
    if match:
        devices["constraints"] = [{"matchAttribute": ROOT}]
    return {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": {"devices": devices}}


async def prepare(cluster: Api, nodes: list[str], pods: list[str], match: bool) -> None:
    """Create the class, the slices of these nodes, and a claim for each of these pods."""
    await cluster.create(_class())
    await cluster.create_many(map(_slice, nodes))
    await cluster.create_many(_claim(name, match) for name in pods)


def pod(name: str, scheduler: str) -> workloads.Manifest:
    """A pod with the claim of its name."""
    made = workloads.gpu_pod(name, gpus=0, cpu="100m", memory="100Mi", scheduler_name=scheduler)
    made["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": name}]
    made["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    return made
