"""The network of each node and domain: columns of bandwidth in Gbps and latency in microseconds.

A node's own bandwidth is the value of its label `topology.gangline.dev/network-gbps`, else that of the fastest RDMA
adapter that is up in its GpuNodeStatus. It is limited to the configured bandwidth of its leaf and its spine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gangline import Domains, Handle, NodeView, State, custom_resources, model, resources
from gangline_plugins.gpu.hardware import is_up
from gangline_plugins.leaf_spine.configured import Configured
from gangline_plugins.leaf_spine.documents import Domain
from gangline_plugins.leaf_spine.layout import Ints

NETWORK_GBPS = "topology.gangline.dev/network-gbps"
"""On a node: the bandwidth of its network, in Gbps; the default is that of its fastest RDMA adapter."""
UNKNOWN = 0


class Adapters:
    """The bandwidth of the fastest adapter of each row, as node agents report them; one per cluster."""

    def __init__(self, state: State) -> None:
        self._gbps: Ints = np.zeros(64, dtype=np.int64)
        self._of: dict[str, int] = {}
        self._row_of: dict[str, int] = {}
        state.follow_nodes(self)
        state.store(resources.GPU_NODE_STATUSES).subscribe(self)

    def gbps(self, nodes: NodeView) -> Ints:
        """One value per node of the view; UNKNOWN without a report."""
        return self._gbps[nodes.index]

    def on_upsert(self, status: custom_resources.GpuNodeStatus) -> None:
        """A node has reported."""
        fabric, name = status.status.fabric, status.metadata.name
        fastest = max((hca.gbps for hca in fabric.hcas if is_up(hca)), default=UNKNOWN) if fabric else UNKNOWN
        if self._of.get(name, UNKNOWN) != fastest:
            self._of[name] = fastest
            self._write(name)

    def on_remove(self, status: custom_resources.GpuNodeStatus) -> None:
        """A report is gone."""
        if self._of.pop(status.metadata.name, UNKNOWN):
            self._write(status.metadata.name)

    def node_upserted(self, node: model.Node, row: int) -> None:
        """The node has this row."""
        if row >= len(self._gbps):
            grown = np.zeros(max(row + 1, 2 * len(self._gbps)), dtype=np.int64)
            grown[: len(self._gbps)] = self._gbps
            self._gbps = grown
        if self._row_of.get(node.metadata.name) != row:
            self._row_of[node.metadata.name] = row
            self._write(node.metadata.name)

    def node_removed(self, name: str, row: int) -> None:
        """The row is nobody's."""
        self._row_of.pop(name, None)
        self._gbps[row] = UNKNOWN

    def _write(self, name: str) -> None:
        row = self._row_of.get(name)
        if row is not None:
            self._gbps[row] = self._of.get(name, UNKNOWN)


class Networks:
    """Bandwidth and latency over all rows, for one profile."""

    def __init__(self, handle: Handle, settings: Configured) -> None:
        self._handle = handle
        self._topology = handle.topology
        self._configured = settings
        self._adapters = handle.state.shared(Adapters, handle.state)
        self._kept: dict[str, tuple[int, list[Domains], Ints]] = {}

    def gbps(self, nodes: NodeView) -> Ints:
        """The bandwidth of each node; UNKNOWN if no source states it."""
        label, is_number = nodes.label(NETWORK_GBPS).integers()
        own = np.where(is_number, label, self._adapters.gbps(nodes))
        domain = self._column("gbps", lambda domain: domain.network_bandwidth, _lesser)[nodes.index]
        return _lesser(own, domain)

    def latency(self, nodes: NodeView) -> Ints:
        """Microseconds within the narrowest domain of each node that has a configured latency; UNKNOWN without one."""
        return self._column("latency", lambda domain: domain.max_latency, _narrower)[nodes.index]

    def _column(self, name: str, read: Callable[[Domain], int | None], merge: Callable[[Ints, Ints], Ints]) -> Ints:
        """For each row the configured values of its domains, merged from the widest level to the narrowest."""
        levels = self._topology.chain()
        kept = self._kept.get(name)
        size = len(levels[0].ids) if levels else len(self._handle.nodes)
        if kept is not None and kept[:2] == (self._configured.version, levels) and len(kept[2]) == size:
            return kept[2]
        column = np.zeros(size, dtype=np.int64)
        known = {domain.name: amount for domain in self._configured.domains.values() if (amount := read(domain))}
        for level in levels if known else ():
            amounts = np.array([*(known.get(value, UNKNOWN) for value in level.values), UNKNOWN], dtype=np.int64)
            column = merge(column, amounts[level.ids])
        self._kept[name] = (self._configured.version, levels, column)
        return column


def _lesser(a: Ints, b: Ints) -> Ints:
    """The smaller of two known values; if only one is known, that one."""
    return np.where((a == UNKNOWN) | ((b != UNKNOWN) & (b < a)), b, a)


def _narrower(wider: Ints, narrower: Ints) -> Ints:
    return np.where(narrower != UNKNOWN, narrower, wider)
