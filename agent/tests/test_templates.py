"""What a simulated node reports, from a preset or a file."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from gangline.errors import ConfigError
from gangline_agent import hardware, templates
from gangline_agent.templates import Follower, Template

REAL = """
apiVersion: gpu.scheduling/v1
kind: GpuNodeStatus
metadata: {name: worker-1, uid: abc, resourceVersion: "7"}
spec: {nodeName: worker-1}
status:
  total: 2
  driverVersion: 550.54.15
  devices:
  - {id: 0, uuid: GPU-a, model: NVIDIA L4, memoryMiB: 23034, health: Healthy, links: [{peer: 1, kind: PHB}]}
  - {id: 1, uuid: GPU-b, model: NVIDIA L4, memoryMiB: 23034, health: Healthy, inUseBy: [pod-1]}
unhealthy:
  "*": {1: taken out}
"""


def test_devices_have_uuids_of_their_own_that_stay() -> None:
    template = templates.read("dgx-h100")
    one, same, other = (template.status_of(name, "", 0.0) for name in ("a", "a", "b"))

    uuids = [device.uuid for device in (*one.devices, *other.devices)]

    assert len(set(uuids)) == 16
    assert one == same


def test_instances_of_a_file_have_uuids_of_their_own_on_each_node(tmp_path: Path) -> None:
    file = tmp_path / "cut.yaml"
    file.write_text("status: {devices: [{id: 0, migDevices: [{profile: 1g.10gb}, {profile: 1g.10gb, uuid: MIG-a}]}]}")

    nodes = [templates.read(str(file)).status_of(name, "", 0.0) for name in ("a", "b")]

    uuids = {instance.uuid for node in nodes for instance in node.devices[0].mig_devices}
    assert len(uuids) == 4
    assert all(uuid.startswith("MIG-") for uuid in uuids)


@pytest.mark.parametrize("preset", hardware.PRESETS)
def test_every_preset_makes_a_healthy_node(preset: str) -> None:
    status = templates.read(preset).status_of("node", "rack.1", 30.0)

    assert status.total == len(status.devices) >= 4
    assert {device.health for device in status.devices} == {"Healthy"}
    assert status.fabric is not None
    assert status.fabric.clique == "rack.1"
    assert (status.heartbeat_time, status.conditions[0].status) == ("1970-01-01T00:00:30Z", "True")


def test_a_file_can_be_what_kubectl_printed_of_a_real_node(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(REAL)

    template = templates.read(str(file))
    status = template.status_of("kwok-1", "", 0.0)

    assert [device.model for device in status.devices] == ["NVIDIA L4"] * 2
    assert [device.reason for device in status.devices] == ["", "taken out"]
    assert status.devices[0].links[0].kind == "PHB"
    assert status.devices[1].in_use_by == []
    assert template.labels["nvidia.com/gpu.product"] == "NVIDIA-L4"


def test_gpus_fall_ill_on_the_nodes_that_are_named(tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    unhealthy = {"rack-1-*": {"2": "XID 79"}, "rack-1-b": {"3": "2 uncorrected ECC errors"}}
    file.write_bytes(msgspec.json.encode({"hardware": "pcie-4", "unhealthy": unhealthy}))
    template = templates.read(str(file))

    reasons = {
        node: [device.reason for device in template.status_of(node, "", 0.0).devices]
        for node in ("rack-1-a", "rack-1-b", "rack-2-a")
    }

    assert reasons == {
        "rack-1-a": ["", "", "XID 79", ""],
        "rack-1-b": ["", "", "XID 79", "2 uncorrected ECC errors"],
        "rack-2-a": ["", "", "", ""],
    }
    assert [device.health for device in template.status_of("rack-1-a", "", 0.0).devices][2] == "Unhealthy"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("{}", "needs either hardware or status", id="empty"),
        pytest.param("hardware: dgx-h100\nstatus: {}", "needs either hardware or status", id="both"),
        pytest.param("hardware: cray", "hardware: must be one of dgx-h100", id="no preset"),
        pytest.param("hardwear: dgx-h100", "unknown field `hardwear`", id="typing error"),
        pytest.param("status: {devices: [{id: 0}, {id: 0}]}", "two devices have the same id", id="ids twice"),
        pytest.param("status: {devices: [{id: 0, health: Fine}]}", "$.status.devices[0].health", id="health"),
        pytest.param("a: [", "expected the node content", id="no YAML"),
        pytest.param("a: " + "[" * 1_000, "nested too deeply", id="too deep"),
    ],
)
def test_a_file_that_cannot_be_used_says_where_it_is_wrong(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "fleet.yaml"
    file.write_text(text)

    with pytest.raises(ConfigError) as raised:
        templates.read(str(file))

    assert str(raised.value).startswith(f"{file}: ")
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_file_is_taken_again_when_it_changes_and_only_if_it_can_be_used(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    taken: list[Template] = []

    def write(text: str, moment: int) -> None:
        file.write_text(text)
        os.utime(file, ns=(moment, moment))

    write("hardware: pcie-4", 1)
    follower = Follower(str(file), taken.append)
    looks = [follower.look()]
    for moment, text in enumerate(("hardware: pcie-8", "hardware: cray", "hardware: gb200"), start=2):
        write(text, moment)
        looks += [follower.look(), follower.look()]

    assert looks == [False, True, False, False, False, True, False]
    assert [template.status.total for template in taken] == [8, 4]
