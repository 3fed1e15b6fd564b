"""Says which XIDs, the error numbers of NVIDIA's driver, mean that a GPU must not be used."""

from __future__ import annotations

APPLICATION = frozenset({13, 31, 43, 45, 68, 109})
"""XIDs that programs cause on healthy GPUs. NVIDIA's device plugin ignores the same XIDs."""

MEANINGS = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    63: "ECC page retirement or row remapping",
    64: "ECC page retirement or row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "many single-bit ECC errors",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP does not answer",
    120: "GSP error",
    140: "unrecovered ECC error",
    143: "GPU did not initialise",
}


def problem(xid: int) -> str | None:
    """The problem of a GPU with this XID; None if the XID does not concern the GPU's health."""
    if xid in APPLICATION:
        return None
    return f"XID {xid}: {MEANINGS[xid]}" if xid in MEANINGS else f"XID {xid}"
