"""What plugins are given: the handle, and the parts of it, as protocols."""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any, Protocol, TypeVar

from gangline.api.diagnosis import Diagnosis
from gangline.api.hints import ClusterEvent
from gangline.api.outlook import Outlook
from gangline.api.pod_group import GroupAttempt, Membership, Problem
from gangline.api.term import Term
from gangline.deadline import Deadline
from gangline.kube.interface import Client
from gangline.kube.resources import Resource, T
from gangline.model import TypedReference
from gangline.state.changes import NODE
from gangline.state.node_view import NodeView, Rows
from gangline.state.pods import PodInfo
from gangline.state.stores import Store
from gangline.state.topology import Topology
from gangline.state.tracking import Tracker
from gangline.state.transaction import Transaction
from gangline.status import BoolColumn

K = TypeVar("K", bound=Tracker)
S = TypeVar("S")


class State(Protocol):
    """The cluster. Plugins read it; they change it only in a transaction, which is undone."""

    @property
    def pods(self) -> Mapping[str, PodInfo]:
        """Every pod that is bound or assumed, by UID."""
        ...

    @property
    def homeless(self) -> Mapping[str, Mapping[str, PodInfo]]:
        """The pods that are bound or assumed to nodes that do not exist, by name of the node and by UID.

        Some may name a node that exists: when a node has more pods than are counted on one node, the others are here.
        """
        ...

    def view(self) -> NodeView:
        """All nodes as columns, as `Handle.nodes`: for shared objects and trackers, which have no handle."""
        ...

    def has_lost_node(self, uid: str) -> bool:
        """Whether the chosen node of a pod has been deleted while the pod is being bound.

        A node created since then with the same name is another node. The framework asks before each call of `pre_bind`
        and `bind`; a plugin that waits for long in one of them asks again.
        """
        ...

    def store(self, kind: Resource[T]) -> Store[T]:
        """The objects of a kind, for example `resources.LEASES`: iterate, `get(name, namespace)`, `version`.

        `subscribe(listener)` calls `on_upsert(obj)` and `on_remove(obj)` of the listener: `on_upsert` now for each
        object that exists, and both later for each change. The scheduler watches only the resources that it or a
        plugin's `watches` names: `watches` lists resources, or a `resources.Selection` of some objects of a resource.

        All changes up to the resourceVersion `seen` of the API server are in the store. `when_seen(version, call)`
        calls `call()` once, as soon as all changes up to `version` are in the store.

        An exception of a listener is counted and logged. The listener misses this change; other listeners do not.

        A subscription ends with the configuration of the plugin. The subscription of a `shared` object ends with the
        object.
        """
        ...

    def shared(self, kind: Callable[..., S], *args: Any) -> S:
        """The one object of a kind for all plugins and profiles that ask with equal arguments, which are hashable.

        It is made as `kind(*args)` at the first call. It stays as long as each configuration asks for it while its
        plugins are built, and is dropped with the first configuration that does not.
        """
        ...

    def tracker(self, kind: Callable[..., K], *args: Any) -> K:
        """As `shared`, for an object with `add(pod, row)` and `remove(pod, row)`.

        These are called for every placement and every removal of a pod.
        """
        ...

    def ask_trackers(self) -> None:
        """A tracker concerns pods of other classes now: its method `concerns` is called again for each class.

        The tracker may then be told of the removal of a pod of whose placement it was not told.
        """

    def follow_nodes(self, listener: Any) -> None:
        """Call `node_upserted(node, row)` of the listener for every node: now for each, later for each change.

        `node_removed(name, row)` is called when a node is deleted; its row may then become another node's. Pods are on
        a row only between the two calls. The calls end as a subscription does.
        """

    def at_end(self, end: Callable[[], None]) -> None:
        """Call `end` when the configuration is replaced or refused; several are called in reverse order.

        In the constructor of a `shared` object: call `end` when that object ends.
        """

    def touch(self, row: int, kind: int = NODE) -> None:
        """Note that a plugin knows something new of a node (NODE), or of the pods on it (PODS).

        Kept results that depend on such changes are evaluated again for the node's row. Raises TypeError or ValueError
        and notes nothing if there is no such row, as the -1 of a pod without a node.
        """

    def touch_all(self, rows: Sequence[int], kind: int = NODE) -> None:
        """As `touch` for each of these rows; if one of them is wrong, none is noted."""

    def transaction(self) -> Transaction:
        """A block of hypothetical steps, undone at its end."""
        ...

    def is_lifted(self, uid: str) -> bool:
        """Whether an open transaction has taken a pod off its node; by UID of a pod that is bound or assumed.

        A tracker that is told of a removal asks this: a pod that is not lifted is gone, or is told of again at once.
        """
        ...

    @property
    def is_undoing(self) -> bool:
        """Whether a step of a transaction is being undone: a tracker that is told of a pod now is to be as it was."""
        ...

    def after_undo(self, tracker: object, restore: Callable[[], None]) -> None:
        """For a tracker that is told of a step in a transaction: call `restore` when that step has been undone.

        Then all is as it was before the step, or is about to be restored: other functions may be called later. While
        steps are undone, and outside of transactions, the call does nothing. If `restore` raises, the tracker counts as
        out of step, as if it had raised itself.
        """

    def foreseen(self) -> AbstractContextManager[bool]:
        """In this block trackers count as done what will follow from pods that have ended or are ending.

        For example, devices that claims of such pods still have count as free. Yields whether that makes a difference.
        Nothing awaits in the block.
        """
        ...

    def record(self, pod: Any, row: int = -1) -> PodInfo:
        """The record of a pod object. Give a row if the plugin's own columns count the pod as placed there."""
        ...


class Clock(Protocol):
    """The time, given to the scheduler so that simulations can have their own."""

    def monotonic(self) -> float:
        """Seconds that never decrease."""
        ...

    def now(self) -> float:
        """Seconds since the epoch."""
        ...


class Recorder(Protocol):
    """Records Kubernetes events; they are written later and aggregated."""

    def event(self, pod: PodInfo, kind: str, reason: str, note: str, action: str = "Scheduling") -> None:
        """Record an event about a pod; kind is "Normal" or "Warning"."""

    def about(self, regarding: TypedReference, reporter: str, kind: str, reason: str, note: str, action: str) -> None:
        """Record an event about any object; ``reporter`` is the profile, ``action`` is what the profile was doing."""


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
        """This plugin no longer holds the pod."""

    def reject(self, plugin: str, why: str) -> None:
        """The pod must not be bound."""


class Waiting(Protocol):
    """The pods that permit plugins hold."""

    def __iter__(self) -> Iterator[WaitingPod]: ...

    def get(self, uid: str) -> WaitingPod | None:
        """The waiting pod with this UID, or None."""
        ...

    def held_by(self, plugin: str) -> Sequence[WaitingPod]:
        """The pods that this plugin still holds."""
        ...


class Handle(Protocol):
    """What the framework offers a plugin; the constructor of the plugin gets it."""

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
        """The time."""
        ...

    @property
    def random(self) -> Random:
        """Random numbers; a simulation with the same seed has the same ones."""
        ...

    @property
    def recorder(self) -> Recorder:
        """Records Kubernetes events."""
        ...

    @property
    def waiting(self) -> Waiting:
        """The pods that permit plugins hold."""
        ...

    @property
    def nodes(self) -> NodeView:
        """All nodes as columns."""
        ...

    @property
    def term(self) -> Term:
        """The time for which this process leads; without a name if it takes part in no election."""
        ...

    @property
    def client(self) -> Client:
        """The API client; only for background work and for pre_bind, bind and post_bind."""
        ...

    @property
    def deadline(self) -> Deadline:
        """The time by which the current unit has to be decided: call its `check` in long loops."""
        ...

    def within(self, deadline: Deadline) -> AbstractContextManager[None]:
        """In this block the framework's methods raise DeadlineExceeded after the deadline; for background work."""
        ...

    @property
    def ignored_resources(self) -> Collection[str]:
        """The resources that the scheduler leaves to extenders, as their `managedResources` say."""
        ...

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` in the background while this process leads and the configuration is in use.

        Then it is cancelled, and has 5 s to clean up.
        """

    def spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` once, now, in the background: for steps after a decision that are too slow for the decision.

        Does nothing while plugins are built, or while this process does not lead. When the configuration is replaced,
        the work may go on for half a minute.
        """

    @property
    def topology(self) -> Topology:
        """The levels of the network in this profile."""
        ...

    def group_pods(self) -> None:
        """From now on the pods of one group in this profile are one unit: all of them are placed, or none."""

    def group_of(self, pod: PodInfo) -> Membership | Problem | None:
        """The group of a pod and its place in the group; None for a pod on its own, and if pods are not grouped."""
        ...

    def members(self, key: str) -> Collection[PodInfo]:
        """The members of a group that have a node and are not being deleted; `key` is the group's key."""
        ...

    def leaving_members(self, key: str) -> Collection[PodInfo]:
        """The members of a group that are being deleted and are still on their nodes; `key` is the group's key.

        The group needs others in their place, and does not wait until they have left.
        """
        ...

    def is_queued(self, key: str) -> bool:
        """Whether members of a group are queued, and are enough together with the members that have a node.

        `key` is the group's key. Members that wait at permit are in `waiting`.
        """
        ...

    def queued_members(self, key: str) -> Collection[PodInfo]:
        """The members of a group that are queued or being decided on; `key` is the group's key."""
        ...

    def workload(self, pod: PodInfo) -> Mapping[str, str]:
        """The annotations of a pod and of its owners; the nearest one wins."""
        ...

    def nominated(self) -> Mapping[str, Mapping[str, PodInfo]]:
        """The waiting pods for which plugins make room on each node, by node name and UID."""
        ...

    def expect(self, key: str, places: Iterable[tuple[PodInfo, str]]) -> None:
        """Keep room for pods of a group that controllers are yet to create: records made by `anew`, with their nodes.

        Other pods of the same or a lower priority leave this room free, as for nominated pods, and the group comes
        before other groups and pods of its priority. The new places replace the ones that were kept for the group
        before. Call this with no places to give up the room, also when the configuration ends (`State.at_end`).
        """
        ...

    def preemption_is_reviewed(self, pod: PodInfo) -> bool:
        """Whether extenders have a say in which pods are removed for this pod; see `Proposal`."""
        ...

    def metric(self, name: str, help: str, labels: Iterable[str] = ()) -> Any:
        """A Prometheus counter of the plugin, on `/metrics` while the configuration is in use.

        If the next configuration has a counter with the same name and labels, that one goes on counting. So a plugin
        must not count while it is built: its configuration may still be refused.
        """
        ...

    def gauge(self, name: str, help: str, labels: Iterable[str] = ()) -> Any:
        """A Prometheus gauge of the plugin."""
        ...

    def histogram(self, name: str, help: str, buckets: Sequence[float], labels: Iterable[str] = ()) -> Any:
        """A Prometheus histogram of the plugin."""
        ...

    def distribution(self, name: str, help: str, buckets: Sequence[float]) -> Any:
        """A histogram of the plugin without labels; its `observe(value, number)` counts a value so many times."""
        ...

    def show(self, outlook: Outlook) -> None:
        """Let people see what the plugin expects, on the page of the scheduler, while the configuration is in use."""

    def announce(self, event: ClusterEvent) -> None:
        """Announce an event for which rejected pods may wait; they are tried if their plugins have registered it.

        For data that a plugin keeps itself, under a name of its own with a slash, such as `example.com/quotas`. Changes
        of API objects are announced anyway.
        """

    def filter(self, pod: PodInfo, rows: Rows) -> BoolColumn:
        """Whether each of these nodes passes all filters for the pod on the columns as they are now; for what-if."""
        ...

    def find_places(self, pods: Sequence[PodInfo], allowed: BoolColumn) -> Mapping[str, int] | None:
        """Where one pod, or pods of one group, would go on the columns as they are now: pod UID to row; for what-if.

        None if they cannot be placed. `allowed` has one truth value per row; only allowed nodes are looked at. The pods
        must have no node, and the call gives them none.
        """
        ...

    def attempt(self, key: str) -> GroupAttempt | None:
        """An attempt to place a waiting group in the cluster as it is, by the group's key; None if none waits.

        For plugins that plan for a group outside of a cycle. The attempt is valid until something changes.
        """
        ...

    def diagnose(self, pod: PodInfo) -> Diagnosis:
        """Why nodes are not feasible for the pod on the columns as they are now; read it before anything changes."""
        ...
