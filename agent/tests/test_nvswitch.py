"""A broken NVLink fabric of a node, which shows on several GPUs, and the faults of one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import UUID

import pynvml
import pytest

from gangline_agent.nvml import Nvml

from .fake_nvml import FakeEvent, FakeFabric, FakeGpu, FakeLink, FakeMig, FakeNvml, hgx

CLUSTER = UUID("5a1a5d7e-0000-0000-0000-000000000001").bytes
UNHEALTHY = pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE << 4
HEALTHY = (
    pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_FALSE << 4
    | pynvml.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE << 8
)
SLOW = pynvml.NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE
RECOVERS = pynvml.NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_TRUE << 2
NO_PARTITION = pynvml.NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NO_PARTITION << 8
BROKEN = "NVLink fabric of the node is broken"


def node(faults: Mapping[int, FakeFabric]) -> FakeNvml:
    """Eight H100 at NVSwitches, with these faults."""
    api = hgx()
    for gpu in api.gpus:
        gpu.fabric = faults.get(gpu.index, FakeFabric(bytes(16), 0, health=HEALTHY))
    return api


def ill(api: FakeNvml, root: Path, word: str = BROKEN) -> set[int]:
    """The GPUs of which the agent says this."""
    return {gpu.id for gpu in Nvml(api, root).read().gpus if any(word in problem for problem in gpu.problems)}


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (FakeFabric(CLUSTER, 1, health=UNHEALTHY), "NVLink fabric has unhealthy routes"),
        (FakeFabric(CLUSTER, 1, health=NO_PARTITION), "NVLink fabric is not configured correctly (number 4 of NVML)"),
        (FakeFabric(CLUSTER, 1, state=pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED), "NVLink fabric is not ready"),
        (FakeFabric(CLUSTER, 1, status=pynvml.NVML_ERROR_UNKNOWN), "NVLink fabric could not be set up"),
    ],
)
def test_a_fault_of_half_of_the_gpus_is_one_of_the_fabric(tmp_path: Path, fault: FakeFabric, says: str) -> None:
    api = node(dict.fromkeys((1, 4, 5, 7), fault))

    assert ill(api, tmp_path) == set(range(8))
    assert ill(api, tmp_path, f"{BROKEN} (4 of 8 GPUs show it, GPU 1: {says}") == set(range(8))
    assert {gpu.id for gpu in Nvml(api, tmp_path).read().gpus if gpu.problems[0].startswith(says)} == {1, 4, 5, 7}


@pytest.mark.parametrize("numbers", [(3,), (1, 2, 3)])
def test_a_fault_of_few_gpus_is_their_own(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    api = node(dict.fromkeys(numbers, FakeFabric(CLUSTER, 1, health=UNHEALTHY)))

    assert not ill(api, tmp_path)
    assert ill(api, tmp_path, "unhealthy routes") == set(numbers)


@pytest.mark.parametrize("health", [0, HEALTHY, HEALTHY | SLOW, HEALTHY | RECOVERS])
def test_a_fabric_that_works_is_no_problem(tmp_path: Path, health: int) -> None:
    api = node(dict.fromkeys(range(8), FakeFabric(CLUSTER, 1, health=health)))

    assert not ill(api, tmp_path, "")


def test_nvlink_errors_of_half_of_the_gpus_are_a_fault_of_the_fabric(tmp_path: Path) -> None:
    api = hgx()
    session = Nvml(api, tmp_path)
    session.read()
    for number in range(4):
        api.events.put(FakeEvent(api.gpus[number], pynvml.nvmlEventTypeXidCriticalError, 74))
        assert session.wait(1.0)

    found = session.read().gpus

    assert [len(gpu.problems) for gpu in found] == [2, 2, 2, 2, 1, 1, 1, 1]
    assert all(BROKEN in gpu.problems[-1] for gpu in found)


def test_gpus_with_links_to_each_other_have_no_fabric_that_could_break(tmp_path: Path) -> None:
    api = FakeNvml([FakeGpu(number, links=[FakeLink(f"00000000:{2 - number:02X}:00.0")]) for number in range(2)])
    session = Nvml(api, tmp_path)
    session.read()
    for gpu in api.gpus:
        api.events.put(FakeEvent(gpu, pynvml.nvmlEventTypeXidCriticalError, 74))
        session.wait(1.0)

    assert [gpu.problems for gpu in session.read().gpus] == [("XID 74: NVLink error",)] * 2


def test_gpus_in_mig_mode_do_not_need_the_fabric(tmp_path: Path) -> None:
    api = node(dict.fromkeys(range(7), FakeFabric(CLUSTER, 1, health=UNHEALTHY)))
    api.gpus[7].mig = [FakeMig("MIG-1", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", 9728)]

    assert ill(api, tmp_path) == set(range(7))


def test_a_fabric_that_works_again_is_well(tmp_path: Path) -> None:
    api = node(dict.fromkeys(range(8), FakeFabric(CLUSTER, 1, health=UNHEALTHY)))
    session = Nvml(api, tmp_path)
    session.read()
    for gpu in api.gpus:
        gpu.fabric = FakeFabric(CLUSTER, 1, health=HEALTHY)
    api.gpus[0].error = pynvml.NVML_ERROR_GPU_IS_LOST

    assert [len(gpu.problems) for gpu in session.read().gpus] == [1, 0, 0, 0, 0, 0, 0, 0]
