"""Builders and fakes for the tests of plugins: objects, a cluster of them, and what one plugin says about it.

    cache = cluster([make_node("a"), make_node("b", gpus=4)], [make_pod("p", gpus=4, node="a")])
    assert run_filter(MyFilter, make_pod("q", gpus=8), cache) == {"a": ("taken",), "b": ("too small",)}

Everything here runs the plugin as the scheduler does: built by the registry, called through a compiled profile.
Its modules have more: `deciding` whole scheduling cycles, `gangs` gangs on spines and leaves, `gang_stories` gangs on a
simulated cluster, `configured` profiles and arguments of a configuration, `random_clusters` strategies of hypothesis.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from gangline import model
from gangline.api.hints import ClusterEvent
from gangline.errors import ApiError
from gangline.failures import Failures
from gangline.groups import Groups
from gangline.groups.members import Grouping
from gangline.kube.interface import NoClient
from gangline.profile.background import Background, Work
from gangline.profile.compiling import compile_profile
from gangline.profile.handle import NO_GROUPS, FrameworkHandle, Pending, Services
from gangline.profile.registry import Catalog, is_only_told, points_of
from gangline.profile.runtime import Runtime
from gangline.queueing.waiting import PodAtPermit, WaitingPods
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.scopes import Scope
from gangline.telemetry.metrics import Metrics

__all__ = [
    "GPU",
    "SCHEDULER",
    "Cache",
    "FakeBackground",
    "FakeBindings",
    "FakeClock",
    "FakeHandle",
    "FakePending",
    "FakeRecorder",
    "Groups",
    "Metrics",
    "NoClient",
    "Pending",
    "PodAtPermit",
    "RecordedEvent",
    "Runtime",
    "Scope",
    "WaitingPods",
    "cluster",
    "make_node",
    "make_pod",
    "make_runtime",
    "run_filter",
    "run_score",
]

GPU = "nvidia.com/gpu"
"""The resource for the argument `gpus`."""
SCHEDULER = "default-scheduler"
"""The scheduler of the pods, and the name of the profiles."""

# Objects


def make_node(
    name: str,
    gpus: int = 8,
    cpu: model.Quantity = "128",
    memory: model.Quantity = "1Ti",
    pods: int = 110,
    resources: Mapping[str, model.Quantity] | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[str] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> model.Node:
    """A node; taints are written "key=value:Effect" or "key:Effect", images are names and bytes.

    `resources` are further allocatable amounts; the label kubernetes.io/hostname is always set.
    """
    amounts: model.Resources = {"cpu": cpu, "memory": memory, "pods": pods, **(resources or {})}
    if gpus:
        amounts[GPU] = gpus
    return model.Node(
        metadata=model.ObjectMeta(
            name=name,
            uid=f"node-{name}",
            labels={"kubernetes.io/hostname": name, **(labels or {})},
            annotations=dict(annotations) if annotations else None,
        ),
        spec=model.NodeSpec(unschedulable=unschedulable, taints=[_taint(text) for text in taints]),
        status=model.NodeStatus(
            allocatable=amounts,
            images=[model.ContainerImage(names=[image], size_bytes=size) for image, size in (images or {}).items()],
        ),
    )


def make_pod(
    name: str,
    gpus: int = 0,
    cpu: model.Quantity = 0,
    memory: model.Quantity = 0,
    resources: Mapping[str, model.Quantity] | None = None,
    namespace: str = "default",
    node: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> model.Pod:
    """A pod with one container, on a node if one is named; `spec` has further fields of `model.PodSpec`.

    An amount of 0 is not requested; `resources` are further requests. Devices are also set as limits.
    """
    requests = {"cpu": cpu, "memory": memory, GPU: gpus, **(resources or {})}
    requests = {key: amount for key, amount in requests.items() if amount}
    limits = {key: amount for key, amount in requests.items() if "/" in key}
    wanted = model.ResourceRequirements(requests=requests, limits=limits or None)
    spec.setdefault("containers", [model.Container(name="main", image="main:1", resources=wanted)])
    spec.setdefault("scheduler_name", SCHEDULER)
    return model.Pod(
        metadata=model.ObjectMeta(
            name=name,
            namespace=namespace,
            uid=f"pod-{namespace}-{name}",
            labels=dict(labels or {}),
            annotations=dict(annotations or {}),
        ),
        spec=model.PodSpec(node_name=node, **spec),
    )


def cluster(nodes: Iterable[model.Node] = (), pods: Iterable[model.Pod] = ()) -> Cache:
    """A cache with these nodes and, on the nodes, these pods."""
    cache = Cache()
    for node in nodes:
        cache.upsert_node(node)
    for pod in pods:
        cache.upsert_pod(cache.record(pod))
    return cache


def _taint(text: str) -> model.Taint:
    what, effect = text.rsplit(":", 1)
    key, _, value = what.partition("=")
    return model.Taint(key=key, value=value, effect=effect)


# Fakes


class FakeClock:
    """A clock that stands still until `advance` is called."""

    def __init__(self, seconds: float = 1000.0) -> None:
        self.seconds = seconds

    def monotonic(self) -> float:
        """Seconds that never decrease."""
        return self.seconds

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.seconds

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event that a plugin recorded about a pod, or about another object."""

    pod: str
    """NAMESPACE/NAME of the object."""
    kind: str
    reason: str
    note: str


class FakeRecorder:
    """Keeps events in a list."""

    def __init__(self) -> None:
        self.events: list[RecordedEvent] = []

    def event(self, pod: PodInfo, kind: str, reason: str, note: str, action: str = "Scheduling") -> None:
        """Record an event about a pod."""
        self.events.append(RecordedEvent(pod.key, kind, reason, note))

    def about(
        self, regarding: model.TypedReference, reporter: str, kind: str, reason: str, note: str, action: str
    ) -> None:
        """Record an event about any object."""
        self.events.append(RecordedEvent(f"{regarding.namespace}/{regarding.name}", kind, reason, note))


@dataclass(slots=True)
class FakeBindings(NoClient):
    """The part of an API client that binds: records the bindings, and fails as told."""

    bound: dict[str, str] = field(default_factory=dict)
    """Pod ("namespace/name") to node."""
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    """Pod to the annotations that came with its binding."""
    failures: list[ApiError] = field(default_factory=list)
    """Raised one after the other by the next bindings."""

    async def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> None:
        """Bind. Raises the next failure, if there is one."""
        if self.failures:
            raise self.failures.pop(0)
        self.bound[f"{namespace}/{name}"] = node
        self.annotations[f"{namespace}/{name}"] = dict(annotations)


class FakePending(Pending):
    """The waiting pods and groups, as a test sets them."""

    def __init__(self) -> None:
        self.nominations: Mapping[str, Mapping[str, PodInfo]] = {}
        """The nominated pods by node name and UID."""
        self.queued: Callable[[str], bool] = lambda key: False
        """Whether the group with this key is queued and complete."""
        self.announced: list[ClusterEvent] = []

    def nominated(self) -> Mapping[str, Mapping[str, PodInfo]]:
        """The nominations that the test has set."""
        return self.nominations

    def is_queued(self, key: str) -> bool:
        """The answer that the test has set."""
        return self.queued(key)

    def announce(self, event: ClusterEvent) -> None:
        """Append the event to the list."""
        self.announced.append(event)


class FakeBackground(Background):
    """Collects in lists what plugins run and spawn."""

    def __init__(self, failures: Failures) -> None:
        super().__init__(failures)
        self.spawned: list[Work] = []

    def spawn(self, work: Work) -> None:
        """Append the work to the list."""
        self.spawned.append(work)


class FakeHandle(FrameworkHandle):
    """The handle for plugins, with a clock that stands still and a recorder that keeps a list.

    Without `grouping` every pod is on its own.
    """

    def __init__(
        self,
        cache: Cache,
        client: Any = None,
        metrics: Metrics | None = None,
        grouping: Grouping = NO_GROUPS,
        pending: Pending | None = None,
    ) -> None:
        self.fake_clock = FakeClock()
        self.fake_recorder = FakeRecorder()
        self.fake_metrics = metrics or Metrics()
        self.fake_pending = FakePending()
        self.bindings = FakeBindings()
        self.background = FakeBackground(self.fake_metrics.failures)
        self.services = Services[Any](
            cache,
            self.fake_clock,
            self.fake_recorder,
            WaitingPods(),
            self.bindings if client is None else client,
            self.fake_metrics.of_plugins,
            self.background,
            pending or self.fake_pending,
            grouping,
        )
        super().__init__(SCHEDULER, self.services)


# Plugins at work


def make_runtime(
    cache: Cache,
    *plugins: type[Any],
    args: Mapping[str, msgspec.Struct] | None = None,
    weights: Mapping[str, int] | None = None,
    handle: FrameworkHandle | None = None,
    metrics: Metrics | None = None,
    ties: random.Random | None = None,
) -> Runtime:
    """A profile with only these plugins, in this order, at every extension point that they implement.

    `args` and `weights` are by plugin name; missing arguments have their defaults. Raises PluginError.
    """
    metrics = metrics or Metrics()
    handle = handle or FakeHandle(cache, metrics=metrics)
    points: dict[str, list[tuple[str, int]]] = {}
    for plugin in plugins:
        for point in points_of(plugin):
            points.setdefault(point, []).append((plugin.name, (weights or {}).get(plugin.name, 1)))

    besides = [plugin.name for plugin in plugins if is_only_told(plugin)]

    def args_of(name: str, type_: type[msgspec.Struct] | None) -> msgspec.Struct | None:
        return (args or {}).get(name) or (type_() if type_ is not None else None)

    catalog = Catalog({}).with_classes(*plugins)
    profile = compile_profile(SCHEDULER, points, catalog, args_of, handle, metrics, besides=besides)
    return Runtime(profile, handle, metrics, ties)


def run_filter(
    plugin: type[Any], pod: model.Pod, cache: Cache, args: msgspec.Struct | None = None
) -> dict[str, tuple[str, ...]]:
    """The result of a plugin's pre_filter and filter: for each node the reasons against it, none if it is feasible."""
    runtime = make_runtime(cache, plugin, args={plugin.name: args} if args is not None else None)
    diagnosis = runtime.evaluator.diagnose(runtime.evaluator.filter(cache.record(pod)))
    verdicts = {name: diagnosis.all_of(row) for row, name in _alive(cache)}
    return {name: found[0][2] if found else () for name, found in verdicts.items()}


def run_score(plugin: type[Any], pod: model.Pod, cache: Cache, args: msgspec.Struct | None = None) -> dict[str, float]:
    """A plugin's normalized scores, 0..100, of the nodes that its own filter leaves; empty if it skips the pod."""
    runtime = make_runtime(cache, plugin, args={plugin.name: args} if args is not None else None)
    filtered = runtime.evaluator.filter(cache.record(pod))
    scores: Sequence[float] = runtime.evaluator.scores(filtered).get(plugin.name, np.zeros(0)).tolist()
    names = [name for i, name in _alive(cache) if filtered.feasible[i]]
    return dict(zip(names, scores, strict=False))


def _alive(cache: Cache) -> list[tuple[int, str]]:
    return [(row, name) for row, name in enumerate(cache.nodes.names) if name]
