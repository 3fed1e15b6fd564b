"""The API server in memory: the effect of each request, and the reasons to refuse one.

Rules
- The server answers at once and without asyncio; the client adds latency and faults, and decodes.
- Objects are JSON data that is never changed in place, so an answer never changes later.
- The status belongs to the subresource ``status``: a write of the object keeps the status, and a write of the status
  changes nothing else but a pod's annotations.
- All versions of a group share their objects; nothing is converted between versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gangline.api.plugin import Clock
from gangline.clock import rfc3339
from gangline.kube import resources
from gangline.kube.interface import PatchKind
from gangline.kube.resources import LEASES, NAMESPACES, PDBS, PODS, PRIORITY_CLASSES, Resource
from gangline.simulate import applying, evicting, loading, manifests, refusals
from gangline.simulate.defaulting import DEFAULT_GRACE, with_condition
from gangline.simulate.history import Revision, Watch
from gangline.simulate.manifests import Manifest
from gangline.simulate.merging import patched, without_nulls
from gangline.simulate.objects import Objects, Observer, check_preconditions, key_of, nobody
from gangline.simulate.selecting import compiled
from gangline.simulate.workloads import DEPLOYMENTS, FINISHED

HISTORY = 100_000  # changes per kind that a watch may go back
KNOWN = (*(each for each in vars(resources).values() if isinstance(each, Resource)), DEPLOYMENTS)
NAMES = ("default", "kube-node-lease", "kube-public", "kube-system")
_EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class InMemoryServer:
    """One cluster. Every method that reads or writes raises ApiError as an API server would.

    The server serves the kinds that Gangline knows, the kinds in ``serves``, and the definitions in manifests.
    Namespaces are created when needed. A watch can go back ``history`` changes of its kind. ``observe`` is told each
    write, as etcd would record it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        serves: Iterable[Resource[Any]] = (),
        history: int = HISTORY,
        observe: Observer = nobody,
    ) -> None:
        self._clock = clock
        self._objects = Objects(clock, history, observe)
        self._watches: list[Watch] = []
        for resource in (*KNOWN, *serves):
            self._objects.kinds[resource.api_version, resource.kind] = resource
        for name in NAMES:
            self.create(NAMESPACES, {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}})
        for name, value in SYSTEM_PRIORITIES.items():
            self.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})

    # Manifests

    def load(self, paths: Iterable[str | Path]) -> list[str]:
        """Applies the manifests in files and folders; returns one warning for each kind that nothing reads.

        Workloads get their pods. Raises ConfigError with the file, the number of the document and the path in it.
        """
        return loading.apply(self._objects, manifests.read(paths))

    def load_manifests(self, found: Iterable[Manifest]) -> list[str]:
        """Applies manifests that were read, as `load` does."""
        return loading.apply(self._objects, found)

    def apply_manifest(self, data: Mapping[str, Any]) -> list[str]:
        """Applies one object, or the items of a list, as `load` does."""
        return loading.apply(self._objects, manifests.taken_apart(Manifest("", "", without_nulls(data))))

    # Reading

    @property
    def version(self) -> int:
        """The resourceVersion of the last write."""
        return self._objects.version

    def served(self, group: str, version: str) -> set[str]:
        """The plurals in a group and version."""
        known = self._objects.kinds.values()
        return {each.plural for each in known if (each.group, each.version) == (group, version)}

    def list(
        self,
        resource: Resource[Any],
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str = "",
    ) -> list[Revision]:
        """The objects as they are at `version`, by namespace and name."""
        if (asked := _number(resource_version)) > self.version:
            raise refusals.too_large(asked, self.version)
        matches = compiled(namespace, label_selector, field_selector)
        objects = sorted(self._objects.collection(resource).objects.items())
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
        collection = self._objects.collection(resource)
        matches = compiled(namespace, label_selector, field_selector)
        start: list[Revision] = []
        if asked := _number(resource_version):
            position = collection.history.after(asked)
        else:
            position = collection.history.end
            start = [each for each in collection.objects.values() if matches is None or matches(each.data)]
        watch = Watch(collection.history, position, matches, start)
        self._watches = [*(each for each in self._watches if not each.closed), watch]
        return watch

    def get(self, resource: Resource[Any], name: str, *, namespace: str | None = None) -> Revision:
        """One object."""
        return self._objects.collection(resource).current(key_of(resource, namespace, name))

    def disconnect(self) -> None:
        """Ends every watch, as a restart of the server does."""
        for watch in self._watches:
            watch.close()

    def compact(self) -> None:
        """Forgets all changes, as etcd does: a watch that begins before now gets 410 Gone."""
        self._objects.compact()

    # Writing

    def create(self, resource: Resource[Any], data: Mapping[str, Any], *, namespace: str | None = None) -> Revision:
        """Stores a new object with its defaults; a UID and a creation time that it has already are kept."""
        return self._objects.create(resource, data, namespace)

    def restore(self, resource: Resource[Any], data: Mapping[str, Any]) -> None:
        """Stores an object of another cluster as it was there, without defaults; it replaces an object of its name."""
        self._objects.restore(resource, data)

    def replace(self, resource: Resource[Any], data: Mapping[str, Any], *, subresource: str | None = None) -> Revision:
        """Replaces the object, or only its status."""
        metadata = data["metadata"]
        if resource == LEASES and not metadata.get("resourceVersion"):
            why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise refusals.invalid(resource, metadata["name"], why)
        key = key_of(resource, metadata.get("namespace"), metadata["name"])
        return self._objects.update(self._objects.collection(resource), key, data, subresource)

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
        collection = self._objects.collection(resource)
        key = key_of(resource, namespace, name)
        data = patched(collection.current(key).data, patch, kind)
        return self._objects.update(collection, key, data, subresource)

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
        """Creates the object or takes over its fields; fields that the manager omits now are removed."""
        collection = self._objects.collection(resource)
        key = key_of(resource, namespace or body.get("metadata", {}).get("namespace"), name)
        old = collection.objects.get(key)
        if old is None and subresource:
            raise refusals.not_found(resource, name)
        managed = collection.managers.get(key, {})
        data, managers = applying.applied(
            resource, name, old.data if old else None, body, managed, field_manager, force
        )
        if old is None:
            new = self._objects.create(resource, data, namespace)
        else:
            new = self._objects.update(collection, key, data, subresource)
        collection.managers[key] = managers
        return new

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
        """Removes the object, or marks it as deleted if it has finalizers or is a pod that has to end on its node."""
        collection = self._objects.collection(resource)
        key = key_of(resource, namespace, name)
        old = collection.current(key)
        metadata = old.data["metadata"]
        check_preconditions(resource, old, uid, resource_version)
        grace = _grace(old.data, grace_period_seconds) if resource == PODS else 0
        if not grace and not metadata.get("finalizers"):
            self._objects.remove(collection, key)
        elif grace < metadata.get("deletionGracePeriodSeconds", grace + 1):
            marks = {
                "deletionTimestamp": rfc3339(self._clock.now() + grace),
                "deletionGracePeriodSeconds": grace,
            }
            self._objects.write(collection, key, old, {**old.data, "metadata": {**metadata, **marks}})

    def bind(self, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]) -> Revision:
        """Puts a pod on a node with annotations and the condition PodScheduled, in one write."""
        collection = self._objects.collection(PODS)
        old = collection.current((namespace, name))
        metadata, spec = old.data["metadata"], old.data["spec"]
        if uid and uid != metadata["uid"]:
            raise refusals.other_uid(PODS, name, uid, metadata["uid"], "binding")
        if why := _unbindable(metadata, spec):
            raise refusals.conflict(PODS, name, f"pod {name} {why}", "binding")
        status = with_condition(old.data["status"], {"type": "PodScheduled", "status": "True"}, self._clock.now())
        status.pop("nominatedNodeName", None)
        if annotations:
            metadata = {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}
        bound = {**old.data, "metadata": metadata, "spec": {**spec, "nodeName": node}, "status": status}
        return self._objects.write(collection, (namespace, name), old, bound)

    def evict(self, namespace: str, name: str, uid: str) -> None:
        """Deletes a pod, with the condition DisruptionTarget, if all its disruption budgets allow one more."""
        pod = self._objects.collection(PODS).current((namespace, name))
        check_preconditions(PODS, pod, uid, None)
        budgets = [each for each in self.list(PDBS, namespace=namespace) if evicting.covers(each.data, pod.data)]
        if any(evicting.allowed(each.data) <= 0 for each in budgets):
            raise refusals.budget_exceeded()
        for each in budgets:
            status = evicting.with_one_less(each.data)
            self.patch(
                PDBS, each.data["metadata"]["name"], {"status": status}, namespace=namespace, subresource="status"
            )
        status = with_condition(pod.data["status"], _EVICTED, self._clock.now())
        self.patch(PODS, name, {"status": status}, namespace=namespace, subresource="status")
        self.delete(PODS, name, namespace=namespace, uid=uid)


def _number(resource_version: str) -> int:
    """A resourceVersion as a number; 0 for an empty one. Raises Invalid for any other text."""
    if resource_version and not resource_version.isdecimal():
        raise refusals.bad_request(f'invalid resource version "{resource_version}"')
    return int(resource_version or 0)


def _grace(pod: Mapping[str, Any], asked: int | None) -> int:
    """Seconds that a pod has to end; 0 if no kubelet runs it."""
    if not pod["spec"].get("nodeName") or pod["status"]["phase"] in FINISHED:
        return 0
    seconds: int = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE) if asked is None else asked
    return seconds


def _unbindable(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Why a pod cannot be put on a node; empty when it can."""
    if metadata.get("deletionTimestamp"):
        return "is being deleted, cannot be assigned to a host"
    if spec.get("nodeName"):
        return f'is already assigned to node "{spec["nodeName"]}"'
    if spec.get("schedulingGates"):
        return "has non-empty .spec.schedulingGates"
    return ""
