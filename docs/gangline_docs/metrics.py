"""The page of metrics, from the registries that the scheduler and the webhook serve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from gangline.metrics import Metrics, Timings
from gangline.registry import Catalog
from gangline.testing import FakeHandle, cluster, make_runtime
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
    return sorted(_described(metrics.registry), key=lambda each: each.name)


def of_webhook() -> list[Described]:
    """What `gangline webhook` serves, without the metrics of any Python process."""
    return sorted(_described(WebhookMetrics().registry), key=lambda each: each.name)


def render() -> str:
    """The page."""
    summary = (
        "Served as `/metrics` on the port of `--listen`. Names that kube-scheduler has mean the same here, so its "
        "dashboards and alerts work. Each process also has Python's own: `process_*` (CPU, memory, files), "
        "`python_gc_*`, `python_info`. A histogram has `_bucket`, `_sum` and `_count`."
    )
    return page(
        "Metrics",
        summary,
        "## Scheduler\n\n" + _table(of_scheduler()),
        "## Webhook\n\n" + _table(of_webhook()),
        "## Agent\n\nThe node agent serves no metrics; what it knows is in the GpuNodeStatus of its node, and "
        "`status.heartbeatTime` says how old that is.",
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
            yield Described(name, family.type, _labels(collector), family.documentation)


def _collectors(registry: CollectorRegistry) -> list[Any]:
    """The collectors of metrics that are ours; prometheus_client has no public way to list them."""
    return [each for each in registry._collector_to_names if isinstance(each, MetricWrapperBase | Timings)]


def _labels(collector: Any) -> tuple[str, ...]:
    """The names of its labels; samples would carry them, but there are none yet."""
    return collector._labels if isinstance(collector, Timings) else tuple(collector._labelnames)
