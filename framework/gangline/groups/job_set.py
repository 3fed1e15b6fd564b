"""JobSets: all Jobs of a JobSet are one group, with a part for each replicated job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gangline.api.pod_group import ANYWHERE, Membership, PodGroup, Problem, SubGroup, TopologyConstraint
from gangline.errors import InvalidObject
from gangline.groups import keys
from gangline.groups.constraints import FREE, Constraints, constraints_of
from gangline.groups.forming import MOST_PARTS, attempt, check_size, missing, not_more_than, slice_name, slices
from gangline.groups.owners import job_size
from gangline.groups.parsing import level, number
from gangline.groups.reading import Lookup
from gangline.kube.resources import JOB_SETS, Resource
from gangline.model import JobSet, ReplicatedJob
from gangline.sizes import BoundedCache
from gangline.state.pods import PodInfo
from gangline.wire.custom_resources import COMPLETION_INDEX

_NOTHING: Mapping[str, str] = {}
_REMEMBERED_BYTES = 16 * 1024 * 1024
"""For the remembered layouts of JobSets, and as much for the groups made from them: thousands of usual ones."""


class JobPart(msgspec.Struct, frozen=True):
    """One replicated job in a group."""

    name: str
    jobs: int
    pods: int
    """The number of pods of one job."""
    offset: int
    """The part's first rank in the group."""
    constraints: Constraints
    exclusive: str
    """The level at which each job has its own domain."""
    leaders_first: bool
    """Whether the other pods of a job are created only when its first pod has a node."""
    done: int
    """The number of jobs that have succeeded."""

    @property
    def needed(self) -> int:
        """The number of pods that have to start together."""
        return (self.jobs - self.done) * (1 if self.leaders_first else self.pods)


class JobSetReader:
    """Reads the JobSet that a pod's labels name.

    If replicated jobs start one after the other, each is its own group. With exclusive placement each Job is a part,
    and its first pod alone starts it: the JobSet admits its other pods only when the first pod has its node.
    """

    dialect = "job-set"
    watches: tuple[Resource[Any], ...] = (JOB_SETS,)

    def __init__(self) -> None:
        self._layouts: BoundedCache[tuple[str, str], tuple[JobSet, list[JobPart]]] = BoundedCache(_REMEMBERED_BYTES)
        self._groups: BoundedCache[tuple[str, str], tuple[JobSet, PodGroup]] = BoundedCache(_REMEMBERED_BYTES)

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        name = pod.labels.get(keys.JOB_SET)
        return attempt(self.dialect, pod, name, lambda: self._read(pod, name, lookup)) if name else None

    def _read(self, pod: PodInfo, name: str, lookup: Lookup) -> Membership:
        found: JobSet | None = lookup.store(JOB_SETS).get(name, pod.namespace)
        if found is None:
            raise missing("JobSet", pod.namespace, name)
        part_name = pod.labels.get(keys.JOB_SET_PART, "")
        parts = self._parts(found)
        part = next((each for each in parts if each.name == part_name), None)
        if part is None:
            raise InvalidObject(f"label {keys.JOB_SET_PART}", part_name, f"JobSet {name} has no such replicatedJob")
        group = (
            self._group(found, [part], f"{name}/{part_name}") if _in_turn(found) else self._group(found, parts, name)
        )
        return _member(pod, group, part)

    def _parts(self, found: JobSet) -> list[JobPart]:
        key = (found.metadata.namespace, found.metadata.name)
        known = self._layouts.get(key)
        if known is not None and known[0] is found:
            return known[1]
        parts = _layout(found)
        self._layouts.put(key, (found, parts))
        return parts

    def _group(self, found: JobSet, parts: list[JobPart], name: str) -> PodGroup:
        key = (found.metadata.namespace, name)
        known = self._groups.get(key)
        if known is not None and known[0] is found:
            return known[1]
        group = _formed(self.dialect, found, parts, name)
        self._groups.put(key, (found, group))
        return group


def _layout(found: JobSet) -> list[JobPart]:
    """The replicated jobs of a JobSet. Raises InvalidObject."""
    done = {each.name: each.succeeded for each in found.status.replicated_jobs_status}
    whole = found.metadata.annotations or _NOTHING
    parts: list[JobPart] = []
    offset = 0
    for replicated in found.spec.replicated_jobs:
        own = _own(replicated)
        annotations = {**whole, **own}
        exclusive = level(annotations, keys.JOB_SET_EXCLUSIVE)
        pods = max(job_size(replicated.template.spec.parallelism, replicated.template.spec.completions), 0)
        jobs = max(replicated.replicas, 0)
        parts.append(
            JobPart(
                replicated.name,
                jobs,
                pods,
                offset,
                constraints_of(own),
                exclusive,
                exclusive != ANYWHERE and keys.JOB_SET_NODE_SELECTOR not in annotations,
                min(done.get(replicated.name, 0), jobs),
            )
        )
        offset += jobs * pods
    return parts


def _own(replicated: ReplicatedJob) -> dict[str, str]:
    """The annotations of the jobs and pods that are created from the replicated job."""
    return {
        **(replicated.template.metadata.annotations or _NOTHING),
        **(replicated.template.spec.template.metadata.annotations or _NOTHING),
    }


def _in_turn(found: JobSet) -> bool:
    """Whether replicated jobs start one after the other."""
    startup = found.spec.startup_policy
    in_order = startup is not None and startup.startup_policy_order == "InOrder"
    return in_order or any(each.depends_on for each in found.spec.replicated_jobs)


def _formed(dialect: str, found: JobSet, parts: list[JobPart], name: str) -> PodGroup:
    annotations = found.metadata.annotations or _NOTHING
    least = number(annotations, keys.MIN_MEMBER)
    if least is None:
        least = number(annotations, keys.KAI_MIN_MEMBER)
    size = sum(each.jobs * each.pods for each in parts)
    if least is not None:
        not_more_than(f"JobSet {found.metadata.namespace}/{name}: the least number of members", least, size)
    whole = constraints_of(annotations)
    if whole.slice_size:
        why = "belongs on the template of a replicated job"
        raise InvalidObject(f"JobSet {found.metadata.namespace}/{name}: topology slices", whole.slice_size, why)
    topology = whole.topology
    hoisted = len(parts) == 1 and topology == FREE
    if hoisted:
        topology = parts[0].constraints.topology
    needed = max(1, sum(each.needed for each in parts))
    least = needed if least is None else min(least, needed)
    subgroups: list[SubGroup] = []
    left = least
    for part in parts:
        subgroups += _subgroups(part, min(left, part.needed), hoisted)
        check_size(least, size, len(subgroups))
        left -= min(left, part.needed)
    return PodGroup(
        found.metadata.namespace,
        name,
        dialect,
        least,
        size=size,
        topology=topology,
        subgroups=tuple(subgroups),
        knows_succeeded=True,
    )


def _subgroups(part: JobPart, needed: int, hoisted: bool) -> tuple[SubGroup, ...]:
    """The subgroups of a replicated job; none with `hoisted`, if the whole group has the job's constraint already."""
    constraints = part.constraints
    whole = needed if not part.done else 0  # it is not known which Jobs have succeeded
    if (part.exclusive or constraints.slice_size) and constraints.topology != FREE and not hoisted:
        why = "cannot be combined with exclusive placement or slices; set it for the whole JobSet"
        raise InvalidObject(f"replicatedJob {part.name}: topology", constraints.topology.required or None, why)
    if part.exclusive:
        if part.jobs > MOST_PARTS:
            raise InvalidObject(f"replicatedJob {part.name}", part.jobs, f"more than {MOST_PARTS} exclusive Jobs")
        each = 1 if part.leaders_first else part.pods
        return tuple(
            SubGroup(f"{part.name}/{job}", max(0, min(each, whole - job * each)), TopologyConstraint(part.exclusive))
            for job in range(part.jobs)
        )
    if constraints.slice_size:
        total = part.jobs * part.pods
        return slices(f"{part.name}/", whole, total, constraints.slice_size, constraints.slice_topology)
    return () if hoisted else (SubGroup(part.name, needed, constraints.topology),)


def _member(pod: PodInfo, group: PodGroup, part: JobPart) -> Membership:
    """The pod's place: ordered by its Job, then by its completion index. Raises InvalidObject."""
    job = number(pod.labels, keys.JOB_SET_JOB, least=0)
    completion = number(pod.annotations, COMPLETION_INDEX, least=0)
    if completion is None:
        completion = number(pod.labels, COMPLETION_INDEX, least=0)
    rank = None if job is None or completion is None else job * part.pods + completion
    subgroup = part.name
    if part.exclusive:
        subgroup = f"{part.name}/{_known(job, keys.JOB_SET_JOB)}"
    elif part.constraints.slice_size:
        subgroup = f"{part.name}/{slice_name(_known(rank, keys.JOB_SET_JOB) // part.constraints.slice_size)}"
    elif not group.subgroups:
        subgroup = ""
    if group.subgroups and group.subgroup(subgroup) is None:
        raise InvalidObject(f"label {keys.JOB_SET_JOB}", job, f"replicatedJob {part.name} has {part.jobs} Jobs")
    return Membership(group, subgroup, None if rank is None else part.offset + rank)


def _known(value: int | None, key: str) -> int:
    if value is None:
        raise InvalidObject(f"label {key}", None, "is not set, or the pod has no completion index")
    return value
