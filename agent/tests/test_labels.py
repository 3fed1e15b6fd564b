"""Node labels in the form of gpu-feature-discovery."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from gangline_agent import hardware, labels
from gangline_agent.readings import Reading


def test_a_dgx_gets_the_labels_that_discovery_would_set() -> None:
    reading = hardware.dgx_h100()
    in_a_rack = replace(reading, gpus=tuple(replace(gpu, clique="rack.1") for gpu in reading.gpus))

    assert labels.labels_of(in_a_rack) == {
        "nvidia.com/cuda.driver-version.full": "570.172.08",
        "nvidia.com/cuda.driver-version.major": "570",
        "nvidia.com/cuda.driver-version.minor": "172",
        "nvidia.com/cuda.driver-version.revision": "08",
        "nvidia.com/cuda.runtime-version.full": "12.8",
        "nvidia.com/cuda.runtime-version.major": "12",
        "nvidia.com/cuda.runtime-version.minor": "8",
        "nvidia.com/gpu.clique": "rack.1",
        "nvidia.com/gpu.compute.major": "9",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.family": "hopper",
        "nvidia.com/gpu.machine": "DGXH100",
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.replicas": "1",
        "nvidia.com/gpu.sharing-strategy": "none",
        "nvidia.com/mig.capable": "true",
        "nvidia.com/mps.capable": "false",
    }


def test_a_node_without_gpus_gets_none() -> None:
    assert labels.labels_of(Reading(driver="570.172.08")) == {}


@pytest.mark.parametrize(
    ("compute", "family"),
    [((6, 0), "pascal"), ((7, 0), "volta"), ((7, 5), "turing"), ((8, 0), "ampere"), ((8, 6), "ampere"),
     ((8, 9), "ada-lovelace"), ((9, 0), "hopper"), ((10, 0), "blackwell"), ((12, 0), "blackwell"), ((99, 0), "")],
    ids=str,
)  # fmt: skip
def test_the_family_follows_from_the_compute_capability(compute: tuple[int, int], family: str) -> None:
    assert labels.family(compute) == family


def test_values_are_what_a_label_may_hold() -> None:
    odd = replace(hardware.pcie_4(), machine=" (X) Serv\u00e9r / 4U " + "y" * 80)

    value = labels.labels_of(odd)["nvidia.com/gpu.machine"]

    assert re.fullmatch(r"X-Servr--4U-y+", value)
    assert len(value) == 63


def test_discovery_is_known_by_its_timestamp() -> None:
    assert labels.discovered_elsewhere({"nvidia.com/gfd.timestamp": "1767225600"})
    assert not labels.discovered_elsewhere({"nvidia.com/gpu.present": "true"})
    assert not labels.discovered_elsewhere(None)


@pytest.mark.parametrize("driver", ["\ufffd", "570 beta", "x" * 96, "-570.1-"])
def test_a_version_that_is_no_value_of_a_label_is_made_one(driver: str) -> None:
    made = labels.labels_of(replace(hardware.dgx_h100(), driver=driver))

    allowed = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
    assert all(allowed.fullmatch(value) for value in made.values())
