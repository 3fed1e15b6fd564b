"""The fraction of the placed groups whose pods are as close together as they should be.

Rules:
- A group with a preferred or required level is right if all of its members are in one domain of this level; if it has
  both levels, the preferred one counts. The same holds for a part of a group with levels of its own.
- A group without a level is right if its nodes are in the fewest narrowest domains that can hold so many nodes, and
  these are adjacent. If the nodes are in no domains, the group is not judged.
- Groups that should be distributed, and groups with missing members, are not judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from gangline.api.pod_group import Membership, TopologyConstraint
from gangline.groups.progress import Progress
from gangline.groups.strategy import strategy_of
from gangline.profile.handle import FrameworkHandle
from gangline.profile.runtime import Runtime
from gangline.state.node_view import Rows
from gangline.state.pods import PodInfo
from gangline.state.topology import NO_DOMAIN, Domains, Topology


def accuracy(runtimes: Mapping[str, Runtime]) -> float:
    """The fraction of the judged groups that are right, 0..1; 1 if no group is judged."""
    judged = [right for runtime in runtimes.values() for right in _judged(runtime.handle)]
    return sum(judged) / len(judged) if judged else 1.0


def _judged(handle: FrameworkHandle) -> Iterator[bool]:
    """For each judged group of a profile, whether the group is right."""
    groups = handle.placed.groups()
    for members in groups.values():
        pods = [pod for pod in members.values() if pod.row >= 0 and pod.scheduler_name == handle.profile]
        membership = handle.group_of(pods[0]) if pods else None
        if not isinstance(membership, Membership) or not Progress.of(membership.group, len(pods)).runs:
            continue
        if strategy_of(handle.workload(pods[0])) == "distributed":
            continue
        verdicts = list(_verdicts(handle, membership, pods))
        if verdicts:
            yield all(verdicts)


def _verdicts(handle: FrameworkHandle, membership: Membership, pods: Sequence[PodInfo]) -> Iterator[bool]:
    """Whether the group as a whole is right, and whether each of its parts is."""
    topology, group = handle.topology, membership.group
    parts = {part.name: part.topology for part in group.subgroups if _level(part.topology)}
    if _level(group.topology):
        yield _together(topology, _level(group.topology), _rows(pods))
    elif not parts and (levels := topology.switches()):
        yield _side_by_side(levels[-1], _rows(pods))
    by_part: dict[str, list[PodInfo]] = {}
    for pod in pods if parts else ():
        place = handle.group_of(pod)
        by_part.setdefault(place.subgroup if isinstance(place, Membership) else "", []).append(pod)
    for name, some in by_part.items():
        if name in parts:
            yield _together(topology, _level(parts[name]), _rows(some))


def _level(constraint: TopologyConstraint) -> str:
    return constraint.preferred or constraint.required


def _rows(pods: Sequence[PodInfo]) -> Rows:
    return np.unique(np.array([pod.row for pod in pods], dtype=np.intp))


def _together(topology: Topology, level: str, rows: Rows) -> bool:
    domains = topology.find(level)
    ids = np.unique(domains.ids[rows]) if domains is not None else np.array([NO_DOMAIN])
    return len(rows) == 1 or (len(ids) == 1 and int(ids[0]) != NO_DOMAIN)


def _side_by_side(level: Domains, rows: Rows) -> bool:
    ids = np.unique(level.ids[rows])
    if len(rows) == 1 or int(ids[0]) == NO_DOMAIN:
        return len(rows) == 1
    sizes = np.sort(np.bincount(level.ids[level.ids != NO_DOMAIN], minlength=len(level)))[::-1]
    fewest = int(np.searchsorted(np.cumsum(sizes), len(rows))) + 1
    places = level.order[ids]
    return len(ids) == fewest and int(places.max() - places.min()) == fewest - 1
