"""Counts the content of each domain of the network: nodes, ready nodes, GPUs and used GPUs. No other module does so, or
says which nodes are ready.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from gangline.model import Node
from gangline.overview.gpu_use import GpuUse
from gangline.state.node_view import Int64Column
from gangline.state.topology import Domains
from gangline.status import BoolColumn


class DomainUse(msgspec.Struct, frozen=True, eq=False):
    """The domains of one level; columns have one value per domain, in the order of `level.values`."""

    level: Domains
    nodes: Int64Column
    """Nodes in the domain."""
    ready: Int64Column
    """Nodes of the domain whose condition Ready is True."""
    gpus: Int64Column
    used: Int64Column
    """GPUs that are taken, in any of the ways that `gpu_use` knows."""
    gpu_nodes: Int64Column
    """Nodes that have GPUs."""
    partial: Int64Column
    """Nodes with GPUs that are neither empty nor full."""


def domain_use(
    levels: Sequence[Domains], nodes: Sequence[Node | None], is_ready: BoolColumn, gpus: GpuUse
) -> list[DomainUse]:
    """Count each level; `nodes` has the object of each row, None without a node; `is_ready` is from `ready_nodes`."""
    there = np.array([node is not None for node in nodes], dtype=np.int64)
    ready = is_ready.astype(np.int64)
    partial = ((gpus.used > 0) & (gpus.used < gpus.total)).astype(np.int64)
    has = (gpus.total > 0).astype(np.int64)
    return [
        DomainUse(level, *(level.sums(column) for column in (there, ready, gpus.total, gpus.used, has, partial)))
        for level in levels
    ]


def ready_nodes(nodes: Sequence[Node | None]) -> BoolColumn:
    """Which rows have a node whose condition Ready is True."""
    return np.array([node is not None and is_ready(node) for node in nodes], dtype=np.bool_)


def is_ready(node: Node) -> bool:
    """Whether `kubectl get nodes` calls a node Ready: its condition Ready is True, neither False nor Unknown, and is
    there. Of several conditions Ready the last one counts.
    """
    found = [condition.status for condition in node.status.conditions if condition.type == "Ready"]
    return found[-1:] == ["True"]
