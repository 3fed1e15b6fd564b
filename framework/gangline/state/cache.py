"""The cluster as the scheduler knows it. No other module owns facts about the cluster.

Informers write nodes, pods and other objects into the cache. The scheduler writes its decisions: it assumes a pod on
its node before the API server has confirmed the binding, so that the next decision counts the pod already. Plugins read
the cache, and subscribe to its changes. Every placement and removal of a pod goes through `placing`, which updates the
columns and calls the trackers.

Rules:
- Only watch events and assumptions change the cache, one at a time, in one thread.
- A pod is placed on exactly one row, or waits in `_homeless` until its node appears.
- A pod is *assumed* from the decision until the watch confirms it. There is no timeout: if no confirmation comes, the
  API server is asked; see `loop/confirming.py`.
- An assumed pod whose node is deleted has lost this node for good: a new node with the same name is another node.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from gangline.errors import GanglineError, InvalidObject
from gangline.failures import Failures, being_built, name_of
from gangline.model import HasMetadata, Node, Pod
from gangline.state.changes import NODE
from gangline.state.interning import Interner
from gangline.state.node_view import NodeView
from gangline.state.nodes import MOST_PODS, Nodes
from gangline.state.placing import PlacedPods
from gangline.state.pods import PodInfo
from gangline.state.resource_axis import ResourceAxis
from gangline.state.scopes import Listeners, Scopes, Shared, Sharing
from gangline.state.slots import name_node, nominate, remember_group
from gangline.state.stores import Kind, Store
from gangline.state.tracking import Foresight, NodeListener, Tracker, check_methods, heard
from gangline.state.transaction import Transaction, UndoLog

ASSUMED_LIFETIME = 30.0
"""Seconds from the end of a binding until the API server is asked about a pod that the watch has not confirmed."""

T = TypeVar("T", bound=HasMetadata)
K = TypeVar("K", bound=Tracker)
S = TypeVar("S")


def _nobody(uid: str) -> None:
    """Nobody has to hear of places."""


class Cache(PlacedPods):
    """Nodes, pods, assumptions, and a store for every other kind of object."""

    def __init__(self, failures: Failures | None = None) -> None:
        axis = ResourceAxis()
        super().__init__(Nodes(axis), failures or Failures())
        self.interner = Interner(axis)
        self._heed: Callable[[str], None] = _nobody
        self._assumed: dict[str, float | None] = {}
        self._uprooted: set[str] = set()
        """Assumed pods whose node has been deleted since."""
        self._homeless: dict[str, dict[str, PodInfo]] = {}
        self.scopes = Scopes()
        self.sharing = Sharing(self.scopes)
        self.node_listeners: Listeners[NodeListener] = Listeners(self.scopes)
        self.stores: dict[str, Store[Any]] = {}
        """The stores by the key of their kind."""
        self._undo = UndoLog()
        self._foresight = Foresight(self.trackers)

    # Reading

    @property
    def pods(self) -> Mapping[str, PodInfo]:
        """Every pod that is bound or assumed, by UID, including pods on unknown nodes."""
        return self._pods

    @property
    def homeless(self) -> Mapping[str, Mapping[str, PodInfo]]:
        """The pods that are bound or assumed to nodes that do not exist, by name of the node and by UID.

        Some may name a node that exists: when a node has more pods than `MOST_PODS`, the others are here.
        """
        return self._homeless

    def view(self) -> NodeView:
        """All nodes as columns."""
        return self.nodes.view()

    def store(self, kind: Kind[T]) -> Store[T]:
        """The objects of a kind; each call returns the same store."""
        found = self.stores.get(kind.key)
        if found is None:
            found = self.stores[kind.key] = Store(self.failures, self.scopes)
        return found

    @property
    def version(self) -> int:
        """A number that grows with each change of a node, of the pods on it, or of any other object."""
        return self.nodes.changes.position + sum(store.version for store in self.stores.values())

    def is_assumed(self, uid: str) -> bool:
        """Whether this scheduler has placed the pod and the watch has not confirmed it yet."""
        return uid in self._assumed

    def has_lost_node(self, uid: str) -> bool:
        """Whether the node of an assumed pod was deleted before the watch confirmed the pod."""
        return uid in self._uprooted

    @property
    def unconfirmed(self) -> bool:
        """Whether the watch has yet to confirm a pod whose binding the API server has accepted; for any thread."""
        return any(until is not None for until in list(self._assumed.values()))

    @property
    def assumed(self) -> int:
        """The number of assumed pods."""
        return len(self._assumed)

    def record(self, pod: Pod, row: int = -1) -> PodInfo:
        """The record of a pod that is placed nowhere. Give a row if a plugin's columns count the pod as placed there.

        Raises InvalidObject.
        """
        return self.interner.pod(pod, row)

    def shared(self, kind: Callable[..., S], *args: Any) -> S:
        """The one object of a kind for all callers with equal arguments; made as `kind(*args)` at the first call.

        It ends with the last scope that has asked for it.
        """
        return cast(S, self.sharing.get(kind, args).object)

    def tracker(self, kind: Callable[..., K], *args: Any) -> K:
        """As `shared`, for a tracker: it is told of the pods that are placed, and of every change from now on."""
        shared = self.sharing.get(kind, args)
        if shared.object not in self.trackers:
            check_methods(shared.object, "tracker", "add", "remove")
            self._track(shared)
        return cast(K, shared.object)

    def _track(self, shared: Shared) -> None:
        self.trackers.add(shared.object, self._placed(), shared.users)
        shared.scope.callback(self.trackers.remove, shared.object)

    def at_end(self, end: Callable[[], None]) -> None:
        """Call `end` when the current scope ends; an exception that it raises is counted."""
        self.scopes.current.callback(self._ended, being_built.get() or name_of(end), end)

    def _ended(self, plugin: str, end: Callable[[], None]) -> None:
        try:
            end()
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            self.failures.raised(plugin, "End", error)

    def track(self, tracker: Tracker) -> None:
        """Tell the tracker of every placement and removal from now on, and now of the pods that are placed already."""
        self.trackers.add(tracker, self._placed())

    def ask_trackers(self) -> None:
        """A tracker concerns pods of other classes now: `concerns` is called again for each class."""
        self.trackers.version += 1

    def _placed(self) -> Iterator[PodInfo]:
        return (pod for pod in self._pods.values() if pod.row >= 0)

    def mend_trackers(self, again: bool = False) -> None:
        """Repair the trackers that are out of step, while no transaction is open; see `tracking`."""
        if self._undo.depth == 0:
            self.trackers.mend(self._placed(), again)

    def heed_places(self, heed: Callable[[str], None]) -> None:
        """Call this from now on with the UID of each pod that has a place now, another one, or none any more."""
        self._heed = heed

    def follow_nodes(self, listener: NodeListener) -> None:
        """Call the listener for every node until its scope ends: now for each, later for each change."""
        check_methods(listener, "listener", "node_upserted", "node_removed")
        for row, node in enumerate(self.nodes.objects):
            if node is not None:
                heard(self.failures, being_built.get(), listener.node_upserted, node, row)
        self.node_listeners.add(listener)

    def touch(self, row: int, kind: int = NODE) -> None:
        """What plugins know of a node, or of the pods on it, has changed: the row is evaluated again."""
        if row >= self.nodes.size:
            raise ValueError(f"there is no row {row}")
        self.nodes.note(row, kind)

    def touch_all(self, rows: Sequence[int], kind: int = NODE) -> None:
        """As `touch` for each of these rows."""
        if len(rows) and max(rows) >= self.nodes.size:
            raise ValueError(f"there is no row {max(rows)}")
        self.nodes.note_all(rows, kind)

    def transaction(self) -> Transaction:
        """A block of hypothetical steps."""
        return Transaction(self, self._undo)

    def is_lifted(self, uid: str) -> bool:
        """Whether a step of an open transaction has taken a pod off that is bound or assumed."""
        return uid in self._undo.lifted and uid in self._pods

    @property
    def is_undoing(self) -> bool:
        """Whether a step of a transaction is being undone."""
        return self._undo.is_undoing

    def after_undo(self, tracker: object, restore: Callable[[], None]) -> None:
        """See `State.after_undo`."""
        self._undo.after_undo(partial(self.trackers.restore, tracker, restore))

    def foreseen(self) -> AbstractContextManager[bool]:
        """See `State.foreseen`: trackers count as done what will follow from pods that have ended or are ending."""
        return self._foresight

    # Watch events

    def upsert_node(self, node: Node) -> int:
        """Add or update a node. Raises InvalidObject and changes nothing."""
        row = self.nodes.upsert(node)
        for plugin, listener in self.node_listeners:
            heard(self.failures, plugin, listener.node_upserted, node, row)
        waiting = self._homeless.pop(node.metadata.name, {})
        for uid in itertools.islice(list(waiting), max(0, MOST_PODS - len(self.nodes.pods_on[row]))):
            pod = waiting.pop(uid)
            try:
                self.place(pod, row)
            except GanglineError:  # a tracker refuses the pod, but the pod uses the node's resources all the same
                self.nodes.place(pod, row)
        if waiting:
            self._homeless[node.metadata.name] = waiting
        return row

    def remove_node(self, name: str) -> list[PodInfo]:
        """Remove a node; the pods on it wait until the node comes back or they are deleted.

        Returns the pods that were assumed on the node.
        """
        row = self.nodes.row_of(name)
        if row is None:
            return []
        pods = list(self.nodes.pods_on[row].values())
        for pod in pods:
            self.unplace(pod)
            self._homeless.setdefault(name, {})[pod.uid] = pod
        uprooted = [pod for pod in pods if pod.uid in self._assumed]
        self._uprooted.update(pod.uid for pod in uprooted)
        self.nodes.remove(name)
        for plugin, listener in self.node_listeners:
            heard(self.failures, plugin, listener.node_removed, name, row)
        return uprooted

    def upsert_pod(self, pod: PodInfo) -> None:
        """Add, update or confirm a pod that has a node. Raises InvalidObject if the node is full, and PluginError."""
        known = self._pods.get(pod.uid)
        row = self.nodes.row_of(pod.node_name)
        if known is None and row is not None and len(self.nodes.pods_on[row]) >= MOST_PODS:
            raise InvalidObject("spec.nodeName", pod.node_name, f"has {MOST_PODS} pods, and more are not counted")
        self._assume_no_longer(pod.uid)
        if pod.is_terminal:
            self.remove_pod(pod.uid)
            return
        self._pods[pod.uid] = pod
        self._heed(pod.uid)
        if known is not None and (self._swap(known, pod) or self._relabel(known, pod)):
            return
        if known is not None:
            self._detach(known)
        if row is None:
            self._homeless.setdefault(pod.node_name, {})[pod.uid] = pod
        else:
            self.place(pod, row)

    def remove_pod(self, uid: str) -> PodInfo | None:
        """Forget a pod for good; returns its record."""
        pod = self._pods.pop(uid, None)
        self._assume_no_longer(uid)
        if pod is not None:
            self._detach(pod)
            self._heed(uid)
        return pod

    # Assumptions

    def assume(self, pod: PodInfo, row: int) -> None:
        """Count a pod as placed before the API server confirms it. Raises PluginError as `place` does."""
        self.place(pod, row)
        self.adopt(pod)

    def adopt(self, pod: PodInfo) -> None:
        """Assume a pod that a transaction has placed; the transaction has to be committed."""
        uid = pod.uid
        self._pods[uid] = pod
        self._assumed[uid] = None
        name_node(pod.slot, self.nodes.names[pod.slot.row])
        self._heed(uid)

    def disown(self, pod: PodInfo) -> None:
        """Undo `adopt`; the pod stays on the row where the transaction has put it."""
        self._pods.pop(pod.uid, None)
        self._assume_no_longer(pod.uid)
        name_node(pod.slot, "")
        self._heed(pod.uid)

    def binding_ended(self, pod: PodInfo, now: float) -> None:
        """The API server has accepted the binding: the watch is to confirm it within ASSUMED_LIFETIME seconds."""
        if pod.uid in self._assumed:
            self._assumed[pod.uid] = now + ASSUMED_LIFETIME

    def forget(self, pod: PodInfo) -> None:
        """Drop an assumption; a pod that the watch has confirmed meanwhile stays."""
        if pod.uid in self._assumed:
            self.remove_pod(pod.uid)
            name_node(pod.slot, "")

    def _assume_no_longer(self, uid: str) -> None:
        self._assumed.pop(uid, None)
        self._uprooted.discard(uid)

    def overdue(self, now: float) -> list[PodInfo]:
        """The pods that the watch should have confirmed by now."""
        return [self._pods[uid] for uid, due in self._assumed.items() if due is not None and due <= now]

    def _swap(self, known: PodInfo, pod: PodInfo) -> bool:
        """Replace a record by a newer one if no column and no tracker would change.

        Trackers keep the older record: both share a slot, so both say where the pod is.
        """
        same = known.row >= 0 and known.counts_as(pod) and self.nodes.names[known.row] == pod.node_name
        if same:
            nominate(known.slot, pod.nominated_node_name)
            msgspec.structs.force_setattr(pod, "slot", known.slot)
            self.nodes.pods_on[known.row][pod.uid] = pod
        return same

    def _relabel(self, known: PodInfo, pod: PodInfo) -> bool:
        """Replace a record by a newer one if no column would change, but trackers may count the newer one otherwise.

        For nearly every pod this happens once: the API server gives a pod the topology labels of its node when the pod
        is bound. Raises PluginError as `place` does.
        """
        row = known.row
        same = row >= 0 and known.cls is pod.cls and self.nodes.names[row] == pod.node_name
        if same:
            told, others = self.trackers.split(self._told(pod.cls), known, pod)
            self._tell_off(known, row, told)
            self.nodes.relabel(known, pod)
            if (group := known.slot.membership) is not None and known.is_grouped_as(pod):
                remember_group(pod.slot, group)  # to read it again takes half of the time of this function
            try:
                self._tell_of(pod, row, told)
            except BaseException:
                self._tell_off(pod, row, others)  # which count the pod still
                raise
        return same

    def _detach(self, pod: PodInfo) -> None:
        if pod.row >= 0:
            self.unplace(pod)
        else:
            waiting = self._homeless.get(pod.node_name, {})
            waiting.pop(pod.uid, None)
            if not waiting:
                self._homeless.pop(pod.node_name, None)
