"""How full and how fragmented the domains of the network are; worked out from the columns when Prometheus asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gangline.nodes import Int64Column, Nodes
from gangline.status import BoolColumn
from gangline.topology import Domains, Topology
from gangline.wire import GPU

GPUS = (GPU, "amd.com/gpu")
_BY_DOMAIN = {
    "topology_domain_utilization_ratio": "GPUs of the domain that are in use.",
    "topology_gpu_utilization_ratio": "GPUs of the domain that are in use.",
    "topology_domain_fragmentation_ratio": "Nodes of the domain that are partly in use: neither empty nor full.",
    "topology_scheduler_domain_fragmentation_ratio": "Nodes of the domain that are partly in use.",
}


class TopologyMetrics(Collector):
    """Gauges per domain of every level, and per node with GPUs."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.topology: Topology | None = None
        """The levels to tell of; without them there is nothing to tell."""

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        if self.topology is None:
            return
        total, used = self._gpus()
        yield from self._of_domains(self.topology.switches(), total, used)
        yield from self._of_nodes(self.topology.switches(), total, used)
        whole = GaugeMetricFamily("topology_gpu_allocation_ratio", "GPUs of the cluster that are in use.")
        whole.add_metric((), float(used.sum()) / max(1, int(total.sum())))
        yield whole

    def _gpus(self) -> tuple[Int64Column, Int64Column]:
        view = self._nodes.view()
        total, used = view.amounts(GPUS)
        return total.sum(axis=0), used.sum(axis=0)

    def _of_domains(self, levels: Sequence[Domains], total: Int64Column, used: Int64Column) -> Iterator[Metric]:
        families = {name: GaugeMetricFamily(name, help, labels=("domain",)) for name, help in _BY_DOMAIN.items()}
        partial = (used > 0) & (used < total)
        for level in levels:
            full = _ratios(level, used, total)
            holes = _ratios(level, partial.astype(np.int64), (total > 0).astype(np.int64))
            for domain in range(len(level)):  # a series for each is what was asked for
                for name, family in families.items():
                    ratios = holes if "fragmentation" in name else full
                    family.add_metric((level.path(domain),), float(ratios[domain]))
        yield from families.values()

    def _of_nodes(self, levels: Sequence[Domains], total: Int64Column, used: Int64Column) -> Iterator[Metric]:
        allocated = GaugeMetricFamily(
            "topology_node_gpu_allocated", "GPUs of the node that are in use.", labels=("node", "domain")
        )
        health = GaugeMetricFamily(
            "topology_node_health_status", "1 where the node is ready, else 0.", labels=("node", "domain")
        )
        narrowest = levels[-1] if levels else None
        ready = self._ready()
        for row in np.flatnonzero(total > 0).tolist():  # as above
            domain = int(narrowest.ids[row]) if narrowest is not None else -1
            labels = (self._nodes.names[row], narrowest.path(domain) if narrowest is not None and domain >= 0 else "")
            allocated.add_metric(labels, float(used[row]))
            health.add_metric(labels, float(ready[row]))
        yield allocated
        yield health

    def _ready(self) -> BoolColumn:
        ready = np.zeros(self._nodes.size, dtype=np.bool_)
        for row, node in enumerate(self._nodes.objects):
            conditions = node.status.conditions if node is not None else ()
            ready[row] = any(c.type == "Ready" and c.status == "True" for c in conditions)
        return ready


def _ratios(level: Domains, part: Int64Column, whole: Int64Column) -> np.ndarray:
    return level.sums(part) / np.maximum(1, level.sums(whole))
