"""Says which variables NCCL and cuFile need for the fabric that a claim asks for."""

from __future__ import annotations

from gangline.wire.custom_resources import GpuClaim
from gangline_webhook.pods import EnvVar, literal

GDR_LEVEL = "PHB"
"""GPUDirect RDMA between a GPU and any adapter on its NUMA node; NCCL itself stops at PCIe switches."""
CUFILE_CONFIG = "/etc/cufile.json"
"""Where GPUDirect Storage keeps its settings unless told otherwise."""


def variables(claim: GpuClaim) -> list[EnvVar]:
    """The variables for a claim, none if it asks for no fabric."""
    found = []
    if network := claim.spec.network:
        if network.preferred_hcas:
            # Without "=" NCCL takes names as prefixes: mlx5_1 would mean mlx5_10 too.
            found.append(literal("NCCL_IB_HCA", "=" + ",".join(network.preferred_hcas)))
        if network.rdma_required:
            found.append(literal("NCCL_NET_GDR_LEVEL", GDR_LEVEL))
    if claim.spec.storage and claim.spec.storage.cu_file:
        # The library reads the first; the second is the name in older manifests.
        found += [literal("CUFILE_ENV_PATH_JSON", CUFILE_CONFIG), literal("CUFILE_ENV_PATH", CUFILE_CONFIG)]
    return found
