"""The page of metrics, from the registries that the scheduler and the webhook serve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from gangline.failures import Failures
from gangline.profile.registry import Catalog
from gangline.telemetry.group_metrics import Placements
from gangline.telemetry.metrics import Metrics
from gangline.testing import FakeHandle, cluster, make_runtime
from gangline_agent.metrics import NodeMetrics
from gangline_docs.markdown import code, page, prose, table
from gangline_webhook.serving import Metrics as WebhookMetrics


@dataclass(frozen=True, slots=True)
class Described:
    """One metric as it appears at /metrics."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def of_scheduler() -> list[Described]:
    """What `gangline run` serves with every installed plugin at work, without the metrics of any Python process."""
    metrics = Metrics()
    cache = cluster()
    catalog = Catalog.discover()
    plugins = [catalog.load(name) for name in catalog.names]
    make_runtime(cache, *plugins, handle=FakeHandle(cache, metrics=metrics), metrics=metrics)
    timings = (Described(each.name, "histogram", each.labels, each.help) for each in metrics.timings)
    of_plugins = _described(metrics.of_plugins.registry)
    return sorted([*_described(metrics.registry), *of_plugins, *timings], key=lambda each: each.name)


def of_webhook() -> list[Described]:
    """What `gangline webhook` serves, without the metrics of any Python process."""
    return sorted(_described(WebhookMetrics().registry), key=lambda each: each.name)


def of_agent() -> list[Described]:
    """What `gangline agent` serves, without the metrics of any Python process."""
    families = NodeMetrics(dict).collect()
    found = [
        Described(f"{f.name}_info" if f.type == "info" else f.name, f.type, _label_names(f), f.documentation)
        for f in families
    ]
    return sorted(found, key=lambda each: each.name)


def render() -> str:
    """The page."""
    summary = (
        "Served as `/metrics` by [the ports with TLS](../operating/endpoints.md). Names that kube-scheduler has mean "
        "the same here, so its dashboards and alerts work. Each process also has Python's own: `process_*` (CPU, "
        "memory, files), `python_gc_*`, `python_info`. A histogram has `_bucket`, `_sum` and `_count`."
    )
    return page(
        "Metrics",
        summary,
        "## Scheduler\n\n" + _table(of_scheduler()),
        "## Webhook\n\n" + _table(of_webhook()),
        "## Agent\n\nServed with `--secure-listen`, as in the chart: the newest report, which is also in the "
        "GpuNodeStatus of the node. One that simulates tells of all its nodes.\n\n" + _table(of_agent()),
    )


def _table(metrics: list[Described]) -> str:
    rows = [
        (code(each.name), each.kind, " ".join(code(label) for label in each.labels), prose(each.meaning))
        for each in metrics
    ]
    return table(("Metric", "Type", "Labels", "Meaning"), rows)


def _described(registry: CollectorRegistry) -> Iterator[Described]:
    for collector in _collectors(registry):
        for family in collector.describe() if hasattr(collector, "describe") else collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Described(name, family.type, _label_names(family, collector), family.documentation)


def _collectors(registry: CollectorRegistry) -> list[Any]:
    """The collectors of metrics that are ours; prometheus_client has no public way to list them."""
    return [
        each for each in registry._collector_to_names if isinstance(each, MetricWrapperBase | Placements | Failures)
    ]


def _label_names(family: Any, collector: Any = None) -> tuple[str, ...]:
    """The labels that a family was made with; prometheus_client has no public name for them."""
    names = getattr(family, "_labelnames", None)
    return tuple(names if names is not None else collector._labelnames)
