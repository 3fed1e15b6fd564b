"""`gangline topology`: draws the domains of the network with their nodes and GPUs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gangline.commands import options
from gangline.commands.options import Connection
from gangline.commands.output import console, put, table, told
from gangline.commands.profiles import choose
from gangline.commands.reaching import reached
from gangline.commands.seeing import SeenCluster, see
from gangline.commands.watching import once_or_follow
from gangline.model import Node
from gangline.overview.device_use import NodeDeviceUse, device_use
from gangline.overview.domain_use import DomainUse, domain_use, ready_nodes
from gangline.overview.gpu_use import GpuUse, gpu_use
from gangline.process import interrupting
from gangline.state.cache import Cache
from gangline.state.selectors import EVERYTHING, Selector
from gangline.state.topology import NO_DOMAIN, Domains, Topology
from gangline.status import BoolColumn

MOST_ROWS = 100
"""Nodes in the table of devices, at most."""
_MOST_BLOCKS = 16
"""GPUs of a node that are drawn one by one, at most."""
_ELSEWHERE = re.compile(r',\s*url\("https?:[^)]*\) format\("[^"]*"\)')
"""The addresses from which a picture of rich loads its fonts, if the fonts are not installed."""
_USED, _FREE, _DOWN = "green", "bright_black", "red"


@click.command()
@options.CONFIG
@options.PROFILE
@options.connection
@options.selector("Only nodes")
@options.WATCH
@options.output("svg", default="text")
def topology(
    connection: Connection,
    labels: Selector,
    files: Sequence[str],
    profile: str | None,
    watches: bool,
    output: str,
) -> None:
    """Draw spines, leaves, nodes and GPUs: one block per GPU, filled if the GPU is in use."""
    configuration = choose(files, profile)

    async def run() -> None:
        async with reached(connection) as there:

            async def look() -> str:
                seen = await see(there, configuration)
                if output == "svg":
                    return _svg(seen, labels)
                nodes = list(nodes_of(seen.cluster, seen.topology, labels))
                if seen.cluster.nodes.size and not nodes:
                    click.echo(f"{there.where}: no node has the labels of --selector", err=True)
                names = (f"node/{node['node']}" for node in nodes)
                return told(nodes, output, names, lambda screen: _show(seen, labels, output == "wide", screen))

            await once_or_follow(there.client, look, watches, output)

    interrupting.run(run())


def _svg(seen: SeenCluster, labels: Selector) -> str:
    """The picture, as a terminal of 100 columns would show it."""
    screen = console(record=True)
    screen.quiet = True
    screen.width = 100
    _show(seen, labels, False, screen)
    screen.quiet = False
    return _ELSEWHERE.sub("", screen.export_svg(title="gangline topology")) + "\n"


def _show(seen: SeenCluster, labels: Selector, is_wide: bool, screen: Console) -> None:
    """Print the picture, and a table of devices if there are some; `is_wide` adds a table of nodes."""
    cluster, levels = seen.cluster, seen.topology
    for line in drawn(cluster, levels, labels):
        screen.print(line)
    nodes = list(nodes_of(cluster, levels, labels))
    if is_wide:
        screen.print()
        put(screen, node_table(nodes))
    if devices := [each for node in nodes for each in node["devices"]]:
        most = sys.maxsize if is_wide else MOST_ROWS
        screen.print()
        put(screen, device_table(devices[:most]))
        if len(devices) > most:
            screen.print(f"and {len(devices) - most} more: -o wide shows all")


def node_table(nodes: Sequence[dict[str, Any]]) -> Table:
    """Each node with its domains and GPUs."""
    levels = list(nodes[0]["domains"]) if nodes else []
    result = table("NODE", *(level.upper() for level in levels), "GPUS", "USED", "STATE", "IDS IN USE")
    for node in nodes:
        state = "Ready" if node["ready"] else "NotReady"
        state += "" if node["schedulable"] else ",SchedulingDisabled"
        domains = (node["domains"][level] or "-" for level in levels)
        ids = ",".join(map(str, node["ids"])) or "-"
        result.add_row(node["node"], *domains, str(node["gpus"]), str(node["used"]), state, ids)
    return result


def nodes_of(cluster: Cache, topology: Topology, labels: Selector = EVERYTHING) -> Iterator[dict[str, Any]]:
    """Each node with its domains, widest first, its GPUs and devices, in the order of the topology."""
    devices: dict[str, list[NodeDeviceUse]] = {}
    for each in device_use(cluster).nodes:
        devices.setdefault(each.node, []).append(each)
    ready = ready_nodes(cluster.nodes.objects[: cluster.nodes.size])
    for node in _nodes_of(cluster, topology, gpu_use(cluster), ready, labels):
        yield {**node, "devices": devices.get(node["node"], [])}


def _nodes_of(
    cluster: Cache, topology: Topology, use: GpuUse, ready: BoolColumn, labels: Selector
) -> Iterator[dict[str, Any]]:
    view = cluster.nodes.view()
    levels = topology.switches()
    for row in np.argsort(topology.rank()).tolist():
        if view.alive[row] and _has(cluster.nodes.objects[row], labels):
            yield {
                "node": view.names[row],
                "domains": {level.level: _name(level, row) for level in levels},
                "gpus": int(use.total[row]),
                "used": int(use.used[row]),
                "ids": sorted(use.ids.get(row, ())),
                "ready": bool(ready[row]),
                "schedulable": not bool(view.unschedulable[row]),
            }


def _has(node: Node | None, labels: Selector) -> bool:
    return labels is EVERYTHING or (node is not None and labels.matches(node.metadata.labels or {}))


def drawn(cluster: Cache, topology: Topology, labels: Selector = EVERYTHING) -> Iterator[Text]:
    """The lines of the picture: domains as headings, and one line for the nodes of each narrowest domain."""
    shown: list[str] = []
    levels = topology.switches()
    objects = cluster.nodes.objects[: cluster.nodes.size]
    gpus, is_ready = gpu_use(cluster), ready_nodes(objects)
    uses = domain_use(levels, objects, is_ready, gpus)
    all_nodes = _nodes_of(cluster, topology, gpus, is_ready, labels)
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


def device_table(devices: Sequence[NodeDeviceUse]) -> Table:
    """The devices of dynamic resource allocation on each node."""
    result = table("NODE", "DRIVER", "DEVICES", "TAKEN", "FREE", "TAINTED")
    for each in devices:
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
    taken = (
        node["ids"] if len(node["ids"]) == node["used"] else range(node["used"])
    )  # each at its own place if the ids are known
    text = Text()
    for id in range(node["gpus"]):
        text.append("█" if id in taken else "░", style=_USED if id in taken else _FREE)
    return text


def _name(level: Domains, row: int) -> str:
    domain = int(level.ids[row])
    return level.values[domain] if domain >= 0 else ""
