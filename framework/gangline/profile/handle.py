"""The handle: what the framework offers the plugins of one profile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from prometheus_client import Counter, Gauge, Histogram

from gangline.api.diagnosis import Diagnosis
from gangline.api.hints import ClusterEvent
from gangline.api.outlook import Outlook
from gangline.api.plugin import Clock, Recorder
from gangline.api.pod_group import GroupAttempt, Membership, Problem
from gangline.api.term import Term
from gangline.deadline import NO_DEADLINE, Deadline
from gangline.errors import ConfigError, PluginError
from gangline.failures import being_built, text_of
from gangline.groups.members import Grouping, PlacedMembers
from gangline.kube.interface import Client
from gangline.profile.background import Background
from gangline.profile.evaluation import Evaluator
from gangline.queueing.waiting import WaitingPods
from gangline.state.cache import Cache
from gangline.state.node_view import NodeView, Rows
from gangline.state.pods import PodInfo
from gangline.state.topology import Topology
from gangline.status import BoolColumn
from gangline.telemetry.distribution import Distribution
from gangline.telemetry.plugin_metrics import PluginMetrics


class _NoGroups:
    """A grouping in which every pod is on its own."""

    version = 0

    def of(self, pod: PodInfo) -> None:
        """None: no pod is in a group."""

    def annotations(self, pod: PodInfo) -> Mapping[str, str]:
        """The annotations of the pod."""
        return pod.annotations


NO_GROUPS = _NoGroups()


class Pending:
    """The waiting pods and groups, and the places that they would get.

    This class is for programs without a queue: no pod waits, and announcements go nowhere.
    """

    def nominated(self) -> Mapping[str, Mapping[str, PodInfo]]:
        """The waiting pods for which plugins make room on each node, by node name and UID."""
        return {}

    def expect(self, key: str, places: Iterable[tuple[PodInfo, str]]) -> None:
        """See `Handle.expect`."""

    def is_queued(self, key: str) -> bool:
        """Whether members of a group are queued, and are enough; by the group's key."""
        return False

    def queued_members(self, key: str) -> Collection[PodInfo]:
        """The members of a group that are queued or being decided on; by the group's key."""
        return ()

    def is_reviewed(self, pod: PodInfo) -> bool:
        """Whether extenders have a say in which pods are removed for this pod."""
        return False

    def find_places(self, profile: str, pods: Sequence[PodInfo], allowed: BoolColumn) -> Mapping[str, int] | None:
        """See `Handle.find_places`."""
        return None

    def attempt(self, profile: str, key: str) -> GroupAttempt | None:
        """See `Handle.attempt`."""
        return None

    def announce(self, event: ClusterEvent) -> None:
        """Announce an event for which rejected pods may wait."""


class AtWork(Protocol):
    """A profile whose plugins are built."""

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator of the profile."""
        ...


P = TypeVar("P", bound=AtWork)
M = TypeVar("M", Counter, Gauge, Histogram, Distribution)


@dataclass(frozen=True, eq=False)
class Services(Generic[P]):
    """What the handles of one configuration use; all of it exists before the first plugin is built."""

    state: Cache
    clock: Clock
    recorder: Recorder
    waiting: WaitingPods
    client: Client
    metrics: PluginMetrics
    background: Background
    pending: Pending = field(default_factory=Pending)
    grouping: Grouping = NO_GROUPS
    """Finds the group of a pod; a profile uses it once a plugin has called `group_pods`."""
    ignored_resources: frozenset[str] = frozenset()
    """The resources that the scheduler leaves to extenders."""
    at_work: dict[str, P] = field(default_factory=dict)
    """The profiles by name, each as soon as its plugins are built: the only value that is filled in later."""
    term: Callable[[], Term] = Term
    """See `Handle.term`."""
    random: Random = field(default_factory=Random)


class FrameworkHandle:
    """The handle that plugins get; one per profile."""

    def __init__(self, profile: str, services: Services[Any]) -> None:
        self.profile = profile
        self.state = services.state
        self.clock = services.clock
        self.random = services.random
        self.recorder = services.recorder
        self.waiting = services.waiting
        self.client = services.client
        self.ignored_resources = services.ignored_resources
        self.run = services.background.run
        self.spawn = services.background.spawn
        self.nominated = services.pending.nominated
        self.expect = services.pending.expect
        self.is_queued = services.pending.is_queued
        self.queued_members = services.pending.queued_members
        self.preemption_is_reviewed = services.pending.is_reviewed
        self.announce = services.pending.announce
        self.workload = services.grouping.annotations
        self.topology = Topology(self.state.nodes)
        """The levels of this profile; a plugin may configure them when it is built."""
        self.grouping: Grouping = NO_GROUPS
        """Finds the group of a pod; finds none if no plugin groups pods."""
        self.placed = PlacedMembers(NO_GROUPS)
        """The members of groups that have a node."""
        self.outlooks: list[tuple[str, Outlook]] = []
        """What plugins let people see, with the name of each plugin."""
        self._services = services

    def plugins_are_built(self, at_work: AtWork) -> None:
        """The plugins are built: methods that need them work from now on."""
        self._services.at_work[self.profile] = at_work

    @property
    def nodes(self) -> NodeView:
        """All nodes as columns."""
        return self.state.nodes.view()

    @property
    def term(self) -> Term:
        """See `Handle`."""
        return self._services.term()

    @property
    def deadline(self) -> Deadline:
        """The time by which the current unit has to be decided; never, outside of a decision."""
        at_work = self._services.at_work.get(self.profile)
        return NO_DEADLINE if at_work is None else at_work.evaluator.deadline

    def within(self, deadline: Deadline) -> AbstractContextManager[None]:
        """In this block the framework's methods raise DeadlineExceeded after the deadline; for background work."""
        at_work = self._services.at_work.get(self.profile)
        return nullcontext() if at_work is None else at_work.evaluator.within(deadline)

    @property
    def groups_pods(self) -> bool:
        """Whether the pods of one group in this profile are one unit."""
        return self.grouping is not NO_GROUPS

    def group_pods(self) -> None:
        """From now on the pods of one group in this profile are one unit: all of them are placed, or none."""
        self.grouping = self._services.grouping
        self.placed = self.state.tracker(PlacedMembers, self.grouping)

    def group_of(self, pod: PodInfo) -> Membership | Problem | None:
        """The group of a pod and its place in the group; None for a pod on its own, and if pods are not grouped."""
        return self.grouping.of(pod)

    def members(self, key: str) -> Collection[PodInfo]:
        """The members of a group that have a node and are not being deleted; `key` is the group's key."""
        return self.placed.of(key)

    def leaving_members(self, key: str) -> Collection[PodInfo]:
        """The members of a group that are being deleted and are still on their nodes; `key` is the group's key."""
        return self.placed.leaving(key)

    def show(self, outlook: Outlook) -> None:
        """Let people see what the plugin expects."""
        self.outlooks.append((being_built.get(), outlook))

    def metric(self, name: str, help: str, labels: Iterable[str] = ()) -> Counter:
        """A counter of the plugin; the same one for all profiles and for all calls with the same name."""
        return self._own("metric", Counter, name, help, labels)

    def gauge(self, name: str, help: str, labels: Iterable[str] = ()) -> Gauge:
        """A gauge of the plugin, as `metric`."""
        return self._own("gauge", Gauge, name, help, labels)

    def histogram(self, name: str, help: str, buckets: Sequence[float], labels: Iterable[str] = ()) -> Histogram:
        """A histogram of the plugin, as `metric`; the buckets are those of the first call."""
        return self._own("histogram", Histogram, name, help, labels, buckets)

    def distribution(self, name: str, help: str, buckets: Sequence[float]) -> Distribution:
        """A histogram of the plugin, as `histogram`, that counts a value any number of times at once."""
        return self._own("distribution", Distribution, name, help, (), buckets)

    def _own(
        self, what: str, kind: type[M], name: str, help: str, labels: Iterable[str], buckets: Sequence[float] = ()
    ) -> M:
        try:
            return self._services.metrics.get(kind, name, help, tuple(labels), buckets)
        except (TypeError, ValueError) as error:
            raise PluginError(being_built.get(), what, text_of(error)) from error

    def filter(self, pod: PodInfo, rows: Rows) -> BoolColumn:
        """Whether each of these nodes passes all filters for the pod on the columns as they are now."""
        return self._evaluator("filter").passes(pod, rows)

    def find_places(self, pods: Sequence[PodInfo], allowed: BoolColumn) -> Mapping[str, int] | None:
        """Where one pod, or pods of one group, would go on the columns as they are now, on the allowed nodes."""
        self._evaluator("find_places")
        return self._services.pending.find_places(self.profile, pods, allowed)

    def attempt(self, key: str) -> GroupAttempt | None:
        """An attempt to place a waiting group in the cluster as it is, by the group's key; None if none waits."""
        self._evaluator("attempt")
        return self._services.pending.attempt(self.profile, key)

    def diagnose(self, pod: PodInfo) -> Diagnosis:
        """Why nodes are not feasible for the pod on the columns as they are now."""
        evaluator = self._evaluator("diagnose")
        return evaluator.diagnose(evaluator.filter(pod))

    def _evaluator(self, asked: str) -> Evaluator:
        at_work = self._services.at_work.get(self.profile)
        if at_work is None:
            raise ConfigError("", self.profile, f"{asked}() is not available while plugins are being built")
        return at_work.evaluator
