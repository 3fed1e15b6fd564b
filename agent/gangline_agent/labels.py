"""Makes the node labels of gpu-feature-discovery, for nodes without gpu-feature-discovery."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gangline_agent.readings import Gpu, Reading

TIMESTAMP = "nvidia.com/gfd.timestamp"
"""A label of gpu-feature-discovery; on a node with this label the agent sets no labels."""

FAMILIES = {
    3: "kepler",
    5: "maxwell",
    6: "pascal",
    7: "volta",
    8: "ampere",
    9: "hopper",
    10: "blackwell",
    12: "blackwell",
}
"""Major compute capability to family; two families share the numbers 7 and 8."""
LONGEST = 63


def discovered_elsewhere(labels: Mapping[str, str] | None) -> bool:
    """Whether gpu-feature-discovery labels this node."""
    return TIMESTAMP in (labels or {})


def labels_of(reading: Reading) -> dict[str, str]:
    """The labels for a node with these GPUs, none without any.

    Like gpu-feature-discovery it describes the first GPU and counts all GPUs.
    """
    if not reading.gpus:
        return {}
    first = reading.gpus[0]
    cliques = {gpu.clique for gpu in reading.gpus if gpu.clique}
    made = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(len(reading.gpus)),
        "nvidia.com/gpu.product": _value(first.product),
        "nvidia.com/gpu.memory": str(first.memory_mib) if first.memory_mib else "",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/gpu.machine": _value(reading.machine),
        "nvidia.com/gpu.clique": cliques.pop() if len(cliques) == 1 else "",
        "nvidia.com/mig.capable": str(any(gpu.mig_capable for gpu in reading.gpus)).lower(),
        "nvidia.com/mps.capable": "false",
        **_compute(first),
        **_versions(reading),
    }
    return {key: value for key, value in made.items() if value}


def family(compute: tuple[int, int]) -> str:
    """The family of a compute capability, empty if it is not known."""
    if (7, 5) <= compute < (8, 0):
        return "turing"
    if compute == (8, 9):
        return "ada-lovelace"
    return FAMILIES.get(compute[0], "")


def _compute(gpu: Gpu) -> dict[str, str]:
    if gpu.compute == (0, 0):
        return {}
    major, minor = gpu.compute
    return {
        "nvidia.com/gpu.family": family(gpu.compute),
        "nvidia.com/gpu.compute.major": str(major),
        "nvidia.com/gpu.compute.minor": str(minor),
    }


def _versions(reading: Reading) -> dict[str, str]:
    made: dict[str, str] = {}
    if driver := _value(reading.driver):
        parts = [*driver.split("."), "", ""]
        made["nvidia.com/cuda.driver-version.full"] = driver
        for name, part in zip(("major", "minor", "revision"), parts, strict=False):
            made[f"nvidia.com/cuda.driver-version.{name}"] = _value(part)
    if reading.cuda != (0, 0):
        major, minor = reading.cuda
        made["nvidia.com/cuda.runtime-version.full"] = f"{major}.{minor}"
        made["nvidia.com/cuda.runtime-version.major"] = str(major)
        made["nvidia.com/cuda.runtime-version.minor"] = str(minor)
    return made


def _value(text: str) -> str:
    """A text as the value of a label: spaces become dashes, other forbidden characters are removed."""
    allowed = re.sub(r"[^A-Za-z0-9_.-]", "", re.sub(r"\s+", "-", text))
    return allowed.strip("-_.")[:LONGEST].rstrip("-_.")
