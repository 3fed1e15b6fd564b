"""Whether there are GPUs at all, from the bus, a device plugin or labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gangline.clock import SystemClock
from gangline.errors import ApiError, GanglineError, InvalidObject
from gangline.model import Node, NodeStatus, ObjectMeta
from gangline_agent import signs
from gangline_agent.signs import AGAIN, Signs


def node(amount: str = "", resource: str = "nvidia.com/gpu", labels: dict[str, str] | None = None) -> Node:
    resources: dict[str, Any] = {resource: amount} if amount else {"cpu": "4"}
    return Node(metadata=ObjectMeta(name="a", labels=labels), status=NodeStatus(capacity=resources))


def put(root: Path, address: str, vendor: str, kind: str) -> None:
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n")
    (folder / "class").write_text(f"{kind}\n")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (node(), False),
        (node("8"), True),
        (node("0"), False),
        (node("7", "nvidia.com/mig-1g.10gb"), True),
        (node("4", "nvidia.com/gpu.shared"), True),
        (node("8", "amd.com/gpu"), False),
        (node(labels={"nvidia.com/gpu.present": "true"}), True),
        (node(labels={"nvidia.com/gpu.present": "false"}), False),
        (node(labels={"feature.node.kubernetes.io/pci-10de.present": "true"}), True),
    ],
)
def test_a_node_shows_gpus_by_its_device_plugin_or_its_labels(found: Node, says: bool) -> None:
    assert signs.of_node(found) is says


@pytest.mark.parametrize(
    ("vendor", "kind", "says"),
    [
        ("0x10de", "0x030200", True),
        ("0x10de", "0x030000", True),
        ("0x10de", "0x040300", False),
        ("0x1002", "0x030000", False),
    ],
    ids=["accelerator", "graphics", "its sound", "another vendor"],
)
def test_a_machine_shows_gpus_on_its_bus(tmp_path: Path, vendor: str, kind: str, says: bool) -> None:
    put(tmp_path, "0000:00:1f.0", "0x8086", "0x060100")
    put(tmp_path, "0000:3b:00.0", vendor, kind)

    assert signs.of_machine(tmp_path) is says


def test_a_machine_without_a_bus_shows_none(tmp_path: Path) -> None:
    assert signs.of_machine(tmp_path) is False


class Clock(SystemClock):
    """Stands still until it is set."""

    time = 0.0

    def monotonic(self) -> float:
        return self.time


async def test_the_node_is_asked_again_rarely_and_what_was_found_stays(tmp_path: Path) -> None:
    clock, asked = Clock(), []
    odd = InvalidObject("Node", "[]", "Expected `object`, got `array`")
    answers: list[Any] = [ApiError(500, "", "away"), odd, node(), node("8")]

    async def find() -> Node:
        answer = answers.pop(0)
        asked.append(answer)
        if isinstance(answer, GanglineError):
            raise answer
        found: Node = answer
        return found

    signs_here = Signs(tmp_path, find, clock)
    found = [await signs_here.found() for _ in range(5)]
    clock.time = AGAIN
    found += [await signs_here.found() for _ in range(2)]

    assert found == [False] * 5 + [True] * 2
    assert len(asked) == 4
