"""What a reading offers as devices of dynamic resource allocation."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.model.resource_slices import Device
from gangline_agent import devices, fabric, hardware, partitions
from gangline_agent.nvml import Nvml
from gangline_agent.readings import Gpu, MigInstance, Reading

from .fake_nvml import FakeGpu, FakeLink, FakeMig, FakeNvml


def plain(device: Device) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.to_builtins(device)
    return data


def attributes(device: Device) -> dict[str, Any]:
    return {key: next(iter(value.values())) for key, value in plain(device)["attributes"].items()}


def test_a_gpu_is_a_device_with_all_that_nvml_says(tmp_path: Path) -> None:
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    place = tmp_path / "sys/devices/pci0000:17/0000:17:01.0/0000:01:00.0"
    place.mkdir(parents=True)
    (place / "numa_node").write_text("1\n")
    (bus / "0000:01:00.0").symlink_to("../../../devices/pci0000:17/0000:17:01.0/0000:01:00.0")
    links = [FakeLink() for _ in range(18)]

    offer = devices.of_reading(Nvml(FakeNvml([FakeGpu(0, links=links)]), tmp_path).read())

    (device,) = offer.devices
    assert plain(device) == {
        "name": "gpu-0",
        "attributes": {
            "type": {"string": "gpu"},
            "uuid": {"string": "GPU-0"},
            "index": {"int": 0},
            "productName": {"string": "NVIDIA H100 80GB HBM3"},
            "architecture": {"string": "Hopper"},
            "cudaComputeCapability": {"version": "9.0.0"},
            "cudaDriverVersion": {"version": "12.8.0"},
            "driverVersion": {"version": "570.172.8"},
            "island": {"string": "gpu-0"},
            "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
            "resource.kubernetes.io/pcieRoot": {"string": "pci0000:17"},
            "resource.kubernetes.io/numaNode": {"int": 1},
        },
        "capacity": {"memory": {"value": "81559Mi"}},
    }
    assert offer.counters == ()


def test_what_is_not_known_is_left_out() -> None:
    (device,) = devices.of_reading(Reading(gpus=(Gpu(id=3, product="x" * 65, uuid="u"),))).devices

    assert attributes(device) == {"type": "gpu", "uuid": "u", "index": 3, "island": "gpu-3"}
    assert device.capacity == {}


@pytest.mark.parametrize(
    ("driver", "version"),
    [
        ("570.172.08", "570.172.8"),
        ("550.54", "550.54.0"),
        ("1.2.3.4", None),
        ("570-beta", None),
        ("", None),
        ("9" * 30, None),
    ],
)
def test_a_version_is_a_semantic_one_or_left_out(driver: str, version: str | None) -> None:
    (device,) = devices.of_reading(Reading(gpus=(Gpu(id=0),), driver=driver)).devices

    assert attributes(device).get("driverVersion") == version


@pytest.mark.parametrize(("mib", "text"), [(81559, "81559Mi"), (81920, "80Gi"), (1 << 20, "1Ti"), (1, "1Mi")])
def test_memory_is_written_as_the_api_server_writes_it(mib: int, text: str) -> None:
    (device,) = devices.of_reading(Reading(gpus=(Gpu(id=0, memory_mib=mib),))).devices

    assert device.capacity["memory"].value == text


def test_gpus_at_one_switch_have_one_pcie_root_and_linked_gpus_one_island() -> None:
    found = [attributes(device) for device in devices.of_reading(hardware.pcie_4()).devices]

    roots = [each["resource.kubernetes.io/pcieRoot"] for each in found]
    assert roots[0] == roots[1] != roots[2] == roots[3]
    assert [each["island"] for each in found] == ["nvlink-group-0"] * 2 + ["nvlink-group-1"] * 2


def test_the_clique_of_a_gpu_is_told() -> None:
    (device,) = devices.of_reading(Reading(gpus=(Gpu(id=0, clique="rack.7"),))).devices

    assert attributes(device)["clique"] == "rack.7"


def test_an_unhealthy_gpu_has_a_taint_that_evicts_nobody() -> None:
    sick, well = devices.of_reading(Reading(gpus=(Gpu(id=0, problems=("XID 79",)), Gpu(id=1)))).devices

    assert [(taint.key, taint.effect) for taint in sick.taints] == [("gangline.dev/unhealthy", "NoSchedule")]
    assert well.taints == []


def test_a_gpu_in_mig_mode_is_its_instances(tmp_path: Path) -> None:
    uuid = "MIG-0b1f4c55-9a41-5d7a-8c3e-6f0d2d1f0a01"
    instance = FakeMig(uuid, "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 4864)
    reading = Nvml(FakeNvml([FakeGpu(0, mig=[instance]), FakeGpu(1)]), tmp_path).read()

    part, whole = devices.of_reading(reading, with_partitions=False).devices

    assert part.name == f"gpu-0-{uuid.lower()}"
    said = attributes(part)
    assert (said["type"], said["uuid"], said["parentUUID"], said["profile"]) == ("mig", uuid, "GPU-0", "1g.5gb")
    assert said["productName"] == "NVIDIA H100 80GB HBM3"
    assert part.capacity["memory"].value == "4864Mi"
    assert (whole.name, attributes(whole)["type"]) == ("gpu-1", "gpu")


def test_an_old_uuid_of_an_instance_makes_a_name_that_the_api_server_takes() -> None:
    mig = (MigInstance("MIG-GPU-" + "ab" * 30 + "/1/0", "1g.5gb", 1),)

    (part,) = devices.of_reading(Reading(gpus=(Gpu(id=0, mig=mig),))).devices

    assert len(part.name) <= 63
    assert part.name.strip("abcdefghijklmnopqrstuvwxyz0123456789-") == ""


@pytest.mark.parametrize("preset", ["hgx-a100", "dgx-a100", "dgx-h100"])
def test_partitions_are_the_whole_gpu_and_every_profile_at_every_place(preset: str) -> None:
    reading = hardware.PRESETS[preset]()

    offer = devices.of_reading(reading, with_partitions=True)

    kinds = Counter(
        attributes(device).get("profile", "gpu").partition(".")[0]
        for device in offer.devices
        if device.name.startswith("gpu-0")
    )
    assert kinds == {"gpu": 1, "7g": 1, "4g": 1, "3g": 2, "2g": 3, "1g": 11}
    assert len({device.name for device in offer.devices}) == len(offer.devices) == 19 * len(reading.gpus)
    assert [each.name for each in offer.counters] == [f"gpu-{gpu.id}" for gpu in reading.gpus]
    for device in offer.devices:
        (consumed,) = device.consumes_counters
        (shared,) = (each for each in offer.counters if each.name == consumed.counter_set)
        assert all(int(count.value) <= int(shared.counters[key].value) for key, count in consumed.counters.items())


def test_the_whole_gpu_takes_all_that_its_parts_share() -> None:
    offer = devices.of_reading(hardware.dgx_h100(), with_partitions=True)

    (consumed,) = offer.devices[0].consumes_counters
    assert consumed.counters == offer.counters[0].counters
    assert {key for key in consumed.counters if key.startswith("memory-slice-")} == {
        f"memory-slice-{at}" for at in range(8)
    }


@pytest.mark.parametrize("product", ["NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"])
def test_seven_smallest_partitions_fit_on_a_gpu_together(product: str) -> None:
    parts = partitions.of_product(product)
    total = {key: int(count.value) for key, count in partitions.counters(parts).items()}

    smallest = [part for part in parts if part.slices == 1]
    taken = Counter[str]()
    for part in smallest:
        taken.update({key: int(count.value) for key, count in partitions.amounts(part).items()})

    assert len(smallest) == 7
    assert all(taken[key] <= total[key] for key in taken)


def test_a_gpu_of_which_no_partitions_are_known_stays_whole() -> None:
    offer = devices.of_reading(hardware.pcie_8(), with_partitions=True)

    assert [device.name for device in offer.devices] == [f"gpu-{id_}" for id_ in range(8)]
    assert offer.counters == ()


def test_a_gpu_that_is_cut_already_is_not_cut_again() -> None:
    reading = hardware.hgx_a100()
    cut = replace(reading.gpus[0], mig=(MigInstance("MIG-1", "3g.20gb", 19968),))

    offer = devices.of_reading(replace(reading, gpus=(cut,)), with_partitions=True)

    assert [device.name for device in offer.devices] == ["gpu-0-mig-1"]


def test_a_device_that_the_kernel_does_not_know_has_no_pcie_root(tmp_path: Path) -> None:
    assert fabric.pcie_root(tmp_path, "00000000:01:00.0") == ""
