"""`gangline topology`: draws the domains of the network with their nodes and GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

import click
import msgspec
import numpy as np
from rich.table import Table
from rich.text import Text

from gangline.commands import options
from gangline.commands.output import console, table
from gangline.commands.seeing import see
from gangline.overview.device_use import DeviceUse, NodeDeviceUse, device_use
from gangline.overview.domain_use import DomainUse, domain_use, ready_nodes
from gangline.overview.gpu_use import GpuUse, gpu_use
from gangline.state.cache import Cache
from gangline.state.topology import NO_DOMAIN, Domains, Topology
from gangline.status import BoolColumn

MOST_ROWS = 100
"""Nodes in the table of devices."""
_MOST_BLOCKS = 16
"""GPUs of a node that are drawn one by one."""
_USED, _FREE, _DOWN = "green", "bright_black", "red"


@click.command()
@options.CONFIG
@options.PROFILE
@options.KUBECONFIG
@click.option("-o", "--output", type=click.Choice(["text", "json", "svg"]), default="text", show_default=True)
def topology(
    files: Sequence[str], profile: str | None, kubeconfig: str | None, output: Literal["text", "json", "svg"]
) -> None:
    """Draw spines, leaves, nodes and GPUs: one block per GPU, filled if the GPU is in use."""
    seen = see(kubeconfig, files, profile)
    cluster, levels = seen.cluster, seen.topology
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(list(nodes_of(cluster, levels)))).decode())
        return
    screen = console(record=output == "svg")
    screen.quiet = output == "svg"
    if output == "svg":
        screen.width = 100
    for line in drawn(cluster, levels):
        screen.print(line)
    if (use := device_use(cluster)).nodes:
        screen.print()
        screen.print(device_table(use))
        if len(use.nodes) > MOST_ROWS:
            screen.print(f"and {len(use.nodes) - MOST_ROWS} more: -o json tells of all")
    if output == "svg":
        screen.quiet = False
        click.echo(screen.export_svg(title="gangline topology"))


def nodes_of(cluster: Cache, topology: Topology) -> Iterator[dict[str, Any]]:
    """Each node with its domains, widest first, its GPUs and devices, in the order of the topology."""
    devices: dict[str, list[NodeDeviceUse]] = {}
    for each in device_use(cluster).nodes:
        devices.setdefault(each.node, []).append(each)
    ready = ready_nodes(cluster.nodes.objects[: cluster.nodes.size])
    for node in _nodes_of(cluster, topology, gpu_use(cluster), ready):
        yield {**node, "devices": devices.get(node["node"], [])}


def _nodes_of(cluster: Cache, topology: Topology, use: GpuUse, ready: BoolColumn) -> Iterator[dict[str, Any]]:
    view = cluster.nodes.view()
    levels = topology.switches()
    for row in np.argsort(topology.rank()).tolist():
        if view.alive[row]:
            yield {
                "node": view.names[row],
                "domains": {level.level: _name(level, row) for level in levels},
                "gpus": int(use.total[row]),
                "used": int(use.used[row]),
                "ids": sorted(use.ids.get(row, ())),
                "ready": bool(ready[row]),
                "schedulable": not bool(view.unschedulable[row]),
            }


def drawn(cluster: Cache, topology: Topology) -> Iterator[Text]:
    """The lines of the picture: domains as headings, and one line for the nodes of each narrowest domain."""
    shown: list[str] = []
    levels = topology.switches()
    objects = cluster.nodes.objects[: cluster.nodes.size]
    gpus, is_ready = gpu_use(cluster), ready_nodes(objects)
    uses = domain_use(levels, objects, is_ready, gpus)
    all_nodes = _nodes_of(cluster, topology, gpus, is_ready)
    for domains, found in groupby(all_nodes, key=lambda node: list(node["domains"].items())):
        nodes = list(found)
        row = cluster.nodes.row_of(nodes[0]["node"])
        ready = [_ready(use, row) for use in uses]
        for depth, (level, name) in enumerate(domains):
            if shown[depth : depth + 1] != [name]:
                shown = [*shown[:depth], name]
                if depth < len(domains) - 1:
                    heading = Text(f"{'  ' * depth}{name or f'no {level}'}", style="bold")
                    yield heading.append(f"  {ready[depth]}" if ready[depth] else "", style="not bold dim")
        indent = "  " * max(0, len(domains) - 1)
        label = (domains[-1][1] or f"no {domains[-1][0]}") if domains else ""
        yield _line(f"{indent}{label:<12} " if label else "", nodes, ready[-1] if ready else "")


def device_table(use: DeviceUse) -> Table:
    """The devices of dynamic resource allocation on each node."""
    result = table("NODE", "DRIVER", "DEVICES", "TAKEN", "FREE", "TAINTED")
    for each in use.nodes[:MOST_ROWS]:
        result.add_row(each.node, each.driver, *map(str, (each.devices, each.taken, each.free, each.tainted)))
    return result


def _ready(use: DomainUse, row: int | None) -> str:
    """How many nodes of a row's domain are ready; empty if the row is in no domain."""
    domain = NO_DOMAIN if row is None else int(use.level.ids[row])
    return "" if domain == NO_DOMAIN else f"{use.ready[domain]}/{use.nodes[domain]} ready"


def _line(label: str, nodes: Sequence[dict[str, Any]], ready: str) -> Text:
    line = Text(label)
    for node in nodes:
        line.append_text(_blocks(node))
        line.append(" ")
    free = sum(node["gpus"] - node["used"] for node in nodes)
    line.append(f" {free} free" if free else " full", style="dim")
    line.append(f", {ready}" if ready else "", style="dim")
    return line


def _blocks(node: dict[str, Any]) -> Text:
    if not node["schedulable"]:
        return Text("▨" * min(node["gpus"] or 1, _MOST_BLOCKS), style=_DOWN)
    if not node["gpus"]:
        return Text("·", style="dim")
    if node["gpus"] > _MOST_BLOCKS:
        return Text(f"{node['used']}/{node['gpus']}")
    taken = node["ids"] if len(node["ids"]) == node["used"] else range(node["used"])  # in their places where known
    text = Text()
    for id in range(node["gpus"]):
        text.append("█" if id in taken else "░", style=_USED if id in taken else _FREE)
    return text


def _name(level: Domains, row: int) -> str:
    domain = int(level.ids[row])
    return level.values[domain] if domain >= 0 else ""
