"""Small clusters with volumes, one plugin at work in them, and an API server for claims and volumes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gangline import ApiError, Code, Conflict, Cycle, NotFound, PodInfo, Status, model, resources
from gangline.testing import Cache, FakeHandle, make_runtime
from gangline.testing.configured import load_cluster

Object = dict[str, Any]
WAIT = "WaitForFirstConsumer"


class StandingClock:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.time

    def now(self) -> float:
        """Seconds."""
        return self.time

    async def sleep(self, seconds: float) -> None:
        """Let time pass at once."""
        self.time += seconds


class StorageServer:
    """Keeps claims and volumes in the stores of a cache; what is written is seen at once, then `reaction` is called."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._version = 100
        self.patches: list[tuple[str, str, Mapping[str, Any]]] = []
        self.failures: dict[str, ApiError] = {}
        """By name of an object, what a patch of it meets."""
        self.reaction: Callable[[str], None] = lambda name: None
        """What controllers do once the object of this name was written."""

    async def patch(
        self, resource: resources.Resource[Any], name: str, patch: Mapping[str, Any], *, namespace: str | None = None
    ) -> Any:
        """A merge patch. Raises Conflict when it holds another resourceVersion than the stored object."""
        if name in self.failures:
            raise self.failures[name]
        stored = self._cache.store(resource).get(name, namespace or "")
        if stored is None:
            raise NotFound(404, "NotFound", name)
        if patch["metadata"]["resourceVersion"] != stored.metadata.resource_version:
            raise Conflict(409, "Conflict", name)
        self.patches.append((resource.plural, name, patch))
        changed = self.change(resource, name, patch, namespace or "")
        self.reaction(name)
        return changed

    def change(
        self, kind: resources.Resource[Any], name: str, patch: Mapping[str, Any], namespace: str = "default"
    ) -> Any:
        """Merge into an object, whoever wants it, and give it a new resourceVersion."""
        store = self._cache.store(kind)
        stored = store.get(name, namespace)
        body = msgspec.to_builtins(stored)
        _merge(body, patch)
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        changed: Any = msgspec.convert(body, type(stored))
        store.upsert(changed)
        return changed

    def bind(self, claim: str, volume: str) -> None:
        """What the PV controller does in the end."""
        patch = {
            "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume},
        }
        self.change(resources.PVCS, claim, patch)


class VolumeCluster:
    """A cluster in which one plugin alone filters, reserves and prepares bindings."""

    def __init__(self, plugin: type[Any], **objects: list[Any]) -> None:
        self.cache = load_cluster(objects)
        self.server = StorageServer(self.cache)
        self.runtime = make_runtime(self.cache, plugin, handle=FakeHandle(self.cache, self.server))
        self.plugin = self.runtime.profile.plugins[plugin.name]

    def pod(self, pod: Object) -> PodInfo:
        """The record of a pod."""
        return self.cache.record(msgspec.convert(pod, model.Pod))

    def place(self, pod: Object, node: str) -> PodInfo:
        """Put a pod on a node."""
        record, row = self.pod(pod), self.cache.nodes.row_of(node)
        assert row is not None
        self.cache.assume(record, row)
        return record

    def add(self, kind: resources.Resource[Any], obj: Object) -> None:
        """Add or replace an object in a store."""
        self.cache.store(kind).upsert(msgspec.convert(obj, kind.type))

    def status(self, pod: Object) -> Status | None:
        """Why the pod is rejected as a whole, None when it is not."""
        return self.runtime.evaluator.filter(self.pod(pod)).status

    def verdicts(self, record: PodInfo) -> dict[str, tuple[Code, tuple[str, ...]]]:
        """The verdict and the reasons for each node that is rejected, by name."""
        filtered = self.runtime.evaluator.filter(record)
        assert filtered.status is None, filtered.status
        found = {}
        for rejection in self.runtime.evaluator.diagnose(filtered).rejections:
            for name, code in zip(self.cache.nodes.names, rejection.codes.tolist(), strict=True):
                if code:
                    reasons = rejection.reasons(filtered.cycle, record, code)
                    (verdict,) = {reason.code for reason in reasons}
                    found[name] = verdict, tuple(reason.message for reason in reasons)
        return found

    def rejected(self, pod: Object) -> dict[str, tuple[str, ...]]:
        """Why nodes are rejected, by name."""
        return {name: reasons for name, (_, reasons) in self.verdicts(self.pod(pod)).items()}

    def assume(self, pod: Object, node: str) -> tuple[Cycle, PodInfo, Status]:
        """Filter, place on a node and reserve."""
        record = self.pod(pod)
        filtered = self.runtime.evaluator.filter(record)
        row = self.cache.nodes.row_of(node)
        assert row is not None
        assert filtered.feasible[row]
        self.cache.assume(record, row)
        return filtered.cycle, record, self.runtime.reserve(filtered.cycle, record, node)


def node(name: str, **labels: str) -> Object:
    """A node; its name is also its label `host`."""
    return {"metadata": {"name": name, "labels": {"host": name, **labels}}}


def pod(name: str = "pod", *claims: str, namespace: str = "default", volumes: list[Object] | None = None) -> Object:
    """A pod that uses claims."""
    named = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}"},
        "spec": {"containers": [{"name": "main"}], "volumes": [*named, *(volumes or [])]},
    }


def claim(name: str, storage_class: str = "local", size: str = "1Gi", volume: str = "", **spec: Any) -> Object:
    """A claim; bound when it names a volume."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": "7",
            "annotations": annotations,
        },
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "volumeName": volume,
            **spec,
        },
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def volume(name: str, *hosts: str, size: str = "1Gi", storage_class: str = "local", **spec: Any) -> Object:
    """An available volume that these nodes can reach, or all."""
    if hosts:
        term = {"matchExpressions": [{"key": "host", "operator": "In", "values": list(hosts)}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "5"},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            **spec,
        },
        "status": {"phase": "Available"},
    }


def storage_class(name: str = "local", provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> Object:
    """A storage class that waits for the first consumer."""
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": WAIT, **more}


def csi_node(name: str, **limits: int) -> Object:
    """The CSI drivers of a node and how many volumes they attach."""
    drivers = [{"name": driver, "allocatable": {"count": count}} for driver, count in limits.items()]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def _merge(body: Object, patch: Mapping[str, Any]) -> None:
    for key, value in patch.items():
        if value is None:
            body.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(body.setdefault(key, {}), value)
        else:
            body[key] = value
