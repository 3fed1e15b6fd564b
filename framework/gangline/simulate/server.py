"""The API server in memory: objects, resourceVersions, watches, conflicts, bindings.

Rules
- It answers at once and without asyncio; latency, failures and decoding are the client's.
- Objects are JSON data that is never changed in place, so an answer stays what it was.
- All versions of a group share their objects; nothing is converted between versions.
- The status belongs to the subresource ``status``: a write to the object keeps it, a write to the status keeps the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangline import model
from gangline.clock import rfc3339
from gangline.errors import ApiError, Conflict
from gangline.kube import resources
from gangline.kube.interface import EventType, PatchKind
from gangline.kube.resources import LEASES, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Resource
from gangline.plugin import Clock
from gangline.simulate import manifests, merging, refusals
from gangline.simulate.defaulting import DEFAULT_GRACE, default_node, default_pod, with_condition
from gangline.simulate.history import Change, Data, History, Revision, Watch, revision
from gangline.simulate.manifests import Manifest
from gangline.simulate.selecting import compiled

HISTORY = 100_000  # changes per kind that a watch may go back to
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment", model.ReplicaSet)
KNOWN: tuple[Resource[Any], ...] = (*(each for each in vars(resources).values() if isinstance(each, Resource)), DEPLOYMENTS)
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
"""Metadata that only the server sets."""

Key = tuple[str, str]
"""Namespace (empty for cluster-wide kinds) and name."""


@dataclass(slots=True)
class _Collection:
    """The objects of one kind."""

    resource: Resource[Any]
    history: History
    objects: dict[Key, Revision] = field(default_factory=dict)
    owners: dict[Key, dict[merging.Path, set[str]]] = field(default_factory=dict)  # field managers, from apply


class InMemoryServer:
    """One cluster. Every method that reads or writes raises ApiError as an API server would.

    It serves the kinds that Gangline knows, those in ``serves``, and those that manifests bring along. A watch can go
    back ``history`` changes of its kind.
    """

    def __init__(self, clock: Clock, *, serves: Iterable[Resource[Any]] = (), history: int = HISTORY) -> None:
        self._clock = clock
        self._history = history
        self._version = 0
        self._serials = itertools.count(1)
        self._collections: dict[tuple[str, str], _Collection] = {}
        self._kinds: dict[tuple[str, str], Resource[Any]] = {}
        self._watches: set[Watch] = set()
        for resource in (*KNOWN, *serves):
            self.serve(resource)
        for name, value in SYSTEM_PRIORITIES.items():
            self.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self._ensure_namespace(name)

    # Reading

    @property
    def version(self) -> int:
        """The resourceVersion of the last write."""
        return self._version

    def serve(self, resource: Resource[Any]) -> None:
        """Adds a kind, as installing its CustomResourceDefinition does."""
        self._kinds[resource.api_version, resource.kind] = resource
        self._collection(resource)

    def served(self, group: str, version: str) -> set[str]:
        """The plurals in a group and version."""
        return {each.plural for each in self._kinds.values() if (each.group, each.version) == (group, version)}

    def list(
        self,
        resource: Resource[Any],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> list[Revision]:
        """The objects, by namespace and name; they are those at `version`."""
        if (asked := _number(resource_version)) > self._version:
            raise refusals.too_large(asked, self._version)
        matches = compiled(namespace, label_selector, field_selector)
        objects = sorted(self._collection(resource).objects.items())
        return [each for _, each in objects if matches is None or matches(each.data)]

    def watch(
        self,
        resource: Resource[Any],
        resource_version: str,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> Watch:
        """The changes after a resourceVersion; for ``""`` and ``"0"`` all objects come first. Close it in the end."""
        collection = self._collection(resource)
        matches = compiled(namespace, label_selector, field_selector)
        asked = _number(resource_version)
        start: list[Revision] = []
        if asked:
            position = collection.history.after(asked)
        else:
            position = collection.history.end
            start = [each for each in collection.objects.values() if matches is None or matches(each.data)]
        watch = Watch(collection.history, position, matches, start)
        self._watches.add(watch)
        watch.on_close(self._watches.discard)
        return watch

    def get(self, resource: Resource[Any], name: str, *, namespace: str | None = None) -> Revision:
        """One object."""
        return self._current(self._collection(resource), _key(resource, namespace, name))

    def disconnect(self) -> None:
        """Ends every watch, as a restart of the server does."""
        for watch in list(self._watches):
            watch.close()

    # Writing

    def create(self, resource: Resource[Any], data: Mapping[str, Any], *, namespace: str | None = None) -> Revision:
        """Stores a new object with its defaults; a UID and creation time that it has already are kept."""
        collection = self._collection(resource)
        metadata = dict(data.get("metadata", {}))
        if not metadata.get("name"):
            metadata["name"] = f"{metadata.get('generateName', '')}{_suffix(next(self._serials))}"
        key = _key(resource, namespace or metadata.get("namespace"), metadata["name"])
        if key in collection.objects:
            raise refusals.already_exists(resource, key[1])
        if resource.namespaced:
            metadata["namespace"] = key[0]
            self._ensure_namespace(key[0])
        metadata.setdefault("uid", _uid(next(self._serials)))
        metadata.setdefault("creationTimestamp", rfc3339(self._clock.now()))
        metadata.setdefault("generation", 1)
        whole = {**data, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        return self._write(collection, key, None, self._defaulted(resource, whole))

    def replace(self, resource: Resource[Any], data: Mapping[str, Any], *, subresource: str | None = None) -> Revision:
        """Replaces the object, or only its status."""
        metadata = data["metadata"]
        collection = self._collection(resource)
        key = _key(resource, metadata.get("namespace"), metadata["name"])
        old = self._current(collection, key)
        if resource.plural == LEASES.plural and not metadata.get("resourceVersion"):
            why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise refusals.invalid(resource, key[1], why)
        return self._update(collection, key, old, data, subresource)

    def patch(
        self,
        resource: Resource[Any],
        name: str,
        patch: Mapping[str, Any],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
    ) -> Revision:
        """Changes some fields of the object, or only of its status."""
        collection = self._collection(resource)
        key = _key(resource, namespace, name)
        old = self._current(collection, key)
        return self._update(collection, key, old, merging.patched(old.data, patch, kind), subresource)

    def apply(
        self,
        resource: Resource[Any],
        name: str,
        body: Mapping[str, Any],
        *,
        field_manager: str,
        namespace: str | None = None,
        subresource: str | None = None,
        force: bool = True,
    ) -> Revision:
        """Creates the object or takes over its fields; fields that the manager applied before and left out now go."""
        collection = self._collection(resource)
        key = _key(resource, namespace or body.get("metadata", {}).get("namespace"), name)
        fields = merging.leaves({part: body[part] for part in body if part not in ("apiVersion", "kind")})
        old = collection.objects.get(key)
        if old is None and subresource:
            raise refusals.not_found(resource, name)
        owners = {path: set(managers) for path, managers in collection.owners.get(key, {}).items()}
        if old is None:
            whole = {**body, "metadata": {**body.get("metadata", {}), "name": name, "namespace": key[0]}}
            result = self.create(resource, whole)
        else:
            self._check_owners(resource, name, old, fields, owners, field_manager, force)
            data: Any = old.data
            for path in _left_out(owners, fields, field_manager):
                data = merging.without(data, path)
            data = merging.patched(data, body, PatchKind.STRATEGIC)
            result = self._update(collection, key, old, data, subresource)
        for path, value in fields.items():
            others = owners.get(path, set()) if old and merging.at(old.data, path) == value else set()
            owners[path] = {*others, field_manager}
        collection.owners[key] = owners
        return result

    def delete(
        self,
        resource: Resource[Any],
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
    ) -> None:
        """Removes the object, or marks it when it has finalizers or is a pod on a node that has to end first."""
        collection = self._collection(resource)
        key = _key(resource, namespace, name)
        old = self._current(collection, key)
        metadata = old.data["metadata"]
        _check_preconditions(resource, old, uid, resource_version)
        grace = _grace(old.data, grace_period_seconds) if resource.plural == PODS.plural else 0
        if not grace and not metadata.get("finalizers"):
            self._remove(collection, key, old)
            return
        if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return
        since = rfc3339(self._clock.now() + grace)
        marks = {"deletionTimestamp": since, "deletionGracePeriodSeconds": grace}
        self._write(collection, key, old, {**old.data, "metadata": {**metadata, **marks}})

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> Revision:
        """Puts a pod on a node with annotations and the condition PodScheduled, in one write."""
        collection = self._collection(PODS)
        key = (namespace, name)
        old = self._current(collection, key)
        metadata, spec, status = old.data["metadata"], old.data["spec"], old.data["status"]
        if why := _unbindable(name, metadata, spec):
            raise refusals.conflict(PODS, name, why, "binding")
        if uid and uid != metadata["uid"]:
            raise refusals.other_uid(PODS, name, uid, metadata["uid"], "binding")
        scheduled = with_condition(status, {"type": "PodScheduled", "status": "True"}, self._clock.now())
        scheduled.pop("nominatedNodeName", None)
        if annotations:
            metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}
        bound = {**old.data, "metadata": metadata, "spec": {**spec, "nodeName": node}, "status": scheduled}
        return self._write(collection, key, old, bound)

    # Manifests

    def load(self, paths: Iterable[str | Path]) -> list[str]:
        """Applies the manifests in files and folders; returns one warning per kind that nothing here reads.

        Raises ConfigError with the file, the number of the document and the path in it.
        """
        warnings = [warning for each in manifests.read(paths) for warning in self._apply_manifest(each)]
        return list(dict.fromkeys(warnings))

    def apply_manifest(self, data: Mapping[str, Any]) -> list[str]:
        """Applies one object as `load` does, or the items of a list; a workload gets its pods at once."""
        manifest = Manifest("", "", merging.without_nulls(data))
        warnings = [warning for each in manifests.taken_apart(manifest) for warning in self._apply_manifest(each)]
        return list(dict.fromkeys(warnings))

    def _apply_manifest(self, manifest: Manifest) -> Iterable[str]:
        api_version, kind = manifests.check_identity(manifest)
        resource = self._kinds.get((api_version, kind))
        warnings = []
        if resource is None:
            resource = _guessed(api_version, kind)
            self._kinds[api_version, kind] = resource
        if resource.type is Unread:
            warnings.append(f"{api_version} {kind}: the simulation keeps such objects, but nothing reads them")
        manifests.check(manifest, resource)
        try:
            self._put(resource, manifest.data)
        except ApiError as error:
            raise manifest.error("", error.message) from error
        return warnings

    # Inside

    def _collection(self, resource: Resource[Any]) -> _Collection:
        found = self._collections.get((resource.group, resource.plural))
        if found is None:
            found = _Collection(resource, History(self._history))
            self._collections[resource.group, resource.plural] = found
        return found
