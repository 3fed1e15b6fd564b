"""Workloads of Kueue (kueue.x-k8s.io): the pods that Kueue admits together, and the progress of the admission."""

from __future__ import annotations

import msgspec

from gangline.model.base import Object, ObjectMeta, PodCondition


class KueueWorkloadSpec(Object):
    """spec of a Workload."""

    active: bool | None = None

    @property
    def suspend(self) -> bool:
        """Whether Kueue has to evict the Workload and not admit it again (`active` is false). A Job has a field of this
        name with this meaning.
        """
        return self.active is False


class KueueWorkloadStatus(Object):
    """status of a Workload."""

    conditions: list[PodCondition] = []


class KueueWorkload(Object):
    """The unit that Kueue admits as a whole: the pods of its controller, which is a Job, a JobSet or another object."""

    metadata: ObjectMeta
    spec: KueueWorkloadSpec = msgspec.field(default_factory=KueueWorkloadSpec)
    status: KueueWorkloadStatus = msgspec.field(default_factory=KueueWorkloadStatus)
