"""The families of metrics: the name of each, its help text and its labels.

The families of pod groups are in `group_metrics`, and plugins declare their own.
"""

from __future__ import annotations

from typing import NamedTuple

PLUGIN_BUCKETS = tuple(1e-6 * 2**i for i in range(20))
"""Seconds: 1 us to 0.5 s."""
ATTEMPT_BUCKETS = tuple(1e-5 * 2**i for i in range(20))
"""Seconds: 10 us to 5 s."""
WAIT_BUCKETS = tuple(0.01 * 2**i for i in range(20))
"""Seconds: 10 ms to 1.5 h."""


class Described(NamedTuple):
    """A counter or a gauge."""

    name: str
    help: str
    labels: tuple[str, ...]


class Timed(NamedTuple):
    """A histogram of seconds."""

    name: str
    help: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...]
    empty: bool = False
    """Whether series without values are written, too."""


PLUGINS = Timed(
    "scheduler_plugin_execution_duration_seconds",
    "Duration of one plugin at one extension point.",
    ("extension_point", "plugin"),
    PLUGIN_BUCKETS,
)
POINTS = Timed(
    "scheduler_framework_extension_point_duration_seconds",
    "Duration of all plugins of one extension point.",
    ("extension_point", "profile"),
    PLUGIN_BUCKETS,
)
ALGORITHM = Timed(
    "scheduler_scheduling_algorithm_duration_seconds",
    "Duration of one decision: filters, scores and choice.",
    ("profile",),
    ATTEMPT_BUCKETS,
)
ATTEMPTS = Timed(
    "scheduler_scheduling_attempt_duration_seconds",
    "From taking a pod off the queue to its decision or binding.",
    ("result", "profile"),
    ATTEMPT_BUCKETS,
)
SLI = Timed(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "From queueing a pod to its binding, without the time it was gated.",
    ("attempts",),
    WAIT_BUCKETS,
)
BINDING = Timed(
    "gangline_binding_duration_seconds",
    "Duration of one binding cycle.",
    ("result",),
    ATTEMPT_BUCKETS,
    empty=True,  # alerts look at the rate of failures, which needs a zero to begin from
)
GROUP_DECISION = Timed(
    "gangline_gang_decision_seconds",
    "Duration of one decision on a whole pod group.",
    ("profile",),
    ATTEMPT_BUCKETS,
)
ATTEMPTS_TOTAL = Described(
    "scheduler_schedule_attempts",
    "Attempts to schedule, by result: scheduled, unschedulable, error.",
    ("result", "profile"),
)
OVERRUNS = Described(
    "gangline_decisions_past_deadline",
    "Decisions that were given up because they took longer than --pod-deadline or --gang-deadline allow.",
    ("profile",),
)
PENDING = Described(
    "scheduler_pending_pods",
    "Pods in the queue: active, backoff, unschedulable, gated.",
    ("queue",),
)
INVALID_OBJECTS = Described(
    "gangline_invalid_objects",
    "Objects from the API server that could not be used.",
    ("resource",),
)
FAULTS = Described(
    "gangline_faults",
    "Faults of the scheduler itself, by what it was doing; each is in the log with its traceback.",
    ("doing",),
)
LONG_BINDINGS = Described(
    "gangline_long_bindings",
    "Steps of bindings that take longer than a second now.",
    ("profile",),
)
SET_ASIDE = Described(
    "gangline_set_aside_objects",
    "Objects that cannot be used and are set aside until they change.",
    ("resource",),
)
INFORMER_RELISTS = Described(
    "gangline_informer_relists",
    "Full lists since the start, the first one too, by all watches of the resource that are in use.",
    ("resource",),
)
EVENTS_DROPPED = Described(
    "gangline_events_dropped",
    "Kubernetes events that were not written because too many were waiting.",
    (),
)
IS_LEADER = Described(
    "leader_election_master_status",
    "Whether this process leads.",
    ("name",),
)
CACHE_SIZE = Described(
    "scheduler_scheduler_cache_size",
    "What the cache holds: nodes, pods, assumed_pods.",
    ("type",),
)
