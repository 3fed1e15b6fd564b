"""Tells a broken NVLink fabric of a node from the fault of one GPU.

NVML does not speak of NVSwitches. What it says of each GPU shows their faults: links with errors, routes that are
unhealthy, a fabric that is not set up. A fault of one GPU among several is its own. If two or more show one, and they
are half or more of the GPUs at NVSwitches, the fabric is broken. Then no GPU that needs it may be used: CUDA does not
start there, and what runs on several GPUs waits for ever.

GPUs in MIG mode have no NVLinks, and do not need the fabric.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gangline_agent import xids
from gangline_agent.readings import Gpu

NVLINK_ERROR = xids.problem(74)
FEWEST = 2


def judged(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs; where the fabric is broken, all that need it have the problem."""
    on_fabric = [gpu for gpu in gpus if gpu.on_fabric and not gpu.mig]
    faults = {gpu.id: fault for gpu in on_fabric if (fault := _fault(gpu))}
    if len(faults) < FEWEST or 2 * len(faults) < len(on_fabric):
        return tuple(gpus)
    first = min(faults)
    seen = f"{len(faults)} of {len(on_fabric)} GPUs show it, GPU {first}: {faults[first]}"
    problem = f"NVLink fabric of the node is broken ({seen})"
    return tuple(
        replace(gpu, problems=(*gpu.problems, problem)) if gpu.on_fabric and not gpu.mig else gpu for gpu in gpus
    )


def _fault(gpu: Gpu) -> str:
    """What is wrong with the part of the fabric that the GPU sees; "" if nothing is."""
    return gpu.fabric_problem or next((problem for problem in gpu.problems if problem == NVLINK_ERROR), "")
