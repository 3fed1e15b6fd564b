"""What is counted of pod groups, under the names that users of topology schedulers know and under our own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = tuple(0.001 * 2**i for i in range(15))
"""1 ms to 16 s."""
_LONG = tuple(0.01 * 2**i for i in range(20))
"""10 ms to 1.5 h."""
_SCORES = tuple(round(0.1 * i, 1) for i in range(10))


class GroupMetrics:
    """Counters and histograms of groups; `strategy` is that of the placement: consolidated, distributed, balanced."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("strategy",)
        self._latency = Histogram(
            "topology_scheduler_latency_seconds",
            "Duration of one decision on a pod group.",
            labels,
            buckets=_SECONDS,
            registry=registry,
        )
        self._attempts = Counter("topology_scheduler_attempts", "Decisions on pod groups.", labels, registry=registry)
        self._success = Counter(
            "topology_scheduler_success", "Decisions that placed a pod group.", labels, registry=registry
        )
        self._errors = Counter(
            "topology_scheduler_errors",
            "Decisions that placed nothing, by type: placement_STRATEGY, invalid_gpu_requirements, invalid_strategy.",
            ("type",),
            registry=registry,
        )
        self._decisions = Counter(
            "topology_placement_decisions",
            "Decisions on pod groups, by result: success, unschedulable, error.",
            ("strategy", "result"),
            registry=registry,
        )
        self._scores = Histogram(
            "topology_placement_scores",
            "Score of the placement that was taken, 0 to 1.",
            labels,
            buckets=_SCORES,
            registry=registry,
        )
        self._placement = Histogram(
            "topology_scheduler_placement_duration_seconds",
            "From queueing a pod group to its binding.",
            buckets=_LONG,
            registry=registry,
        )
        self._recoveries = [
            Histogram(
                name,
                "From the moment that members of a placed group were queued again to their binding.",
                buckets=_LONG,
                registry=registry,
            )
            for name in ("topology_scheduler_recovery_duration_seconds", "topology_recovery_duration_seconds")
        ]
        self.waiting = Gauge("gangline_gang_waiting", "Pod groups in the queue.", registry=registry)
        self.partial = Gauge(
            "gangline_gang_partial",
            "Pod groups with fewer bound pods than they need and none on its way to be bound.",
            registry=registry,
        )

    def placed(self, strategy: str, seconds: float, score: float) -> None:
        """A group was given its place in so many seconds; score 0..1."""
        self._decided(strategy, seconds, "success")
        self._success.labels(strategy).inc()
        self._scores.labels(strategy).observe(score)

    def rejected(self, strategy: str, seconds: float, is_error: bool) -> None:
        """A group was given no place."""
        self._decided(strategy, seconds, "error" if is_error else "unschedulable")
        self._errors.labels(f"placement_{strategy}").inc()

    def invalid(self, what: str) -> None:
        """A pod asks for something that cannot be read: invalid_gpu_requirements or invalid_strategy."""
        self._errors.labels(what).inc()

    def bound(self, seconds: float, recovered: bool) -> None:
        """A group is bound, so many seconds after it was queued; `recovered` if other members had been bound before."""
        self._placement.observe(seconds)
        for recovery in self._recoveries if recovered else ():
            recovery.observe(seconds)

    def _decided(self, strategy: str, seconds: float, result: str) -> None:
        self._latency.labels(strategy).observe(seconds)
        self._attempts.labels(strategy).inc()
        self._decisions.labels(strategy, result).inc()
