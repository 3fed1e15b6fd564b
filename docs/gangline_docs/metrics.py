"""The page of metrics, from the registries that the scheduler and the webhook serve."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from gangline.failures import Failures
from gangline.overview import topology_metrics
from gangline.profile.registry import Catalog
from gangline.telemetry.distribution import Distribution
from gangline.telemetry.group_metrics import Placements
from gangline.telemetry.metrics import AttemptsTotal, Metrics
from gangline.testing import FakeHandle, cluster, make_runtime
from gangline_agent.metrics import NodeMetrics
from gangline_docs.markdown import code, page, prose, table
from gangline_webhook.serving import Metrics as WebhookMetrics

OF_CODE = {
    "attempts": "1 to 16; 16 stands for more",
    "doing": "a word in the code for each part of the scheduler",
    "event": "the steps of a ProvisioningRequest",
    "extension_point": "the extension points",
    "kind": "the kinds of links",
    "lacked": "`leases`, `devices`",
    "mode": "the modes that a GpuClaim may have",
    "outcome": "a word in the code for each outcome",
    "path": "the paths that the webhook serves; it answers others with 404, and does not count them",
    "queue": "the parts of the queue",
    "reason": "a word in the code for each reason",
    "resource": "the kinds that the scheduler watches",
    "result": "a word in the code for each result",
    "strategy": "the three placement strategies; an unknown one counts as `balanced`",
    "type": "a word in the code for each type",
}
"""Labels whose values are in the code, however large the cluster is and whatever its users write."""
OF_CONFIGURATION = {
    "name": "the Lease of the leader election: one",
    "plugin": "the plugins of the configuration",
    "profile": "the profiles of the configuration; of MIG instances: the profiles that the GPU has",
}
"""Labels whose values an administrator chooses."""
OF_CLUSTER = {
    "domain": "the domains of all levels, each of which has a node",
    "gang": "the gangs for which room is kept now, one for each profile at most; the series ends with the reservation",
    "gpu": "the GPUs of the node",
    "hca": "the RDMA adapters of the node",
    "model": "the model of the adapter: one for each adapter",
    "namespace": "the namespace of the gang: one for each gang",
    "node": "the nodes",
    "peer": "the GPUs of the node",
    "uuid": "one for each GPU",
}
"""Labels whose values grow with the hardware, but not with pods, and are gone when the object is gone."""


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
    of_topology = (Described(each.name, "gauge", each.labels, each.help) for each in topology_metrics.FAMILIES)
    found = [*_described(metrics.registry), *of_plugins, *timings, *of_topology]
    return sorted(found, key=lambda each: each.name)


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
        "## Labels\n\nNo label has the name of a pod, and none has a text that a user writes. So the number of series "
        "is bounded by the configuration and the hardware.\n\n" + _labels(),
    )


def _table(metrics: list[Described]) -> str:
    rows = [
        (code(each.name), each.kind, " ".join(code(label) for label in each.labels), prose(each.meaning))
        for each in metrics
    ]
    return table(("Metric", "Type", "Labels", "Meaning"), rows)


def _labels() -> str:
    kinds = (("code", OF_CODE), ("configuration", OF_CONFIGURATION), ("hardware", OF_CLUSTER))
    rows = [(code(label), kind, values) for kind, labels in kinds for label, values in labels.items()]
    return table(("Label", "Bounded by", "Values"), rows)


def _described(registry: CollectorRegistry) -> Iterator[Described]:
    for collector in _collectors(registry):
        for family in collector.describe() if hasattr(collector, "describe") else collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Described(name, family.type, _label_names(family, collector), family.documentation)


def _collectors(registry: CollectorRegistry) -> list[Any]:
    """The collectors of metrics that are ours; prometheus_client has no public way to list them."""
    return [
        each
        for each in registry._collector_to_names
        if isinstance(each, MetricWrapperBase | AttemptsTotal | Distribution | Placements | Failures)
    ]


def _label_names(family: Any, collector: Any = None) -> tuple[str, ...]:
    """The labels that a family was made with; prometheus_client has no public name for them."""
    names = getattr(family, "_labelnames", None)
    return tuple(names if names is not None else collector._labelnames)
