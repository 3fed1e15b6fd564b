"""What the framework offers the plugins of one profile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gangline.api.diagnosis import Diagnosis
from gangline.api.hints import ClusterEvent
from gangline.api.plugin import Clock, Recorder
from gangline.api.pod_group import GroupAttempt, Membership, Problem
from gangline.deadline import NO_DEADLINE, Deadline
from gangline.errors import ConfigError, PluginError
from gangline.failures import being_built, text_of
from gangline.groups.members import Grouping, PlacedMembers
from gangline.profile.evaluation import Evaluator
from gangline.queueing.waiting import WaitingPods
from gangline.state.cache import Cache
from gangline.state.nodes import NodeView, Rows
from gangline.state.pods import PodInfo
from gangline.state.topology import Topology
from gangline.status import BoolColumn
from gangline.telemetry.metrics import Metrics

Work = Callable[[], Coroutine[Any, Any, None]]


class _NoGroups:
    """Every pod is on its own."""

    version = 0

    def of(self, pod: PodInfo) -> None:
        """Nothing."""

    def annotations(self, pod: PodInfo) -> Mapping[str, str]:
        """Those of the pod."""
        return pod.annotations


NO_GROUPS = _NoGroups()

M = TypeVar("M", Counter, Gauge, Histogram)


class FrameworkHandle:
    """The handle that plugins are given; one per profile."""

    def __init__(
        self,
        profile: str,
        state: Cache,
        clock: Clock,
        recorder: Recorder,
        waiting: WaitingPods,
        client: Any,
        metrics: Metrics,
    ) -> None:
        self.profile = profile
        self.state = state
        self.clock = clock
        self.recorder = recorder
        self.waiting = waiting
        self.client = client
        self.work: list[tuple[str, Work]] = []
        """Background work, and the plugin that asked for it; started when this process leads."""
        self.evaluator: Evaluator | None = None
        self.spawner: Callable[[Work], None] | None = None
        """Starts what plugins spawn; without one it is collected in `pending_work`."""
        self.pending_work: list[Work] = []
        self.nominations: Callable[[], Mapping[str, Mapping[str, PodInfo]]] | None = None
        """The nominations of the queue; without it there are none."""
        self.waits: Callable[[str], bool] | None = None
        """Whether the queue has a complete group, by its key; without it no group waits."""
        self.reviews: Callable[[PodInfo], bool] | None = None
        """Which preemptors' victims extenders judge; without it none are."""
        self.finder: Callable[[Sequence[PodInfo], BoolColumn], Mapping[str, int] | None] | None = None
        """Finds the place of pods; without it there is none."""
        self.announcer: Callable[[ClusterEvent], None] | None = None
        """Hears of what plugins announce; without it nobody does."""
        self.attempts: Callable[[str], GroupAttempt | None] | None = None
        """Looks at a waiting group by its key; without it no group waits."""
        self.topology = Topology(state.nodes)
        """The levels of this profile; a plugin may configure them when it is built."""
        self.grouping: Grouping = NO_GROUPS
        """Who knows which pods belong together; used once a plugin has asked for it."""
        self.placed: PlacedMembers | None = None
        """The members of groups that have a node; None where pods are not grouped."""
        self._metrics = metrics

    @property
    def nodes(self) -> NodeView:
        """All nodes as columns."""
        return self.state.nodes.view()

    @property
    def deadline(self) -> Deadline:
        """Until when the unit has to be decided that is being decided now; never, outside of a decision."""
        return self.evaluator.deadline if self.evaluator is not None else NO_DEADLINE

    def within(self, deadline: Deadline) -> AbstractContextManager[None]:
        """What is asked for in this block raises DeadlineExceeded from then on; for work in the background."""
        return self.evaluator.within(deadline) if self.evaluator is not None else nullcontext()

    def run(self, work: Work) -> None:
        """Background work that lives and dies with leadership."""
        self.work.append((being_built.get(), work))

    def spawn(self, work: Work) -> None:
        """Do something once, in the background, now."""
        if self.spawner is None:
            self.pending_work.append(work)
        else:
            self.spawner(work)

    def group_pods(self) -> None:
        """Pods of this profile that belong together are one unit from now on: all of them are placed, or none."""
        self.placed = self.state.tracker(PlacedMembers, self.grouping)

    def group_of(self, pod: PodInfo) -> Membership | Problem | None:
        """The group of a pod and its place in it; None for a pod on its own, and where pods are not grouped."""
        return None if self.placed is None else self.grouping.of(pod)

    def members(self, key: str) -> Collection[PodInfo]:
        """The members of a group that have a node, by the group's key."""
        return () if self.placed is None else self.placed.of(key)

    def is_waiting(self, key: str) -> bool:
        """Whether members of a group wait for a node, and are enough, by the group's key."""
        return self.waits is not None and self.waits(key)

    def workload(self, pod: PodInfo) -> Mapping[str, str]:
        """The annotations of a pod and of what owns it, the nearest winning."""
        return self.grouping.annotations(pod)

    def nominated(self) -> Mapping[str, Mapping[str, PodInfo]]:
        """Node name to the waiting pods for which room is being made there, by UID."""
        return self.nominations() if self.nominations is not None else {}

    def preemption_is_reviewed(self, pod: PodInfo) -> bool:
        """Whether extenders have a say in which pods are removed for this one."""
        return self.reviews is not None and self.reviews(pod)

    def metric(self, name: str, help: str, labels: Iterable[str] = ()) -> Counter:
        """A counter of the plugin's own; the same for each profile and each call with the same name."""
        return self._own(Counter, self._metrics.plugin_counters, "metric", name, help, tuple(labels))

    def gauge(self, name: str, help: str, labels: Iterable[str] = ()) -> Gauge:
        """A gauge of the plugin's own, as `metric`."""
        return self._own(Gauge, self._metrics.plugin_gauges, "gauge", name, help, tuple(labels))

    def histogram(self, name: str, help: str, buckets: Sequence[float], labels: Iterable[str] = ()) -> Histogram:
        """A histogram of the plugin's own, as `metric`; the buckets are those of the first call."""

        def made(name: str, help: str, labels: tuple[str, ...], registry: CollectorRegistry) -> Histogram:
            return Histogram(name, help, labels, registry=registry, buckets=tuple(buckets))

        return self._own(made, self._metrics.plugin_histograms, "histogram", name, help, tuple(labels))

    def _own(
        self, kind: Callable[..., M], known: dict[str, M], what: str, name: str, help: str, wanted: tuple[str, ...]
    ) -> M:
        if name not in known:
            try:
                known[name] = kind(name, help, wanted, registry=self._metrics.registry)
            except (TypeError, ValueError) as error:
                raise PluginError(being_built.get(), what, text_of(error)) from error
        has = known[name]._labelnames
        if has != wanted:
            raise PluginError(being_built.get(), what, f"{name} has the labels {has}, not {wanted}")
        return known[name]

    def announce(self, event: ClusterEvent) -> None:
        """Something has happened that rejected pods may wait for, as plugins have registered it."""
        if self.announcer is not None:
            self.announcer(event)

    def filter(self, pod: PodInfo, rows: Rows) -> BoolColumn:
        """Whether each of these nodes passes all filters for the pod as the columns are now."""
        if self.evaluator is None:
            raise ConfigError("", self.profile, "filter() is not available while plugins are being built")
        return self.evaluator.passes(pod, rows)

    def find_places(self, pods: Sequence[PodInfo], allowed: BoolColumn) -> Mapping[str, int] | None:
        """Where a pod on its own, or pods of one group, would go as the columns are now, on the nodes allowed."""
        return self.finder(pods, allowed) if self.finder is not None else None

    def attempt(self, key: str) -> GroupAttempt | None:
        """An attempt to place a waiting group as things are now, by the group's key; None when it does not wait."""
        return self.attempts(key) if self.attempts is not None else None

    def diagnose(self, pod: PodInfo) -> Diagnosis:
        """Why nodes are not feasible for the pod as the columns are now."""
        if self.evaluator is None:
            raise ConfigError("", self.profile, "diagnose() is not available while plugins are being built")
        return self.evaluator.diagnose(self.evaluator.filter(pod))
