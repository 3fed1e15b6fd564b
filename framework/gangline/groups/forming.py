"""Makes groups and memberships from what a reader has found; contradictory numbers are refused here.

The numbers come from objects that anybody may write. A group with numbers that are impossible, or larger than any
cluster, becomes a `Problem` with a message: its pods wait and say why, and no other group is harmed. Members with a
slice size get subgroups of this size; these are remembered, since every member of the group asks for them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gangline.api.pod_group import Membership, PodGroup, Problem, SubGroup, TopologyConstraint
from gangline.errors import InvalidObject
from gangline.groups.constraints import Constraints
from gangline.groups.parsing import MOST, rank_of
from gangline.kube.resources import Resource
from gangline.model import TypedReference
from gangline.sizes import BoundedCache
from gangline.state.pods import PodInfo

MOST_MEMBERS = 16_384
"""Members of one group: more than the nodes of the largest clusters that Kubernetes supports."""
MOST_PARTS = 1024
"""Subgroups of one group; each is placed separately."""
_SLICES_BYTES = 8 * 1024 * 1024
"""For the remembered subgroups of all slices: some dozens of groups of the largest size."""


def attempt(dialect: str, pod: PodInfo, name: str, form: Callable[[], Membership]) -> Membership | Problem:
    """The result of `form`; a Problem of the group with this name if `form` raises InvalidObject or the group is too
    large.
    """
    try:
        made = form()
        check_size(made.group.min_member, made.group.size, len(made.group.subgroups))
        return made
    except InvalidObject as error:
        return Problem(f"{dialect}:{pod.namespace}/{name}", str(error))


def check_size(least: int, size: int, parts: int) -> None:
    """Refuse a group that is larger than any real one. Raises InvalidObject."""
    if max(least, size) > MOST_MEMBERS:
        raise InvalidObject("the size of the group", max(least, size), f"a group has at most {MOST_MEMBERS} members")
    if parts > MOST_PARTS:
        raise InvalidObject("the sub-groups of the group", parts, f"a group has at most {MOST_PARTS}")


def missing(kind: str, namespace: str, name: str) -> InvalidObject:
    """The error for an object that a pod names and that does not exist."""
    return InvalidObject(f"{kind} {namespace}/{name} does not exist", None, "")


def reference_to(resource: Resource[Any], obj: Any) -> TypedReference:
    """The reference to the object that represents a group."""
    metadata = obj.metadata
    return TypedReference(resource.kind, metadata.namespace, metadata.name, metadata.uid, resource.api_version)


def counted(where: str, value: int | None) -> int:
    """A number of members from an object. Raises InvalidObject."""
    if value is None:
        raise InvalidObject(where, None, "is not set")
    if not 1 <= value <= MOST:
        raise InvalidObject(where, value, f"expected a whole number from 1 to {MOST}")
    return value


def not_more_than(where: str, least: int, size: int) -> None:
    """Refuse a group that needs more members than it will have. Raises InvalidObject."""
    if least > size:
        raise InvalidObject(where, least, f"there will be {size} pods only")


def member(pod: PodInfo, group: PodGroup, constraints: Constraints, subgroup: str = "") -> Membership:
    """The pod as a member of a group with these constraints; slices become subgroups. Raises InvalidObject.

    Its rank is read from the pod's own labels and annotations.
    """
    rank = rank_of(pod)
    size = constraints.slice_size
    if not size:
        return Membership(group, subgroup, rank)
    if rank is None:
        raise InvalidObject("topology slices", size, "slices are cut by rank, and the pod has no index")
    if rank // size >= len(group.subgroups):
        why = f"the group has {len(group.subgroups)} slices of {size} pods, and the pod has index {rank}"
        raise InvalidObject("topology slices", None, why)
    return Membership(group, slice_name(rank // size), rank)


def slices_of(needed: int, size: int, constraints: Constraints) -> tuple[SubGroup, ...]:
    """The subgroups for slices of consecutive ranks; none without slices. Raises InvalidObject."""
    if not constraints.slice_size:
        return ()
    return slices("", needed, max(needed, size), constraints.slice_size, constraints.slice_topology)


_Slices = tuple[str, int, int, int, TopologyConstraint]
_slices: BoundedCache[_Slices, tuple[SubGroup, ...]] = BoundedCache(_SLICES_BYTES)


def slices(prefix: str, needed: int, total: int, size: int, topology: TopologyConstraint) -> tuple[SubGroup, ...]:
    """This many pods in slices of one size; the first slices have to be complete. Raises InvalidObject."""
    key = (prefix, needed, total, size, topology)
    found = _slices.get(key)
    if found is None:
        found = _slices.put(key, _cut(*key))
    return found


def _cut(prefix: str, needed: int, total: int, size: int, topology: TopologyConstraint) -> tuple[SubGroup, ...]:
    count = -(-total // size)
    if count > MOST_PARTS:
        raise InvalidObject("topology slices", size, f"{total} pods make {count} slices; at most {MOST_PARTS} are")
    return tuple(
        SubGroup(prefix + slice_name(number), max(0, min(size, needed - number * size)), topology)
        for number in range(count)
    )


def slice_name(number: int) -> str:
    """The name of a slice's subgroup."""
    return f"slice-{number}"
