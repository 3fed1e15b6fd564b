"""The groups of Volcano: an annotation, and the PodGroup of scheduling.volcano.sh."""

from __future__ import annotations

from typing import Any

from gangline.api.pod_group import ANYWHERE, Membership, PodGroup, Problem, SubGroup, TopologyConstraint
from gangline.errors import InvalidObject
from gangline.groups import constraints as constraining
from gangline.groups.constraints import Constraints, constraints_of, tier
from gangline.groups.forming import attempt, counted, member, missing, reference_to, slices_of
from gangline.groups.keys import VOLCANO_GROUP, VOLCANO_TASK
from gangline.groups.owners import annotations_with
from gangline.groups.reading import Lookup
from gangline.kube.resources import VOLCANO_POD_GROUPS, Resource
from gangline.model import VolcanoPodGroup
from gangline.state.pods import PodInfo


class VolcanoReader:
    """Reads the annotation scheduling.k8s.io/group-name; volcano.sh/task-spec names the task of the group."""

    dialect = "volcano"
    watches: tuple[Resource[Any], ...] = (VOLCANO_POD_GROUPS,)

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        name = pod.annotations.get(VOLCANO_GROUP)
        return attempt(self.dialect, pod, name, lambda: self._read(pod, name, lookup)) if name else None

    def _read(self, pod: PodInfo, name: str, lookup: Lookup) -> Membership:
        obj: VolcanoPodGroup | None = lookup.store(VOLCANO_POD_GROUPS).get(name, pod.namespace)
        if obj is None:
            raise missing("PodGroup", pod.namespace, name)
        tasks = _tasks(obj)
        least = max(min_member(obj), sum(task.min_member for task in tasks))
        constraints = constraints_of(annotations_with(pod, obj, lookup))
        task = pod.annotations.get(VOLCANO_TASK, "")
        group = PodGroup(
            pod.namespace,
            name,
            self.dialect,
            least,
            topology=_topology(obj) or constraints.topology,
            subgroups=tasks or slices_of(least, 0, constraints),
            object=reference_to(VOLCANO_POD_GROUPS, obj),
        )
        of_task = task if any(each.name == task for each in tasks) else ""
        return member(pod, group, Constraints() if tasks else constraints, of_task)


def min_member(obj: VolcanoPodGroup) -> int:
    """The number of members that have to start together. Raises InvalidObject."""
    return counted(f"PodGroup {obj.metadata.namespace}/{obj.metadata.name}: spec.minMember", obj.spec.min_member)


def _tasks(obj: VolcanoPodGroup) -> tuple[SubGroup, ...]:
    where = f"PodGroup {obj.metadata.namespace}/{obj.metadata.name}: spec.minTaskMember"
    tasks = sorted((obj.spec.min_task_member or {}).items())
    for task, least in tasks:
        if least < 0:
            raise InvalidObject(f"{where}[{task}]", least, "must not be negative")
    return tuple(SubGroup(task, least) for task, least in tasks)


def _topology(obj: VolcanoPodGroup) -> TopologyConstraint | None:
    wanted = obj.spec.network_topology
    if wanted is None:
        return None
    where = f"PodGroup {obj.metadata.namespace}/{obj.metadata.name}: spec.networkTopology"
    highest = wanted.highest_tier_allowed
    if highest is not None and highest < 1:
        raise InvalidObject(f"{where}.highestTierAllowed", highest, "expected a whole number from 1")
    named = wanted.highest_tier_name or (tier(highest) if highest else ANYWHERE)
    found = constraining.volcano(wanted.mode, named)
    if found is None:
        raise InvalidObject(f"{where}.mode", wanted.mode, 'expected "hard" or "soft"')
    return found
