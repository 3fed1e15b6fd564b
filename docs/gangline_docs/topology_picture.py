"""The picture of a cluster under leaves and spines, with what the scheduler has placed on it.

Nothing in it is made up: the workloads are scheduled on a cluster in memory, and their devices are read from the pods.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gangline.config import SchedulerConfiguration, load_files
from gangline.kube.resources import NODES, PODS
from gangline.model import Node, Pod
from gangline.simulate import InMemoryServer, VirtualClock, run
from gangline.state.requests import compute
from gangline.wire.custom_resources import ALLOCATED, GPU
from gangline_docs.drawing import GANGS, Picture
from gangline_docs.simulated import settle

FOLDER = Path(__file__).parents[2] / "examples" / "topology"
SPINE, LEAF = "network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"
SECONDS = 30.0
WORKLOAD = "workload"
"""The label of pods that are drawn in one colour."""
_DEVICES = 8
_LEGEND = 6
"""Workloads in one line of the legend."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The cluster when everything has its place."""

    nodes: list[Node]
    pods: list[Pod]


def place() -> Placed:
    """Schedule the example, with agents that report GPUs."""
    clock = VirtualClock()
    server = InMemoryServer(clock)
    server.load([FOLDER / "cluster"])
    return run(_story(server, clock, load_files([FOLDER / "profile.yaml"])), clock)


def draw(placed: Placed, title: str) -> str:
    """The SVG."""
    spines = _grouped(placed.nodes, SPINE)
    width = max(len(_grouped(nodes, LEAF)) for nodes in spines.values())
    height = max(len(leaf) for nodes in spines.values() for leaf in _grouped(nodes, LEAF).values())
    names = sorted({_workload(pod) for pod in placed.pods}, key=_natural)
    colours = {name: GANGS[number % len(GANGS)] for number, name in enumerate(names)}
    span = 107 * width
    picture = Picture(32 + (span + 16) * len(spines), 144 + 22 * height + 26 * -(-len(names) // _LEGEND), title)
    for number, (spine, nodes) in enumerate(spines.items()):
        _spine(picture, 24 + (span + 16) * number, spine, _grouped(nodes, LEAF), _colours(placed.pods, colours))
    for number, name in enumerate(names):
        x, y = (
            26 + (span + 16) * len(spines) / _LEGEND * (number % _LEGEND),
            156 + 22 * height + 26 * (number // _LEGEND),
        )
        picture.cell(x, y - 11, 14, colours[name])
        picture.text(x + 22, y, f"{name}: {_size([pod for pod in placed.pods if _workload(pod) == name])}")
    return picture.svg()


def render() -> str:
    """The picture of the front page."""
    return draw(place(), "GPUs under leaves and spines, in the colour of the workload that has them")


async def _story(server: InMemoryServer, clock: VirtualClock, config: SchedulerConfiguration) -> Placed:
    client = await settle(server, clock, config, SECONDS)
    return Placed((await client.list(NODES)).items, (await client.list(PODS)).items)


def _spine(
    picture: Picture, x: float, name: str, leaves: dict[str, list[Node]], colours: dict[tuple[str, int], str]
) -> None:
    middle = x + 107 * len(leaves) / 2 - 4
    picture.box(middle - 80, 18, 160, 36, [name])
    for place, (leaf, nodes) in enumerate(leaves.items()):
        left = x + 107 * place
        picture.arrow([(middle, 54), (left + 49, 84)])
        picture.box(left, 86, 98, 30, [leaf])
        for row, node in enumerate(nodes):
            for device in range(_DEVICES):
                colour = colours.get((node.metadata.name, device), "")
                picture.cell(left + 2 + 12 * device, 126 + 22 * row, 10, colour)


def _colours(pods: Sequence[Pod], colours: dict[str, str]) -> dict[tuple[str, int], str]:
    """The colour of each device that is taken, by node and id."""
    return {
        (pod.spec.node_name, int(id_)): colours[_workload(pod)]
        for pod in pods
        for id_ in (pod.metadata.annotations or {}).get(ALLOCATED, "").split(",")
        if id_
    }


def _workload(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get(WORKLOAD, "others")


def _size(pods: Sequence[Pod]) -> str:
    """How many pods, and how many GPUs each of them asks for."""
    return f"{len(pods)} x {compute(pods[0].spec).real.get(GPU, 0)}"


def _grouped(nodes: Sequence[Node], label: str) -> dict[str, list[Node]]:
    """Nodes by the value of a label, in natural order."""
    found: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: _natural(node.metadata.name)):
        found.setdefault((node.metadata.labels or {}).get(label, ""), []).append(node)
    return dict(sorted(found.items(), key=lambda item: _natural(item[0])))


def _natural(name: str) -> list[tuple[int, str]]:
    """A key by which leaf-10 comes after leaf-9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
