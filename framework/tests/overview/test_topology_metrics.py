"""What Prometheus is told of domains, nodes and groups."""

from __future__ import annotations

import io

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families as parse
from rich.console import Console

from gangline import model
from gangline.commands.status import show
from gangline.commands.topology import drawn
from gangline.groups.keys import GPU_COUNT
from gangline.groups.strategy import PLACEMENT_STRATEGY
from gangline.kube.resources import NODES, PODS
from gangline.overview.summary import overview
from gangline.overview.topology_metrics import TopologyMetrics
from gangline.simulate import SimulatedCluster
from gangline.state.topology import Topology
from gangline.telemetry.group_metrics import GroupMetrics
from gangline.testing import make_node, make_pod
from gangline.testing.gang_stories import PROFILE, GangCluster
from gangline.testing.gangs import Gangs, fabric

DEFAULT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

DOMAINS = ("spine-0", "spine-0/leaf-0", "spine-0/leaf-1")


class Told:
    """The samples of a page."""

    def __init__(self, text: str) -> None:
        samples = [sample for family in parse(text) for sample in family.samples]
        self._values = {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}

    def get_sample_value(self, name: str, labels: dict[str, str] | None = None) -> float | None:
        return self._values.get((name, *sorted((labels or {}).items())))


@pytest.fixture
def registry() -> Told:
    """Two leaves of two nodes: one node full, one half full, two empty."""
    gangs = Gangs(fabric(spines=1, leaves=2, nodes=2))
    gangs.occupy("s0-l0-n0", 8)
    gangs.occupy("s0-l0-n1", 4)
    metrics = TopologyMetrics(gangs.cache)
    metrics.topology = Topology(gangs.cache.nodes)
    metrics.take()
    gangs.occupy("s0-l1-n0", 8)  # too late: what was handed over does not change
    return Told("".join(metrics.lines()))


@pytest.mark.parametrize("name", ["topology_domain_utilization_ratio", "topology_gpu_utilization_ratio"])
def test_a_domain_is_as_full_as_its_gpus_are_used(registry: Told, name: str) -> None:
    values = {
        d: registry.get_sample_value(name, {"domain": d}) for d in ("spine-0", "spine-0/leaf-0", "spine-0/leaf-1")
    }

    assert values == {"spine-0": 12 / 32, "spine-0/leaf-0": 12 / 16, "spine-0/leaf-1": 0.0}


@pytest.mark.parametrize(
    "name", ["topology_domain_fragmentation_ratio", "topology_scheduler_domain_fragmentation_ratio"]
)
def test_a_domain_is_fragmented_by_the_nodes_that_are_partly_used(registry: Told, name: str) -> None:
    values = {
        d: registry.get_sample_value(name, {"domain": d}) for d in ("spine-0", "spine-0/leaf-0", "spine-0/leaf-1")
    }

    assert values == {"spine-0": 1 / 4, "spine-0/leaf-0": 1 / 2, "spine-0/leaf-1": 0.0}


def test_the_ready_nodes_of_a_domain_are_the_same_number_everywhere() -> None:
    cache = fabric(spines=1, leaves=2, nodes=2)
    for name, status in (("s0-l0-n0", "True"), ("s0-l1-n0", "True"), ("s0-l1-n1", "True"), ("s0-l0-n1", "Unknown")):
        node = cache.nodes.objects[cache.nodes.row_of(name) or 0]
        assert node is not None
        conditions = [*node.status.conditions, model.PodCondition("Ready", status)]
        cache.upsert_node(
            msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, conditions=conditions))
        )
    topology, metrics = Topology(cache.nodes), TopologyMetrics(cache)
    metrics.topology = topology
    metrics.take()
    told = Told("".join(metrics.lines()))
    expected = {"spine-0": (3, 4), "spine-0/leaf-0": (1, 2), "spine-0/leaf-1": (2, 2)}
    screen = Console(record=True, width=200, file=io.StringIO())
    found = overview(cache, [], topology)
    show(found, screen)
    picture = [line.plain for line in drawn(cache, topology)]

    names = ("topology_domain_ready_nodes", "topology_domain_nodes")
    assert {d: tuple(told.get_sample_value(name, {"domain": d}) for name in names) for d in DOMAINS} == expected
    assert {each.domain: (each.ready, each.nodes) for each in found.domains} == expected
    assert "ready nodes: spine-0 3/4, spine-0/leaf-0 1/2; all in the other 1 domain" in screen.export_text()
    assert [line.rsplit("  ")[-1].rsplit(", ")[-1] for line in picture] == ["3/4 ready", "1/2 ready", "2/2 ready"]


def test_nodes_and_the_whole_cluster_are_told_too(registry: Told) -> None:
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


def test_pods_on_their_own_are_counted_with_the_groups() -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("a", gpus=1))
    consolidated = {PLACEMENT_STRATEGY: "consolidated"}
    plain.create(PODS, make_pod("p", gpus=1, annotations=consolidated), make_pod("q", gpus=2))

    async def story() -> CollectorRegistry:
        async with plain.scheduling(DEFAULT) as scheduler:
            await plain.until(lambda: plain.bound() == {"p": "a"} and bool(plain.message("q")))
            return scheduler.metrics.registry

    value = plain.play(story).get_sample_value

    assert value("topology_scheduler_attempts_total", {"strategy": "consolidated"}) == 1
    assert value("topology_scheduler_success_total", {"strategy": "consolidated"}) == 1
    assert value("topology_scheduler_latency_seconds_count", {"strategy": "consolidated"}) == 1
    assert value("topology_scheduler_placement_duration_seconds_count") == 1
    assert (value("topology_scheduler_errors_total", {"type": "placement_balanced"}) or 0) >= 1


@pytest.mark.parametrize(
    ("key", "kind"), [(GPU_COUNT, "invalid_gpu_requirements"), (PLACEMENT_STRATEGY, "invalid_strategy")]
)
def test_an_annotation_that_cannot_be_read_is_counted_once(key: str, kind: str) -> None:
    plain = SimulatedCluster()
    plain.create(NODES, make_node("a"))
    plain.create(PODS, make_pod("p", gpus=1, annotations={key: "nonsense"}))
    profile = DEFAULT + "profiles: [{plugins: {multiPoint: {enabled: [{name: TopologyAnnotations}]}}}]"

    async def story() -> CollectorRegistry:
        async with plain.scheduling(profile) as scheduler:
            await plain.until(lambda: bool(plain.bound()))
            return scheduler.metrics.registry

    assert plain.play(story).get_sample_value("topology_scheduler_errors_total", {"type": kind}) == 1


def test_a_workload_that_is_held_for_its_gpu_count_is_counted() -> None:
    gangs = GangCluster()
    template = {"metadata": {}, "spec": {"schedulerName": "gangs", "containers": [{"name": "main", "image": "i"}]}}
    meta = {"name": "train", "annotations": {GPU_COUNT: "nonsense"}}
    gangs.server.apply_manifest(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"parallelism": 2, "template": template}}
    )

    async def story() -> CollectorRegistry:
        async with gangs.scheduling(PROFILE) as scheduler:
            await gangs.until(lambda: any("gpu-count" in note for note in gangs.notes()))
            return scheduler.metrics.registry

    value = gangs.play(story).get_sample_value

    assert value("topology_scheduler_errors_total", {"type": "invalid_gpu_requirements"}) == 1
