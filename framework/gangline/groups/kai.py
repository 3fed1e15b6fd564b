"""The groups of KAI: an annotation, and the PodGroup of scheduling.run.ai."""

from __future__ import annotations

from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem, SubGroup, TopologyConstraint
from gangline.errors import InvalidObject
from gangline.groups.constraints import Constraints, constraints_of
from gangline.groups.forming import attempt, counted, member, missing, reference_to, slices_of
from gangline.groups.keys import KAI_GROUP, KAI_SUBGROUP
from gangline.groups.owners import annotations_with
from gangline.groups.reading import Lookup
from gangline.kube.resources import KAI_POD_GROUPS, Resource
from gangline.model import KaiPodGroup, KaiTopologyConstraint
from gangline.state.pods import PodInfo


class KaiReader:
    """Reads the annotation pod-group-name; the label kai.scheduler/subgroup-name names the part of the group."""

    dialect = "kai"
    watches: tuple[Resource[Any], ...] = (KAI_POD_GROUPS,)

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        name = pod.annotations.get(KAI_GROUP)
        return attempt(self.dialect, pod, name, lambda: self._read(pod, name, lookup)) if name else None

    def _read(self, pod: PodInfo, name: str, lookup: Lookup) -> Membership:
        obj: KaiPodGroup | None = lookup.store(KAI_POD_GROUPS).get(name, pod.namespace)
        if obj is None:
            raise missing("PodGroup", pod.namespace, name)
        constraints = constraints_of(annotations_with(pod, obj, lookup))
        parts = _parts(obj)
        least = min_member(obj, parts)
        subgroup = pod.labels.get(KAI_SUBGROUP) or ""
        if subgroup and all(part.name != subgroup for part in parts):
            raise InvalidObject(f"label {KAI_SUBGROUP}", subgroup, f"PodGroup {obj.metadata.name} has no such subGroup")
        group = PodGroup(
            pod.namespace,
            name,
            self.dialect,
            least,
            topology=_constraint(obj.spec.topology_constraint) or constraints.topology,
            subgroups=parts or slices_of(least, 0, constraints),
            object=reference_to(KAI_POD_GROUPS, obj),
        )
        return member(pod, group, Constraints() if parts else constraints, subgroup)


def min_member(obj: KaiPodGroup, parts: tuple[SubGroup, ...] | None = None) -> int:
    """The number of members that have to start together: `minMember`, or the sum of the parts. Raises InvalidObject."""
    where = f"PodGroup {obj.metadata.namespace}/{obj.metadata.name}: spec.minMember"
    needed = sum(part.min_member for part in (_parts(obj) if parts is None else parts))
    if obj.spec.min_member is None:
        return counted(where, needed or None)
    return max(counted(where, obj.spec.min_member), needed)


def _parts(obj: KaiPodGroup) -> tuple[SubGroup, ...]:
    """The innermost parts: only these have pods."""
    where = f"PodGroup {obj.metadata.namespace}/{obj.metadata.name}: spec"
    outer = {part.parent for part in obj.spec.sub_groups if part.parent}
    parts = []
    if obj.spec.min_sub_group is not None:
        raise InvalidObject(
            f"{where}.minSubGroup", obj.spec.min_sub_group, "is not supported; all subGroups are needed"
        )
    for part in obj.spec.sub_groups:
        at = f"{where}.subGroups[{part.name}]"
        if part.min_sub_group is not None:
            raise InvalidObject(f"{at}.minSubGroup", part.min_sub_group, "is not supported; all subGroups are needed")
        if part.name not in outer:
            topology = _constraint(part.topology_constraint) or TopologyConstraint()
            least = 1 if part.min_member is None else part.min_member
            if least < 0:
                raise InvalidObject(f"{at}.minMember", least, "must not be negative")
            parts.append(SubGroup(part.name, least, topology))
        elif part.topology_constraint is not None:
            why = "it holds other subGroups; constrain those, or the whole group"
            raise InvalidObject(f"{at}.topologyConstraint", None, why)
    return tuple(parts)


def _constraint(constraint: KaiTopologyConstraint | None) -> TopologyConstraint | None:
    if constraint is None or not (constraint.required_topology_level or constraint.preferred_topology_level):
        return None
    return TopologyConstraint(constraint.required_topology_level, constraint.preferred_topology_level)
