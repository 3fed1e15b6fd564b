"""Metrics of how full and how fragmented the domains of the network are, computed from a snapshot of the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from gangline.model import Node
from gangline.overview.domain_use import DomainUse, domain_use, ready_nodes
from gangline.overview.gpu_counts import GpuCounts
from gangline.overview.gpu_use import Gathered, GpuUse, counted, gather
from gangline.state.cache import Cache
from gangline.state.node_view import Int64Column
from gangline.state.topology import Domains, Topology
from gangline.status import BoolColumn
from gangline.telemetry.exposition import escaped, head
from gangline.telemetry.families import Described

_FULL = "GPUs of the domain that are in use."
_PARTLY = "Nodes of the domain that are partly in use"
_BY_DOMAIN: Mapping[str, tuple[str, Callable[[DomainUse], list[float]]]] = {
    "topology_domain_utilization_ratio": (_FULL, lambda use: _ratios(use.used, use.gpus)),
    "topology_gpu_utilization_ratio": (_FULL, lambda use: _ratios(use.used, use.gpus)),
    "topology_domain_fragmentation_ratio": (
        f"{_PARTLY}: neither empty nor full.",
        lambda use: _ratios(use.partial, use.gpu_nodes),
    ),
    "topology_scheduler_domain_fragmentation_ratio": (f"{_PARTLY}.", lambda use: _ratios(use.partial, use.gpu_nodes)),
    "topology_domain_nodes": ("Nodes of the domain.", lambda use: use.nodes.astype(np.float64).tolist()),
    "topology_domain_ready_nodes": (
        "Nodes of the domain whose condition Ready is True.",
        lambda use: use.ready.astype(np.float64).tolist(),
    ),
}

_ALLOCATED = Described("topology_node_gpu_allocated", "GPUs of the node that are in use.", ("domain", "node"))
_HEALTH = Described("topology_node_health_status", "1 where the node is ready, else 0.", ("domain", "node"))
_RATIO = Described("topology_gpu_allocation_ratio", "GPUs of the cluster that are in use.", ())
FAMILIES = (
    *(Described(name, help, ("domain",)) for name, (help, _) in _BY_DOMAIN.items()),
    _ALLOCATED,
    _HEALTH,
    _RATIO,
)
"""The gauges, for the documentation."""


class _Snapshot(msgspec.Struct, frozen=True):
    """Copies and immutable objects, for another thread to read. Columns have one value for each row of nodes."""

    levels: Sequence[Domains]
    names: Sequence[str]
    nodes: Sequence[Node | None]
    gpus: Gathered


class TopologyMetrics:
    """Gauges per domain of every level, and per node with GPUs."""

    def __init__(self, cluster: Cache) -> None:
        self._cluster = cluster
        cluster.shared(GpuCounts, cluster)  # outside of any configuration, so that the counts outlive each of them
        self._snapshot: _Snapshot | None = None
        self.topology: Topology | None = None
        """The levels to report; without levels nothing is reported."""

    def take(self) -> None:
        """Hand over the data as they are now; called by the thread that owns the columns."""
        if self.topology is None:
            self._snapshot = None
            return
        nodes = self._cluster.nodes
        self._snapshot = _Snapshot(
            self.topology.switches(),
            nodes.names[: nodes.size],
            nodes.objects[: nodes.size],
            gather(nodes.view(), self._cluster),
        )

    def lines(self) -> Iterator[str]:
        """See Family."""
        taken = self._snapshot
        if taken is None:
            return
        paths = [[escaped(level.path(domain)) for domain in range(len(level))] for level in taken.levels]
        gpus = counted(taken.gpus)
        ready = ready_nodes(taken.nodes)
        yield from _of_domains(taken, ready, gpus, paths)
        yield from _of_nodes(taken, ready, gpus, paths)
        yield head(_RATIO.name, "gauge", _RATIO.help)
        yield f"topology_gpu_allocation_ratio {float(gpus.used.sum()) / max(1, int(gpus.total.sum()))!r}\n"


def _of_domains(taken: _Snapshot, ready: BoolColumn, gpus: GpuUse, paths: Sequence[Sequence[str]]) -> Iterator[str]:
    used = domain_use(taken.levels, taken.nodes, ready, gpus)
    for name, (help, read) in _BY_DOMAIN.items():
        yield head(name, "gauge", help)
        for named, use in zip(paths, used, strict=True):
            for path, value in zip(named, read(use), strict=True):  # one series for each domain, by design
                yield f'{name}{{domain="{path}"}} {value!r}\n'


def _of_nodes(taken: _Snapshot, ready: BoolColumn, gpus: GpuUse, paths: Sequence[Sequence[str]]) -> Iterator[str]:
    narrowest = taken.levels[-1].ids.tolist() if taken.levels else [-1] * len(taken.names)
    domains = paths[-1] if paths else []
    rows = np.flatnonzero(gpus.total > 0).tolist()  # one series for each node with GPUs, by design
    pairs = [
        f'domain="{domains[narrowest[row]] if narrowest[row] >= 0 else ""}",node="{escaped(taken.names[row])}"'
        for row in rows
    ]
    yield head(_ALLOCATED.name, "gauge", _ALLOCATED.help)
    for pair, count in zip(pairs, gpus.used[rows].tolist(), strict=True):
        yield f"topology_node_gpu_allocated{{{pair}}} {count}.0\n"
    yield head(_HEALTH.name, "gauge", _HEALTH.help)
    for pair, is_ready in zip(pairs, ready[rows].tolist(), strict=True):
        yield f"topology_node_health_status{{{pair}}} {float(is_ready)}\n"


def _ratios(part: Int64Column, whole: Int64Column) -> list[float]:
    ratios: list[float] = (part / np.maximum(1, whole)).tolist()
    return ratios
