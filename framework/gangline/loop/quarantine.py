"""Sets objects aside that cannot be used, one by one, so that none harms another.

A `Quarantine` stands between an informer and the handler of one kind. An object can make the handler raise: it exceeds
a bound, a number in it overflows, or a plugin that reads it has a fault. The quarantine catches the exception. It tells
the handler that the object is gone, and reports the reason in a warning event on the object, a metric and one line in
the log. When the object changes, it is tried again.

A running pod takes its share of a node even if the scheduler cannot read it. So the readable part of its requests is
still counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Generic

import msgspec

from gangline import bounds, quantity
from gangline.errors import GanglineError, InvalidObject
from gangline.kube.decoding import cut
from gangline.kube.interface import Handler, Unreadable
from gangline.kube.resources import Resource, T
from gangline.model import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Resources,
    TypedReference,
)
from gangline.profile.recording import EventRecorder
from gangline.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


class Quarantine(Generic[T]):
    """Passes the objects of one kind on to a handler, except those for which the handler raises.

    `salvage` makes from such an object, as plain JSON data, an object with the usable part; None if there is none.
    """

    def __init__(
        self,
        resource: Resource[T],
        handler: Handler[T],
        recorder: EventRecorder,
        metrics: Metrics,
        salvage: Callable[[Any], T | None] = lambda data: None,
    ) -> None:
        self._resource = resource
        self._handler = handler
        self._recorder = recorder
        self._salvage = salvage
        self._invalid = metrics.invalid_objects.labels(resource.plural)
        self._number = metrics.set_aside.labels(resource.plural)
        self._aside: dict[tuple[str, str], str] = {}
        """Why an object is set aside, by namespace and name."""

    def upsert(self, obj: T, /) -> None:
        """The informer calls this when an object was added or changed."""
        try:
            self._handler.upsert(obj)
        except Exception as error:  # whatever was raised, only this object is set aside
            self._set_aside(obj.metadata, error)
            self._use_what_is_left(lambda: msgspec.to_builtins(obj))
        else:
            if self._aside:
                self._take_back(obj.metadata.namespace, obj.metadata.name)

    def remove(self, namespace: str, name: str, uid: str, /) -> None:
        """The informer calls this when an object was deleted."""
        if self._aside:
            self._take_back(namespace, name)
        self._forget(namespace, name, uid)

    def unreadable(self, found: Unreadable, /) -> None:
        """The informer cannot decode an object: use what can be salvaged, else keep the state known before."""
        self._tell(found.metadata, found.error)
        self._use_what_is_left(lambda: msgspec.json.decode(cut(found.data)))
        self._keep(found.metadata, found.error)

    def _set_aside(self, metadata: ObjectMeta, error: Exception) -> None:
        self._tell(metadata, error)
        self._keep(metadata, error)
        self._forget(metadata.namespace, metadata.name, metadata.uid)

    def _keep(self, metadata: ObjectMeta, error: Exception) -> None:
        key = metadata.namespace, metadata.name
        if key not in self._aside:
            self._number.inc()  # other kinds and selections count in the same gauge
        self._aside[key] = _reason(error)

    def _take_back(self, namespace: str, name: str) -> None:
        if self._aside.pop((namespace, name), None) is not None:
            self._number.dec()

    def _forget(self, namespace: str, name: str, uid: str) -> None:
        """Let the handler drop what it knows of an object."""
        try:
            self._handler.remove(namespace, name, uid)
        except Exception as error:
            what = f"{self._resource.kind} {namespace}/{name}"
            log.error("%s could not be taken out: %r", what, error, exc_info=error)

    def _use_what_is_left(self, read: Callable[[], Any]) -> None:
        try:
            left = self._salvage(read())
            if left is not None:
                self._handler.upsert(left)
        except Exception as error:  # then nothing of it can be used
            log.debug("nothing of a %s that is set aside can be used: %r", self._resource.kind, error)

    def _tell(self, metadata: ObjectMeta, error: Exception) -> None:
        """Report on the object, in the metric and in the log why it cannot be used; once for each reason."""
        self._invalid.inc()
        kind, why = self._resource.kind, _reason(error)
        regarding = TypedReference(
            kind=kind,
            namespace=metadata.namespace,
            name=metadata.name,
            uid=metadata.uid,
            api_version=self._resource.api_version,
        )
        self._recorder.about(regarding, "gangline", "Warning", f"Invalid{kind}", why, "Decoding")
        if self._aside.get((metadata.namespace, metadata.name)) == why:
            return
        name = f"{metadata.namespace}/{metadata.name}".lstrip("/")
        traceback = None if isinstance(error, InvalidObject) else error
        log.warning("%s %s is set aside: %s", kind, name, why, exc_info=traceback)


def _reason(error: Exception) -> str:
    """The reason in one line."""
    if isinstance(error, GanglineError):
        return str(error)
    return f"{type(error).__name__}: {error}"[:500]


def what_a_pod_takes(data: Any) -> Pod | None:
    """The identity and the requests of a pod that cannot be used, from JSON data; None if it has no node.

    The requests of its containers are added up; unreadable ones are left out.
    """
    metadata, spec = _part(data, "metadata"), _part(data, "spec")
    node, uid = spec.get("nodeName"), metadata.get("uid")
    if not isinstance(node, str) or not node or not isinstance(uid, str):
        return None
    containers = spec.get("containers")
    given = containers[: bounds.MOST_IN_SPEC] if isinstance(containers, list) else []
    return Pod(
        metadata=ObjectMeta(
            name=str(metadata.get("name", "")),
            namespace=str(metadata.get("namespace", "")),
            uid=uid,
            resource_version=str(metadata.get("resourceVersion", "")),
            deletion_timestamp=metadata.get("deletionTimestamp"),
        ),
        spec=PodSpec(
            node_name=node,
            scheduler_name=str(spec.get("schedulerName", "")),
            containers=[Container(resources=ResourceRequirements(requests=_readable(each))) for each in given],
        ),
        status=PodStatus(phase=str(_part(data, "status").get("phase", ""))),
    )


def _readable(container: Any) -> Resources:
    requests = _part(_part(container, "resources"), "requests")
    found: Resources = {}
    for name, amount in list(requests.items())[: bounds.MOST_RESOURCES]:
        try:
            if quantity.milli(amount) >= 0:
                found[name] = amount
        except (InvalidObject, TypeError, ValueError):
            continue
    return found


def _part(data: Any, key: str) -> dict[str, Any]:
    found = data.get(key) if isinstance(data, dict) else None
    return found if isinstance(found, dict) else {}
