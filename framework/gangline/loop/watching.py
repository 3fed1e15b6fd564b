"""From watch events to the cache and the queue: what each kind of object changes, and which pods that may help.

Handlers may raise any exception because of an object: a `quarantine` stands before each handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, cast

import msgspec

from gangline import bounds
from gangline.api.hints import Action, ClusterEvent
from gangline.api.plugin import Clock
from gangline.kube.resources import Resource
from gangline.model import HasMetadata, Node, Pod
from gangline.profile.recording import EventRecorder
from gangline.queueing.queue import SchedulingQueue
from gangline.queueing.units import Place, Unit
from gangline.queueing.waiting import WaitingPods
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.stores import Store

_event = cache(ClusterEvent)
"""There are few different events, and a new one is checked each time."""


class Cluster:
    """The objects that all handlers use."""

    def __init__(
        self,
        cache: Cache,
        queue: SchedulingQueue,
        waiting: WaitingPods,
        recorder: EventRecorder,
        clock: Clock,
        enqueued: Callable[[PodInfo], None],
    ) -> None:
        self.cache = cache
        self.queue = queue
        self.waiting = waiting
        self.recorder = recorder
        self.clock = clock
        self.enqueued = enqueued
        """Tells the plugins of a waiting pod."""
        self.woken = asyncio.Event()
        """There may be a unit to decide."""
        queue.nominations.follow(cache.pods, self.wake)
        cache.heed_places(queue.nominations.touch)
        self.is_listed = True
        """Whether all existing objects have been listed; until then nothing is decided, and no object is an event."""

    def all_is_listed(self) -> None:
        """From now on a new object is an event. Units that were held because objects were missing are tried again."""
        self.is_listed = True
        self.queue.start_over(self.clock.monotonic())
        self.wake()

    def wake(self) -> None:
        """There may be a unit to decide."""
        self.woken.set()

    def happened(self, resource: str, action: Action, old: Any, new: Any) -> None:
        """Move the units in the queue that the event may help."""
        if not self.is_listed:
            return
        if self.queue.happened(_event(resource, action), old, new, self.clock.monotonic()):
            self.wake()


class PodHandler:
    """Puts pods with a node into the cache, and pods without a node that a profile serves into the queue."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._others: dict[str, PodInfo] = {}  # pods that no profile serves yet, by UID

    def upsert(self, pod: Pod, /) -> None:
        """A pod exists, or has changed. Raises InvalidObject."""
        c = self._cluster
        record = c.cache.record(pod)
        self._others.pop(record.uid, None)
        if not record.node_name and record.uid in c.cache.pods and not c.cache.is_assumed(record.uid):
            self.remove(record.namespace, record.name, record.uid)  # the pod has lost its node: etcd was restored
        if record.is_terminal:
            self.remove(record.namespace, record.name, record.uid)
        elif record.node_name:
            self._bound(record)
        elif c.queue.serves(record.scheduler_name):
            self._pending(record)
        else:
            self._others[record.uid] = record

    def others(self) -> Iterable[PodInfo]:
        """The pods without a node that no profile serves."""
        return self._others.values()

    def profiles_changed(self) -> None:
        """Queue the pods that a profile serves now, and drop those that no profile serves any more."""
        c = self._cluster
        for pod in [pod for unit in c.queue for pod in unit.everybody() if not self._is_served(unit, pod)]:
            c.queue.remove(pod.uid)
            self._others[pod.uid] = pod
        for record in [record for record in self._others.values() if c.queue.serves(record.scheduler_name)]:
            del self._others[record.uid]
            self._pending(record)

    def _is_served(self, unit: Unit, pod: PodInfo) -> bool:
        queue = self._cluster.queue
        return queue.serves(unit.scheduler_name) and queue.serves(pod.scheduler_name)

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        """A pod was deleted, or has run to its end."""
        c = self._cluster
        uid = uid or f"{namespace}/{name}"
        c.recorder.forget(uid)
        self._others.pop(uid, None)
        waited = self._wait_no_longer(uid)
        pod = c.cache.remove_pod(uid) or waited
        if pod is not None:
            c.happened("pods", Action.DELETE, pod, None)

    def _wait_no_longer(self, uid: str) -> PodInfo | None:
        """Take a pod that will not be bound from the queue and from permit.

        Returns the pod if its whole group leaves the queue with it, because plugins may have kept room for the group.
        The queue itself tells of the room that nominated pods have kept.
        """
        c = self._cluster
        waiting = c.waiting.get(uid)
        if waiting is not None:
            waiting.reject("", "the pod was deleted")
        unit = c.queue.get(uid)
        if unit is None:
            return None
        pod = c.queue.remove(uid)
        if unit.group:
            c.wake()
        return pod if unit.group and unit.place is Place.GONE else None

    def _bound(self, record: PodInfo) -> None:
        c = self._cluster
        known = c.cache.pods.get(record.uid)
        was_known = known is not None and not c.cache.is_assumed(record.uid)
        unit = c.queue.get(record.uid)
        c.cache.upsert_pod(record)
        if unit is not None and unit.place is not Place.IN_FLIGHT:
            c.queue.remove(record.uid)  # somebody else has bound it
            c.wake()
        elif unit is None and known is None:
            c.queue.placed_elsewhere(record)
            c.wake()
        if not was_known:
            c.recorder.forget(record.uid)
            c.happened("pods", Action.ADD, None, record)
        elif known is not None:
            action = _pod_change(known, record)
            if action:
                c.happened("pods", action, known, record)

    def _pending(self, record: PodInfo) -> None:
        c = self._cluster
        if record.terminating:
            gone = self._wait_no_longer(record.uid)
            if gone is not None:
                c.happened("pods", Action.DELETE, gone, None)
            return
        if c.cache.is_assumed(record.uid) and c.queue.get(record.uid) is None:
            return  # we have bound it; the watch has not told yet
        c.queue.update(record, c.clock.monotonic())
        c.enqueued(record)
        c.wake()


class NodeHandler:
    """Puts nodes into the columns of the cache."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def upsert(self, node: Node, /) -> None:
        """A node exists, or has changed. Raises InvalidObject."""
        c = self._cluster
        name = node.metadata.name
        row = c.cache.nodes.row_of(name)
        old = c.cache.nodes.objects[row] if row is not None else None
        c.cache.upsert_node(node)
        action = Action.ADD if old is None else _node_change(old, node)
        if action:
            c.happened("nodes", action, old, node)

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        """A node was deleted."""
        c = self._cluster
        row = c.cache.nodes.row_of(name)
        old = c.cache.nodes.objects[row] if row is not None else None
        for pod in c.cache.remove_node(name):
            waiting = c.waiting.get(pod.uid)
            if waiting is not None:
                waiting.reject("", f"the node {name} that was chosen is no longer there")
        c.happened("nodes", Action.DELETE, old, None)


class StoreHandler:
    """Puts objects of any other kind into their store."""

    def __init__(self, cluster: Cluster, resource: Resource[Any]) -> None:
        self._cluster = cluster
        self._key = resource.key
        self._store: Store[Any] = cluster.cache.store(resource)

    def upsert(self, obj: HasMetadata, /) -> None:
        """An object exists, or has changed. Raises InvalidObject."""
        bounds.check(cast(msgspec.Struct, obj))
        old = self._store.get(obj.metadata.name, obj.metadata.namespace)
        if old is not None and old.metadata.uid != obj.metadata.uid:  # another selection has the object of old still
            self.remove(obj.metadata.namespace, obj.metadata.name, old.metadata.uid)
            old = None
        self._store.upsert(obj)
        action = Action.ADD if old is None else Action.UPDATE_OTHER
        self._cluster.happened(self._key, action, old, obj)

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        """An object was deleted."""
        old = self._store.get(name, namespace)
        self._store.remove(namespace, name, uid)
        self._cluster.happened(self._key, Action.DELETE, old, None)

    def reached(self, resource_version: str) -> None:
        """All changes up to this resourceVersion are in the store."""
        self._store.reached(resource_version)


def _pod_change(old: PodInfo, new: PodInfo) -> Action:
    """What has changed in a pod that has a node."""
    action = Action(0)
    if old.labels is not new.labels:
        action |= Action.UPDATE_POD_LABEL
    if old.cls is not new.cls:
        before, after = old.cls.requests.real, new.cls.requests.real
        if any(before[resource] > after.get(resource, 0) for resource in before):
            action |= Action.UPDATE_POD_SCALE_DOWN
    if old.terminating != new.terminating:
        action |= Action.UPDATE_OTHER
    return action


def _node_change(old: Node, new: Node) -> Action:
    """What has changed in a node."""
    action = Action(0)
    if old.status.allocatable != new.status.allocatable:
        action |= Action.UPDATE_NODE_ALLOCATABLE
    if old.metadata.labels != new.metadata.labels:
        action |= Action.UPDATE_NODE_LABEL
    if old.metadata.annotations != new.metadata.annotations:
        action |= Action.UPDATE_NODE_ANNOTATION
    if old.spec != new.spec:
        action |= Action.UPDATE_NODE_TAINT
    before = [(c.type, c.status, c.reason) for c in old.status.conditions]
    if before != [(c.type, c.status, c.reason) for c in new.status.conditions]:
        action |= Action.UPDATE_NODE_CONDITION
    if old.status.images != new.status.images or old.status.declared_features != new.status.declared_features:
        action |= Action.UPDATE_OTHER
    return action
