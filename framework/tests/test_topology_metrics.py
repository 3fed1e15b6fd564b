"""What Prometheus is told of domains, nodes and groups."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from gangline.group_metrics import GroupMetrics
from gangline.topology import Topology
from gangline.topology_metrics import TopologyMetrics

from .gangs import Gangs, fabric

DOMAINS = ("spine-0", "spine-0/leaf-0", "spine-0/leaf-1")


@pytest.fixture
def registry() -> CollectorRegistry:
    """Two leaves of two nodes: one node full, one half full, two empty."""
    gangs = Gangs(fabric(spines=1, leaves=2, nodes=2))
    gangs.occupy("s0-l0-n0", 8)
    gangs.occupy("s0-l0-n1", 4)
    registry = CollectorRegistry()
    metrics = TopologyMetrics(gangs.cache.nodes)
    metrics.topology = Topology(gangs.cache.nodes)
    registry.register(metrics)
    return registry


@pytest.mark.parametrize("name", ["topology_domain_utilization_ratio", "topology_gpu_utilization_ratio"])
def test_a_domain_is_as_full_as_its_gpus_are_used(registry: CollectorRegistry, name: str) -> None:
    values = {
        d: registry.get_sample_value(name, {"domain": d}) for d in ("spine-0", "spine-0/leaf-0", "spine-0/leaf-1")
    }

    assert values == {"spine-0": 12 / 32, "spine-0/leaf-0": 12 / 16, "spine-0/leaf-1": 0.0}


@pytest.mark.parametrize(
    "name", ["topology_domain_fragmentation_ratio", "topology_scheduler_domain_fragmentation_ratio"]
)
def test_a_domain_is_fragmented_by_the_nodes_that_are_partly_used(registry: CollectorRegistry, name: str) -> None:
    values = {
        d: registry.get_sample_value(name, {"domain": d}) for d in ("spine-0", "spine-0/leaf-0", "spine-0/leaf-1")
    }

    assert values == {"spine-0": 1 / 4, "spine-0/leaf-0": 1 / 2, "spine-0/leaf-1": 0.0}


def test_nodes_and_the_whole_cluster_are_told_too(registry: CollectorRegistry) -> None:
    node = {"node": "s0-l0-n1", "domain": "spine-0/leaf-0"}

    assert registry.get_sample_value("topology_node_gpu_allocated", node) == 4
    assert registry.get_sample_value("topology_node_health_status", node) == 0
    assert registry.get_sample_value("topology_gpu_allocation_ratio") == 12 / 32


def test_decisions_are_counted_by_strategy_and_result() -> None:
    registry = CollectorRegistry()
    metrics = GroupMetrics(registry)

    metrics.placed("balanced", 0.02, 0.75)
    metrics.rejected("consolidated", 0.01, is_error=False)
    metrics.bound(3.0, recovered=True)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert value("topology_scheduler_attempts_total", strategy="balanced") == 1
    assert value("topology_scheduler_success_total", strategy="balanced") == 1
    assert value("topology_scheduler_errors_total", type="placement_consolidated") == 1
    assert value("topology_placement_decisions_total", strategy="consolidated", result="unschedulable") == 1
    assert value("topology_scheduler_latency_seconds_sum", strategy="balanced") == 0.02
    assert value("topology_placement_scores_bucket", strategy="balanced", le="0.8") == 1
    assert value("topology_scheduler_placement_duration_seconds_count") == 1
    assert value("topology_scheduler_recovery_duration_seconds_sum") == 3.0
    assert value("topology_recovery_duration_seconds_count") == 1
