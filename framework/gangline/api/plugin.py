"""What a plugin is written with: the handle it is given, and `per_node` for authors who think node by node."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import numpy as np

from gangline.api.cycle_state import Cycle
from gangline.api.diagnosis import Diagnosis
from gangline.api.hints import ClusterEvent
from gangline.api.pod_group import GroupAttempt, Membership, Problem
from gangline.deadline import Deadline
from gangline.kube.interface import Client
from gangline.kube.resources import Resource, T
from gangline.model import TypedReference
from gangline.state.changes import NODE
from gangline.state.nodes import NodeView, Rows
from gangline.state.pods import PodInfo
from gangline.state.stores import Store
from gangline.state.topology import Topology
from gangline.state.tracking import Tracker
from gangline.state.transaction import Transaction
from gangline.status import BoolColumn, CodeColumn, Reason, ScoreColumn

MOST_REASONS = 255
"""Different texts with which a method that thinks node by node rejects nodes, in all."""

K = TypeVar("K", bound=Tracker)
S = TypeVar("S")


class State(Protocol):
    """The cluster, to read; hypothetical changes only in a transaction."""

    @property
    def pods(self) -> Mapping[str, PodInfo]:
        """Every pod that is bound or assumed, by UID."""
        ...

    def has_lost_node(self, uid: str) -> bool:
        """Whether the node that was chosen for a pod has gone while the pod is being bound.

        A node that has come since under the same name is another one. The framework asks before each call of `pre_bind`
        and `bind`; a plugin that waits for long in one of them asks again.
        """
        ...

    def store(self, kind: Resource[T]) -> Store[T]:
        """The objects of a kind, such as `resources.LEASES`: iterate, `get(name, namespace)`, `version`.

        `subscribe(listener)` tells an object with `on_upsert(obj)` and `on_remove(obj)` of every change, and at once of
        what is there. Only what the scheduler or a plugin `watches` is followed: a plugin's `watches` are resources, or
        a `resources.Selection` of some of their objects.

        A subscription ends with the configuration of the plugin; that of a `shared` object with the object.
        """
        ...

    def shared(self, kind: Callable[..., S], *args: Any) -> S:
        """The one object of a kind for all plugins and profiles that ask with equal arguments.

        Made as `kind(*args)` when first asked for. It stays as long as each configuration asks for it while its plugins
        are built, and is dropped with the first that does not.
        """
        ...

    def tracker(self, kind: Callable[..., K], *args: Any) -> K:
        """As `shared`, for an object with `add(pod, row)` and `remove(pod, row)`: it is told of every placement and
        removal.
        """
        ...

    def follow_nodes(self, listener: Any) -> None:
        """Tell an object with `node_upserted(node, row)` and `node_removed(name, row)` of every node; at once of all.

        A row is another node's after node_removed; pods are on a row only between the two. It ends as a subscription.
        """

    def at_end(self, end: Callable[[], None]) -> None:
        """Call this when the configuration ends, be it replaced or refused; the last one first.

        Asked for in the constructor of a `shared` object it is called when that ends.
        """

    def touch(self, row: int, kind: int = NODE) -> None:
        """Something that a plugin knows of a node (NODE), or of the pods on it (PODS), has changed.

        What is kept for its row and depends on such changes is evaluated again.
        """

    def transaction(self) -> Transaction:
        """A block of hypothetical steps, undone at its end."""
        ...

    def record(self, pod: Any, row: int = -1) -> PodInfo:
        """The record of a pod object; with a row, of one that the plugin's own columns take for placed there."""
        ...


class Clock(Protocol):
    """Time, handed in so that simulations have their own."""

    def monotonic(self) -> float:
        """Seconds that only grow."""
        ...

    def now(self) -> float:
        """Seconds since the epoch."""
        ...


class Recorder(Protocol):
    """Writes Kubernetes events, later and aggregated."""

    def event(self, pod: PodInfo, kind: str, reason: str, note: str, action: str = "Scheduling") -> None:
        """Say something about a pod; kind is "Normal" or "Warning"."""

    def about(self, regarding: TypedReference, reporter: str, kind: str, reason: str, note: str, action: str) -> None:
        """Say something about any object; ``reporter`` is the profile that says it, ``action`` what it was doing."""


class WaitingPod(Protocol):
    """A pod that a permit plugin holds."""

    @property
    def pod(self) -> PodInfo:
        """The pod."""
        ...

    @property
    def node(self) -> str:
        """The node that was chosen for it."""
        ...

    def allow(self, plugin: str) -> None:
        """One plugin no longer holds it."""

    def reject(self, plugin: str, why: str) -> None:
        """It must not be bound."""


class Waiting(Protocol):
    """The pods that permit plugins hold."""

    def __iter__(self) -> Iterator[WaitingPod]: ...

    def get(self, uid: str) -> WaitingPod | None:
        """The waiting pod with this UID, or None."""
        ...

    def held_by(self, plugin: str) -> Sequence[WaitingPod]:
        """The pods that a plugin has not let go yet."""
        ...


class Handle(Protocol):
    """What the framework offers a plugin; given to its constructor."""

    @property
    def profile(self) -> str:
        """The schedulerName."""
        ...

    @property
    def state(self) -> State:
        """The cluster."""
        ...

    @property
    def clock(self) -> Clock:
        """Time."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Kubernetes events."""
        ...

    @property
    def waiting(self) -> Waiting:
        """The pods held at permit."""
        ...

    @property
    def nodes(self) -> NodeView:
        """All nodes as columns."""
        ...

    @property
    def client(self) -> Client:
        """The API client; for background work and for pre_bind, bind, post_bind only."""
        ...

    @property
    def deadline(self) -> Deadline:
        """Until when the unit has to be decided that is being decided now: call its `check` in long loops."""
        ...

    def within(self, deadline: Deadline) -> AbstractContextManager[None]:
        """What is asked for in this block raises DeadlineExceeded from then on; for work in the background."""
        ...

    @property
    def ignored_resources(self) -> Collection[str]:
        """The resources that only extenders look at, as their `managedResources` say."""
        ...

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Background work that goes on while this process leads and the configuration is in use."""

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something once, in the background, now; for what follows from a decision but is too slow for it.

        It has half a minute left when the configuration is replaced.
        """

    @property
    def topology(self) -> Topology:
        """The levels of the network as this profile sees them."""
        ...

    def group_pods(self) -> None:
        """Pods of this profile that belong together are one unit from now on: all of them are placed, or none."""

    def group_of(self, pod: PodInfo) -> Membership | Problem | None:
        """The group of a pod and its place in it; None for a pod on its own, and where pods are not grouped."""
        ...

    def members(self, key: str) -> Collection[PodInfo]:
        """The members of a group that have a node, by the group's key."""
        ...

    def is_waiting(self, key: str) -> bool:
        """Whether members of a group wait for a node, and are enough with those that have one, by the group's key."""
        ...

    def workload(self, pod: PodInfo) -> Mapping[str, str]:
        """The annotations of a pod and of what owns it, the nearest winning."""
        ...

    def nominated(self) -> Mapping[str, Mapping[str, PodInfo]]:
        """Node name to the waiting pods for which room is being made there, by UID."""
        ...

    def preemption_is_reviewed(self, pod: PodInfo) -> bool:
        """Whether extenders have a say in which pods are removed for this one; see `Proposal`."""
        ...

    def metric(self, name: str, help: str, labels: Iterable[str] = ()) -> Any:
        """A Prometheus counter of the plugin's own, on `/metrics` while the configuration is in use.

        It goes on counting where the next configuration has one with the same name and labels; so a plugin must not
        count while it is built, as its configuration may still be refused.
        """
        ...

    def gauge(self, name: str, help: str, labels: Iterable[str] = ()) -> Any:
        """A Prometheus gauge of the plugin's own."""
        ...

    def histogram(self, name: str, help: str, buckets: Sequence[float], labels: Iterable[str] = ()) -> Any:
        """A Prometheus histogram of the plugin's own."""
        ...

    def announce(self, event: ClusterEvent) -> None:
        """Something has happened that rejected pods may wait for: those are tried whose plugins have registered it.

        For what a plugin keeps itself, under a resource name of its own; objects of the API server are announced
        anyway.
        """

    def filter(self, pod: PodInfo, rows: Rows) -> BoolColumn:
        """Whether each of these nodes passes all filters for the pod as the columns are now; for what-if."""
        ...

    def find_places(self, pods: Sequence[PodInfo], allowed: BoolColumn) -> Mapping[str, int] | None:
        """Where a pod on its own, or pods of one group, would go as the columns are now: pod UID to row; for what-if.

        None for nowhere. Only nodes that are allowed are looked at, one value per row. The pods have no node before
        and none after.
        """
        ...

    def attempt(self, key: str) -> GroupAttempt | None:
        """An attempt to place a waiting group as things are now, by the group's key; None when it does not wait.

        For those who plan for a group outside of a cycle; it holds until something changes.
        """
        ...

    def diagnose(self, pod: PodInfo) -> Diagnosis:
        """Why nodes are not feasible for the pod as the columns are now; read it before anything changes."""
        ...


def per_node(
    function: Callable[[Any, PodInfo, Any], Any],
) -> Callable[[Any, Cycle, PodInfo, NodeView], Any]:
    """Lift `method(self, pod, node)` to the columns; use it below `@hookimpl`, on `filter` or `score`.

    A filter returns True or None to pass; False, or a text as the reason, to reject. A score returns a number. The
    method is called once per node, so this is for plugins whose cost does not matter.
    """
    if function.__name__ == "score":

        @functools.wraps(function)
        def score(self: Any, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
            scores = np.zeros(len(nodes))
            for i in np.flatnonzero(nodes.alive).tolist():  # a loop is what the author asked for
                scores[i] = function(self, pod, nodes.node(i))
            return scores

        return _with_full_signature(score)

    @functools.wraps(function)
    def filter(self: Any, cycle: Cycle, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        verdicts = np.zeros(len(nodes), dtype=np.uint8)
        numbers: dict[bool | str, int] = {}
        for i in np.flatnonzero(nodes.alive).tolist():  # a loop is what the author asked for
            answer = function(self, pod, nodes.node(i))
            if isinstance(answer, str) or not (answer is None or answer):
                why = answer if isinstance(answer, str) else False
                if why not in numbers:
                    numbers[why] = _reason_number(self, why)
                verdicts[i] = numbers[why]
        return verdicts

    lifted = _with_full_signature(filter)
    lifted.is_lifted = True  # it makes its reasons as it goes
    return lifted


def _with_full_signature(lifted: Any) -> Any:
    del lifted.__wrapped__  # pluggy reads the arguments from the signature
    return lifted


def _reason_number(plugin: Any, answer: bool | str) -> int:
    """The number of a reason; what there are too many of is said in common."""
    common = f"node(s) were rejected by {plugin.name}"
    message = answer if isinstance(answer, str) else common
    reasons: list[Any] = plugin.__dict__.setdefault("reasons", [Reason(common)])
    for number, reason in enumerate(reasons, start=1):
        if reason.message == message:
            return number
    if len(reasons) == MOST_REASONS:
        return 1
    reasons.append(Reason(message))
    return len(reasons)
