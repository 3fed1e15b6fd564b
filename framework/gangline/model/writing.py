"""Objects that Gangline writes: bindings, leases and events."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta, TypedReference


class Binding(Object):
    """Puts a pod on a node; annotations are set on the pod in the same write."""

    metadata: ObjectMeta
    target: TypedReference


class LeaseSpec(Object):
    """spec of a lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Object):
    """A Lease: the lock of a leader election."""

    metadata: ObjectMeta
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)


class EventSeries(Object):
    """How often an event was seen again."""

    count: int
    last_observed_time: str


class Event(Object):
    """An events.k8s.io/v1 event."""

    metadata: ObjectMeta
    reason: str = ""
    note: str = ""
    type: str = ""
    action: str = ""
    regarding: TypedReference | None = None
    related: TypedReference | None = None
    event_time: str | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    series: EventSeries | None = None
