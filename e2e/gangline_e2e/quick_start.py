"""The first steps of a user who has installed the chart: a claim, and a pod with the claim and a limit of one GPU."""

from __future__ import annotations

from gangline_e2e.chart import RELEASE
from gangline_e2e.workloads import GPU, Manifest

CLAIM: Manifest = {
    "apiVersion": "gpu.scheduling/v1",
    "kind": "GpuClaim",
    "metadata": {"name": "single-gpu", "namespace": RELEASE},
    "spec": {"devices": {"count": 1, "policy": "contiguous", "exclusivity": "Exclusive"}},
}
SAYS = "echo CVD=$CUDA_VISIBLE_DEVICES order=$CUDA_DEVICE_ORDER; sleep 3600"


def pod(name: str, node: str = "") -> Manifest:
    """A pod with the claim and a limit of one GPU, that prints what it sees; on one node if that is named."""
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    container = {
        "name": "cuda",
        "image": "nvidia/cuda:12.4.1-base-ubuntu22.04",
        "command": ["sh", "-c", SAYS],
        "resources": {"limits": {GPU: "1"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": RELEASE, "annotations": {"gpu.scheduling/claim": "single-gpu"}},
        "spec": {"schedulerName": "gpu-scheduler", "restartPolicy": "Never", "containers": [container], **selector},
    }
