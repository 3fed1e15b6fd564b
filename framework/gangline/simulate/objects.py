"""The objects of a cluster and the rules of every write: defaults, identity, resourceVersion, history, removal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gangline.api.plugin import Clock
from gangline.clock import rfc3339
from gangline.kube.interface import EventType
from gangline.kube.resources import (
    GPU_CLAIMS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    Resource,
)
from gangline.simulate import claim_entries, claim_rules, refusals
from gangline.simulate.defaulting import default_claim, default_claim_template, default_node, default_pod
from gangline.simulate.history import Change, Data, History, Revision, revision
from gangline.simulate.merging import Path
from gangline.simulate.validating import faults

KEPT = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
"""Metadata that only the server sets."""
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # of generated names

Key = tuple[str, str]
"""Namespace (empty for cluster-wide kinds) and name."""
Observer = Callable[[Resource[Any], Change], None]
"""Called with each write, in the order of the writes, before any watch sees the write."""


def nobody(resource: Resource[Any], change: Change) -> None:
    """An Observer that does nothing."""


def key_of(resource: Resource[Any], namespace: str | None, name: str) -> Key:
    """The key under which an object is kept."""
    return (namespace or "default" if resource.namespaced else "", name)


@dataclass(slots=True)
class Collection:
    """The objects of one kind; ``managers`` says who applied which field."""

    resource: Resource[Any]
    history: History
    objects: dict[Key, Revision] = field(default_factory=dict)
    managers: dict[Key, dict[Path, frozenset[str]]] = field(default_factory=dict)

    def current(self, key: Key) -> Revision:
        """The object. Raises NotFound."""
        found = self.objects.get(key)
        if found is None:
            raise refusals.not_found(self.resource, key[1])
        return found


class Objects:
    """All collections, by group and plural: all versions of a group share their objects."""

    def __init__(self, clock: Clock, history: int, observe: Observer = nobody) -> None:
        self.version = 0
        self.kinds: dict[tuple[str, str], Resource[Any]] = {}  # by apiVersion and kind
        self._clock = clock
        self._history = history
        self._observe = observe
        self._serials = itertools.count(1)
        self._restored: set[str] = set()
        self._collections: dict[tuple[str, str], Collection] = {}

    def collection(self, resource: Resource[Any]) -> Collection:
        """The objects of a kind."""
        found = self._collections.get((resource.group, resource.plural))
        if found is None:
            found = Collection(resource, History(self._history))
            self._collections[resource.group, resource.plural] = found
        return found

    def create(self, resource: Resource[Any], data: Mapping[str, Any], namespace: str | None = None) -> Revision:
        """Stores a new object with its defaults, and its namespace if the namespace does not exist.

        An existing UID and creation time are kept. Raises Conflict, Forbidden, Invalid.
        """
        collection = self.collection(resource)
        metadata = dict(data.get("metadata", {}))
        if not metadata.get("name"):
            metadata["name"] = f"{metadata.get('generateName', '')}{self._suffix()}"
        key = key_of(resource, namespace or metadata.get("namespace"), metadata["name"])
        if key in collection.objects:
            raise refusals.already_exists(resource, key[1])
        if resource.namespaced:
            metadata["namespace"] = key[0]
            self._ensure_namespace(key[0])
        metadata.setdefault("uid", self._uid())
        metadata.setdefault("creationTimestamp", rfc3339(self._clock.now()))
        metadata.setdefault("generation", 1)
        whole = {**data, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        return self.write(collection, key, None, self._defaulted(resource, whole))

    def restore(self, resource: Resource[Any], data: Mapping[str, Any]) -> None:
        """Stores an object of another cluster as it was there; its UID is given to no other object."""
        collection, metadata = self.collection(resource), data["metadata"]
        key = key_of(resource, metadata.get("namespace"), metadata["name"])
        self._restored.add(metadata["uid"])
        whole = {**data, "apiVersion": resource.api_version, "kind": resource.kind}
        self.write(collection, key, collection.objects.get(key), whole)

    def update(self, collection: Collection, key: Key, data: Mapping[str, Any], subresource: str | None) -> Revision:
        """Replaces the data of an object. Raises Conflict if a given UID or resourceVersion is not the object's own.

        Only the part that belongs to the subresource changes. If nothing changes, nothing is written. A deleted object
        is removed together with its last finalizer.
        """
        old = collection.current(key)
        metadata = data["metadata"]
        check_preconditions(collection.resource, old, metadata.get("uid"), metadata.get("resourceVersion"))
        new = _with_counts(collection.resource, _whole(old.data, data, subresource))
        if new == old.data:
            return old
        if collection.resource == RESOURCE_CLAIMS and (why := claim_rules.fault(old.data, new)):
            raise refusals.invalid(RESOURCE_CLAIMS, key[1], why)
        if new.get("spec") != old.data.get("spec"):
            new["metadata"] = {**new["metadata"], "generation": old.data["metadata"].get("generation", 0) + 1}
        ends = new["metadata"].get("deletionGracePeriodSeconds") == 0
        if ends and not new["metadata"].get("finalizers"):
            return self.remove(collection, key)
        return self.write(collection, key, old, new)

    def write(self, collection: Collection, key: Key, old: Revision | None, data: Mapping[str, Any]) -> Revision:
        """Stores data as it is under the next resourceVersion."""
        self.version += 1
        new = revision(data, self.version)
        collection.objects[key] = new
        self._add(collection, Change(EventType.ADDED if old is None else EventType.MODIFIED, old, new))
        return new

    def remove(self, collection: Collection, key: Key) -> Revision:
        """Removes an object; returns its last state."""
        self.version += 1
        old = collection.objects.pop(key)
        collection.managers.pop(key, None)
        last = revision(old.data, self.version)
        self._add(collection, Change(EventType.DELETED, old, last))
        return last

    def compact(self) -> None:
        """Forgets all changes: watches that begin before now get Gone."""
        for collection in self._collections.values():
            collection.history.forget(self.version)

    def priority_class(self, name: str) -> Mapping[str, Any] | None:
        """The PriorityClass of that name; for an empty name the global default with the lowest value."""
        objects = self.collection(PRIORITY_CLASSES).objects
        if name:
            found = objects.get(("", name))
            return found.data if found else None
        defaults = [each.data for each in objects.values() if each.data.get("globalDefault")]
        return min(defaults, key=lambda data: data.get("value", 0), default=None)

    def of(self, resource: Resource[Any]) -> Iterator[Revision]:
        """The objects of a kind, in the order in which they were made."""
        return iter(self.collection(resource).objects.values())

    def _add(self, collection: Collection, change: Change) -> None:
        self._observe(collection.resource, change)
        collection.history.add(change)

    def _ensure_namespace(self, name: str) -> None:
        if ("", name) not in self.collection(NAMESPACES).objects:
            labels = {"kubernetes.io/metadata.name": name}
            self.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})

    def _defaulted(self, resource: Resource[Any], data: Data) -> Data:
        if resource == NODES:
            return default_node(data)
        if resource != PODS:
            return _with_counts(resource, data)
        name = data.get("spec", {}).get("priorityClassName", "")
        if name and self.priority_class(name) is None:
            raise refusals.no_priority_class(data["metadata"]["name"], name)
        pod = default_pod(self._with_claim(data), self.priority_class(name), self._clock.now())
        if found := faults(pod["spec"]):
            why = f"[{', '.join(found)}]" if len(found) > 1 else found[0]
            raise refusals.invalid(PODS, data["metadata"]["name"], why)
        return pod

    def _with_claim(self, pod: Data) -> Data:
        """The pod as the webhook changes it for its GpuClaim."""
        name = claim_entries.claim_of(pod)
        found = self.collection(GPU_CLAIMS).objects.get((pod["metadata"]["namespace"], name)) if name else None
        return pod if found is None else claim_entries.with_entry(pod, found.data)

    def _uid(self) -> str:
        uids = (f"{serial:08x}-0000-4000-8000-{serial:012x}" for serial in self._serials)
        return next(uid for uid in uids if uid not in self._restored)

    def _suffix(self) -> str:
        """Five letters that no other object of this cluster has."""
        number = next(self._serials) * 7_654_321 % len(LETTERS) ** 5
        letters = []
        for _ in range(5):
            number, letter = divmod(number, len(LETTERS))
            letters.append(LETTERS[letter])
        return "".join(letters)


def _with_counts(resource: Resource[Any], data: Data) -> Data:
    """A claim or its template with the numbers of devices that an API server adds at every write; else the data."""
    if resource == RESOURCE_CLAIMS:
        return default_claim(data)
    return default_claim_template(data) if resource == RESOURCE_CLAIM_TEMPLATES else data


def check_preconditions(resource: Resource[Any], old: Revision, uid: str | None, resource_version: str | None) -> None:
    """Raises Conflict unless the object has this UID and resourceVersion; None and "" fit every object."""
    metadata = old.data["metadata"]
    if uid and uid != metadata["uid"]:
        raise refusals.other_uid(resource, metadata["name"], uid, metadata["uid"])
    if resource_version and resource_version != metadata["resourceVersion"]:
        raise refusals.modified(resource, metadata["name"])


def _whole(old: Data, data: Mapping[str, Any], subresource: str | None) -> Data:
    """The object after a write of ``data`` to it or to its status; the resourceVersion is still the old one."""
    if subresource:
        whole = {k: v for k, v in {**old, "status": data.get("status")}.items() if k != "status" or "status" in data}
        if "annotations" in data["metadata"] and old["kind"] == "Pod":
            whole["metadata"] = {**old["metadata"], "annotations": data["metadata"]["annotations"]}
        return whole
    kept = {name: old["metadata"][name] for name in (*KEPT, "resourceVersion") if name in old["metadata"]}
    given = {name: value for name, value in data["metadata"].items() if name not in KEPT}
    whole = {**data, "apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": given | kept}
    whole.pop("status", None)
    return {**whole, "status": old["status"]} if "status" in old else whole
