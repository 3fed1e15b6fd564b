"""From a reading to islands, links, bandwidth and health."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gangline.wire.custom_resources import Fabric, GpuNodeStatusStatus
from gangline_agent import hardware, inventory
from gangline_agent.readings import SWITCH, Gpu, NvLink, Reading, Unavailable


def links(reading: Reading, gpu: int) -> dict[int, tuple[str, float]]:
    """Each peer of a GPU with the kind of the link and its GB/s."""
    return {link.peer: (link.kind, link.gbps) for link in inventory.devices(reading)[gpu].links}


def sick(reading: Reading, gpu: int, *problems: str) -> Reading:
    gpus = tuple(replace(each, problems=problems) if each.id == gpu else each for each in reading.gpus)
    return replace(reading, gpus=gpus)


def status(
    read: Reading | Unavailable, now: float = 0.0, before: GpuNodeStatusStatus | None = None
) -> GpuNodeStatusStatus:
    return inventory.status(read, Fabric(), now, before)


@pytest.mark.parametrize(
    ("preset", "gpus", "gbps"),
    [
        pytest.param("dgx-h100", 8, 900, id="H100: 18 links of 50"),
        pytest.param("hgx-a100", 8, 600, id="A100: 12 links of 50"),
        pytest.param("dgx-a100", 8, 600, id="A100 80 GB"),
        pytest.param("b200", 8, 1800, id="B200: 18 links of 100"),
        pytest.param("gb200", 4, 1800, id="GB200 tray"),
    ],
)
def test_gpus_at_switches_reach_every_peer_with_all_their_links(preset: str, gpus: int, gbps: int) -> None:
    reading = hardware.PRESETS[preset]()
    devices = inventory.devices(reading)

    assert [device.id for device in devices] == list(range(gpus))
    assert {device.island for device in devices} == {"nvlink-group-0"}
    assert {device.bandwidth_gbps for device in devices} == {gbps}
    assert links(reading, 0) == {peer: ("NVLINK", float(gbps)) for peer in range(1, gpus)}


def test_a_cube_mesh_is_one_island_of_single_and_double_links() -> None:
    reading = hardware.dgx_1()
    devices = inventory.devices(reading)

    assert {device.bandwidth_gbps for device in devices} == {300}
    assert {device.island for device in devices} == {"nvlink-group-0"}
    assert links(reading, 0) == {
        1: ("NVLINK", 50.0),
        2: ("NVLINK", 50.0),
        3: ("NVLINK", 100.0),
        4: ("NVLINK", 100.0),
        5: ("SYS", 32.0),
        6: ("SYS", 32.0),
        7: ("SYS", 32.0),
    }


def test_bridges_make_islands_of_two() -> None:
    reading = hardware.pcie_4()

    assert [device.island for device in inventory.devices(reading)] == ["nvlink-group-0"] * 2 + ["nvlink-group-1"] * 2
    assert links(reading, 3) == {0: ("SYS", 64.0), 1: ("SYS", 64.0), 2: ("NVLINK", 600.0)}


def test_without_nvlink_every_gpu_is_an_island_and_pcie_tells_them_apart() -> None:
    reading = hardware.pcie_8()
    devices = inventory.devices(reading)

    assert [device.island for device in devices] == [f"gpu-{index}" for index in range(8)]
    assert {device.bandwidth_gbps for device in devices} == {0}
    assert [kind for kind, _ in links(reading, 0).values()] == ["PIX", "NODE", "NODE", "SYS", "SYS", "SYS", "SYS"]
    assert [device.numa_node for device in devices] == [0, 0, 0, 0, 1, 1, 1, 1]


def test_with_missing_links_to_the_switch_a_pair_has_those_of_the_poorer() -> None:
    rich = Gpu(id=0, bus_id="a", nvlinks=(NvLink(SWITCH, 50.0),) * 18)
    poor = Gpu(id=1, bus_id="b", nvlinks=(NvLink(SWITCH, 50.0),) * 16)
    reading = Reading(gpus=(rich, poor))

    assert [device.bandwidth_gbps for device in inventory.devices(reading)] == [900, 800]
    assert links(reading, 0) == {1: ("NVLINK", 800.0)}
    assert links(reading, 1) == {0: ("NVLINK", 800.0)}


def test_links_that_end_nowhere_on_the_node_join_no_island() -> None:
    outside = (NvLink("00000000:FF:00.0", 50.0),) * 4
    reading = Reading(gpus=(Gpu(id=0, bus_id="a", nvlinks=outside), Gpu(id=1, bus_id="b", nvlinks=outside)))

    assert [device.island for device in inventory.devices(reading)] == ["gpu-0", "gpu-1"]
    assert links(reading, 0) == {}


def test_a_sick_gpu_keeps_its_place_and_has_no_bandwidth() -> None:
    well = hardware.dgx_h100()
    reading = sick(well, 3, "XID 79: GPU has fallen off the bus", "2 uncorrected ECC errors")
    device = inventory.devices(reading)[3]

    assert (device.health, device.bandwidth_gbps, device.island) == ("Unhealthy", 0, "nvlink-group-0")
    assert device.reason == "XID 79: GPU has fallen off the bus; 2 uncorrected ECC errors"
    assert links(reading, 3) == links(well, 3)
    assert {each.health for each in inventory.devices(reading) if each.id != 3} == {"Healthy"}


def test_the_clique_is_that_of_all_gpus_or_none() -> None:
    reading = hardware.gb200()
    together = replace(reading, gpus=tuple(replace(gpu, clique="rack.1") for gpu in reading.gpus))
    apart = replace(reading, gpus=tuple(replace(gpu, clique=f"rack.{gpu.id}") for gpu in reading.gpus))

    fabrics = [status(each).fabric for each in (together, apart)]

    assert [fabric.clique for fabric in fabrics if fabric] == ["rack.1", ""]


def test_without_nvml_there_are_no_devices_and_a_condition_says_why() -> None:
    said = status(Unavailable("DriverNotLoaded", "Driver Not Loaded"))

    assert (said.total, said.devices) == (0, [])
    (condition,) = said.conditions
    assert (condition.type, condition.status) == ("NVMLAvailable", "False")
    assert (condition.reason, condition.message) == ("DriverNotLoaded", "Driver Not Loaded")


def test_the_condition_keeps_its_time_until_its_status_changes() -> None:
    first = status(hardware.pcie_4(), now=0.0)
    second = status(hardware.pcie_4(), now=30.0, before=first)
    third = status(Unavailable("NVMLError", "Unknown Error"), now=60.0, before=second)

    times = [each.conditions[0].last_transition_time for each in (first, second, third)]

    assert times == ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z"]
    assert second.heartbeat_time == "1970-01-01T00:00:30Z"


def test_only_what_is_said_makes_a_difference_not_when() -> None:
    reading = hardware.pcie_4()
    first = status(reading, now=0.0)

    assert not inventory.differs(first, status(reading, now=30.0))
    assert inventory.differs(first, status(sick(reading, 0, "XID 48: double-bit ECC error"), now=30.0))
    assert inventory.differs(first, status(Unavailable("NVMLError", "Unknown Error"), now=30.0))
