"""The groups of Kubernetes itself: spec.schedulingGroup and the PodGroup of scheduling.k8s.io."""

from __future__ import annotations

from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem, TopologyConstraint
from gangline.errors import InvalidObject
from gangline.groups.constraints import constraints_of
from gangline.groups.forming import attempt, counted, member, missing, reference_to, slices_of
from gangline.groups.owners import annotations_with
from gangline.groups.reading import Lookup
from gangline.kube.resources import POD_GROUPS_V1ALPHA2, POD_GROUPS_V1BETA1, Resource
from gangline.model import PodGroup as PodGroupObject
from gangline.model import PodGroupSpec
from gangline.state.pods import PodInfo


class UpstreamReader:
    """Reads `spec.schedulingGroup.podGroupName`; the API server has one of two versions of the PodGroup."""

    dialect = "upstream"
    watches: tuple[Resource[Any], ...] = (POD_GROUPS_V1BETA1, POD_GROUPS_V1ALPHA2)

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        if not pod.group:
            return None
        return attempt(self.dialect, pod, pod.group, lambda: self._read(pod, lookup))

    def _read(self, pod: PodInfo, lookup: Lookup) -> Membership:
        for resource in self.watches:
            obj: PodGroupObject | None = lookup.store(resource).get(pod.group, pod.namespace)
            if obj is not None:
                return self._member(pod, lookup, resource, obj)
        raise missing("PodGroup", pod.namespace, pod.group)

    def _member(self, pod: PodInfo, lookup: Lookup, resource: Resource[Any], obj: PodGroupObject) -> Membership:
        least = min_count(obj)
        constraints = constraints_of(annotations_with(pod, obj, lookup))
        group = PodGroup(
            pod.namespace,
            pod.group,
            self.dialect,
            least,
            topology=_required(obj.spec) or constraints.topology,
            subgroups=slices_of(least, 0, constraints),
            priority=obj.spec.priority,
            disruptive=_is_disrupted_as_one(obj.spec),
            object=reference_to(resource, obj),
        )
        return member(pod, group, constraints)


def min_count(obj: PodGroupObject) -> int:
    """The number of members that have to start together. Raises InvalidObject."""
    where = f"PodGroup {obj.metadata.namespace}/{obj.metadata.name}: spec.schedulingPolicy"
    policy = obj.spec.scheduling_policy
    if policy is None or (policy.gang is None and policy.basic is None):
        raise InvalidObject(where, None, "names neither gang nor basic")
    return 1 if policy.gang is None else counted(f"{where}.gang.minCount", policy.gang.min_count)


def _required(spec: PodGroupSpec) -> TopologyConstraint | None:
    topology = spec.scheduling_constraints.topology if spec.scheduling_constraints else []
    return TopologyConstraint(required=topology[0].key) if topology and topology[0].key else None


def _is_disrupted_as_one(spec: PodGroupSpec) -> bool:
    mode = spec.disruption_mode
    return mode == "PodGroup" if isinstance(mode, str) else "all" in (mode or {})
