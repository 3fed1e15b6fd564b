"""The replicas of LeaderWorkerSets: a leader and its workers, by the labels and annotations of their pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangline.api.pod_group import ANYWHERE, Membership, PodGroup, Problem, SubGroup, TopologyConstraint
from gangline.errors import InvalidObject
from gangline.groups import keys
from gangline.groups.constraints import FREE, constraints_of
from gangline.groups.forming import MOST_PARTS, attempt, check_size, not_more_than
from gangline.groups.owners import annotations_of
from gangline.groups.parsing import invalid, level, number
from gangline.groups.reading import Lookup
from gangline.kube.resources import LEADER_WORKER_SETS, Resource
from gangline.model import LeaderWorkerSet, PodTemplate
from gangline.sizes import BoundedCache
from gangline.state.pods import PodInfo

LEADER, WORKERS = "leader", "workers"
_NOTHING: Mapping[str, str] = {}
_CUTS = (keys.LWS_SUBGROUP_SIZE, keys.LWS_SUBGROUP_TYPE, keys.LWS_SUBGROUP_EXCLUSIVE)
"""The annotations that divide a replica into subgroups."""
_REMEMBERED_BYTES = 16 * 1024 * 1024
"""For the remembered groups: thousands of usual ones."""
_Key = tuple[str | int | TopologyConstraint | None, ...]


class LeaderWorkerSetReader:
    """Makes one group of each replica of a LeaderWorkerSet: leader and workers, or the subgroups of the set.

    With exclusive placement, and if workers wait for a ready leader, workers are created only when the leader has its
    node. Then the leader alone starts the group, and the workers join it in its domain.
    """

    dialect = "leader-worker-set"
    watches: tuple[Resource[Any], ...] = (LEADER_WORKER_SETS,)

    def __init__(self) -> None:
        self._groups: BoundedCache[_Key, tuple[LeaderWorkerSet | None, PodGroup]] = BoundedCache(_REMEMBERED_BYTES)
        """One group for all pods of a replica with the same annotations."""

    def read(self, pod: PodInfo, lookup: Lookup) -> Membership | Problem | None:
        """See `Reader`."""
        key = pod.labels.get(keys.LWS_GROUP)
        if not key:
            return None
        of, index = pod.labels.get(keys.LWS_NAME), pod.labels.get(keys.LWS_GROUP_INDEX)
        name = f"{of}-{index}" if of and index else key
        return attempt(self.dialect, pod, name, lambda: self._read(pod, name, lookup))

    def _read(self, pod: PodInfo, name: str, lookup: Lookup) -> Membership:
        of = pod.labels.get(keys.LWS_NAME, "")
        found: LeaderWorkerSet | None = lookup.store(LEADER_WORKER_SETS).get(of, pod.namespace)
        own = annotations_of(pod, lookup)
        size = number(own, keys.LWS_SIZE) or (found.spec.leader_worker_template.size if found is not None else None)
        if size is None:
            raise invalid(keys.LWS_SIZE, None, f"is not set, and LeaderWorkerSet {pod.namespace}/{of} does not exist")
        rank = number(pod.labels, keys.LWS_WORKER, least=0)
        if rank is None or rank >= size:
            raise InvalidObject(f"label {keys.LWS_WORKER}", rank, f"expected a whole number below the size, {size}")
        annotations = own if found is None else found.metadata.annotations or _NOTHING
        exclusive = level(own, keys.LWS_EXCLUSIVE)
        leader_first = bool(exclusive) or (found is not None and found.spec.startup_policy == "LeaderReady")
        least = 1 if leader_first else number(annotations, keys.MIN_MEMBER) or size
        not_more_than(f"annotation {keys.MIN_MEMBER}", least, size)
        topology = TopologyConstraint(exclusive) if exclusive else constraints_of(annotations).topology
        key = (pod.namespace, name, least, size, topology, *(own.get(each) for each in _CUTS))
        known = self._groups.get(key)
        if known is None or known[0] is not found:
            check_size(least, size, 0)
            parts = _within(least, _parts(own, size, found))
            group = PodGroup(pod.namespace, name, self.dialect, least, size, topology, parts)
            known = self._groups.put(key, (found, group))
        return Membership(known[1], _part(own, size, rank), rank)


def _parts(annotations: Mapping[str, str], size: int, found: LeaderWorkerSet | None) -> list[tuple[str, int, Any]]:
    """Name, number of pods and constraint of each part."""
    each = number(annotations, keys.LWS_SUBGROUP_SIZE)
    if each is None:
        leader, workers = _templates(found)
        parts = [(LEADER, 1, _constraint(leader)), (WORKERS, size - 1, _constraint(workers))]
        return parts if size > 1 else []
    exclusive = level(annotations, keys.LWS_SUBGROUP_EXCLUSIVE)
    constraint = TopologyConstraint(exclusive) if exclusive != ANYWHERE else FREE
    if size // each >= MOST_PARTS:
        why = f"{size} pods make too many sub-groups; at most {MOST_PARTS} are"
        raise invalid(keys.LWS_SUBGROUP_SIZE, each, why)
    apart = annotations.get(keys.LWS_SUBGROUP_TYPE) == "LeaderExcluded"
    extra = (size - 1) % each == 0
    cut = size - 1 if apart or extra else size
    counts = [min(each, cut - start) for start in range(0, cut, each)] or ([] if apart else [0])
    if extra and not apart:
        counts[0] += 1
    parts = [(f"subgroup-{number_}", count, constraint) for number_, count in enumerate(counts)]
    return [(LEADER, 1, FREE), *parts] if apart else parts


def _part(annotations: Mapping[str, str], size: int, rank: int) -> str:
    """The part of the pod with a rank.

    If the leader is left over when the other pods are divided into equal parts, it is one more pod of the first part.
    """
    each = number(annotations, keys.LWS_SUBGROUP_SIZE)
    if each is None:
        return "" if size == 1 else WORKERS if rank else LEADER
    if annotations.get(keys.LWS_SUBGROUP_TYPE) == "LeaderExcluded":
        return f"subgroup-{(rank - 1) // each}" if rank else LEADER
    extra_leader = (size - 1) % each == 0
    return f"subgroup-{max(rank - 1, 0) // each if extra_leader else rank // each}"


def _within(least: int, parts: list[tuple[str, int, Any]]) -> tuple[SubGroup, ...]:
    """The parts; the first ones together have the least number of members."""
    found, left = [], least
    for name, count, constraint in parts:
        found.append(SubGroup(name, min(count, left), constraint))
        left -= min(count, left)
    return tuple(found)


def _templates(found: LeaderWorkerSet | None) -> tuple[PodTemplate | None, PodTemplate | None]:
    template = found.spec.leader_worker_template if found is not None else None
    if template is None:
        return None, None
    return template.leader_template or template.worker_template, template.worker_template


def _constraint(template: PodTemplate | None) -> TopologyConstraint:
    if template is None:
        return FREE
    constraints = constraints_of(template.metadata.annotations or _NOTHING)
    if constraints.slice_size:
        raise InvalidObject("topology slices", constraints.slice_size, "a LeaderWorkerSet is cut by its subGroupPolicy")
    return constraints.topology
