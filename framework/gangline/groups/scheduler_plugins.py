"""The groups of scheduler-plugins: a label, and the PodGroup of scheduling.x-k8s.io."""

from __future__ import annotations

from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem
from gangline.errors import InvalidObject
from gangline.groups.constraints import constraints_of
from gangline.groups.forming import attempt, counted, member, missing, reference_to, slices_of
from gangline.groups.keys import POD_GROUP
from gangline.groups.owners import annotations_with
from gangline.groups.reading import Lookup
from gangline.kube.resources import SCHEDULER_PLUGINS_POD_GROUPS, Resource
from gangline.model import PodGroup as PodGroupObject
from gangline.state.pods import PodInfo


class SchedulerPluginsReader:
    """Reads the label scheduling.x-k8s.io/pod-group; `scheduleTimeoutSeconds` is how long members wait at permit."""

    dialect = "scheduler-plugins"
    watches: tuple[Resource[Any], ...] = (SCHEDULER_PLUGINS_POD_GROUPS,)

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        name = pod.labels.get(POD_GROUP)
        return attempt(self.dialect, pod, name, lambda: self._read(pod, name, lookup)) if name else None

    def _read(self, pod: PodInfo, name: str, lookup: Lookup) -> Membership:
        obj: PodGroupObject | None = lookup.store(SCHEDULER_PLUGINS_POD_GROUPS).get(name, pod.namespace)
        if obj is None:
            raise missing("PodGroup", pod.namespace, name)
        least = min_member(obj)
        constraints = constraints_of(annotations_with(pod, obj, lookup))
        group = PodGroup(
            pod.namespace,
            name,
            self.dialect,
            least,
            topology=constraints.topology,
            subgroups=slices_of(least, 0, constraints),
            timeout=_timeout(obj),
            object=reference_to(SCHEDULER_PLUGINS_POD_GROUPS, obj),
        )
        return member(pod, group, constraints)


def min_member(obj: PodGroupObject) -> int:
    """The number of members that have to start together. Raises InvalidObject."""
    return counted(f"PodGroup {obj.metadata.namespace}/{obj.metadata.name}: spec.minMember", obj.spec.min_member)


def _timeout(obj: PodGroupObject) -> float | None:
    seconds = obj.spec.schedule_timeout_seconds
    if seconds is not None and seconds < 0:
        where = f"PodGroup {obj.metadata.namespace}/{obj.metadata.name}: spec.scheduleTimeoutSeconds"
        raise InvalidObject(where, seconds, "must not be negative")
    return float(seconds) if seconds else None
