"""Reads which group the members of a unit are in, and which of the members are alike."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence

from gangline.api.pod_group import Membership, PodGroup, Problem
from gangline.deciding.likeness import likenesses
from gangline.groups import conflict
from gangline.profile.runtime import Runtime
from gangline.state.pods import PodInfo

RoleKey = tuple[str, Hashable]
"""What like members have in common: subgroup, pod class, and what plugins read of them beyond the class."""


def read_group(members: Sequence[PodInfo], runtime: Runtime) -> tuple[PodGroup | str, dict[RoleKey, list[PodInfo]]]:
    """The group of these pods, or the problem with it; like members form one role each, sorted by rank."""
    held = runtime.held(members)
    pods = [pod for pod in members if pod.uid not in held] if held else list(members)
    memberships = []
    for pod in pods:
        membership = runtime.handle.group_of(pod)
        if not isinstance(membership, Membership):
            return (membership.message if isinstance(membership, Problem) else f"{pod.key} is in no group"), {}
        memberships.append(membership)
    if not memberships:
        said = (held[pod.uid].message for pod in members)
        return next(filter(None, said), "the group has no members"), {}
    first = memberships[0].group
    if problem := _disagreement(pods, memberships, members[0]):
        return problem, {}
    alike = likenesses(pods, runtime)
    subgroup, like, ranked = memberships[0].subgroup, alike[0], list[tuple[float, PodInfo]]()
    found: dict[RoleKey, list[tuple[float, PodInfo]]] = {(subgroup, like): ranked}
    for pod, membership, each in zip(pods, memberships, alike, strict=True):
        if each != like or membership.subgroup != subgroup:  # mostly the pod is like the one before
            subgroup, like = membership.subgroup, each
            ranked = found.setdefault((subgroup, like), [])
        ranked.append((math.inf if membership.index is None else float(membership.index), pod))
    return first, {key: _by_rank(ranked) for key, ranked in found.items()}


def _disagreement(pods: Sequence[PodInfo], memberships: Sequence[Membership], one: PodInfo) -> str:
    """How the pods contradict each other about their group or their scheduler; "" if they agree.

    All pods must have the schedulerName of `one`.
    """
    first, name = memberships[0].group, one.scheduler_name
    for pod, membership in zip(pods, memberships, strict=True):
        if membership.group is not first and membership.group != first:
            return conflict(first, membership.group)
        if pod.scheduler_name != name:
            names = ", ".join(f"{each.scheduler_name} of {each.name}" for each in (one, pod))
            return f"the pods of gang {first.namespace}/{first.name} differ in schedulerName: {names}"
    return ""


def one_of(members: Sequence[PodInfo], runtime: Runtime) -> PodGroup | None:
    """The group as one of its pods describes it, for messages about a problem with the group."""
    found = (runtime.handle.group_of(pod) for pod in members)
    return next((membership.group for membership in found if isinstance(membership, Membership)), None)


def _by_rank(ranked: list[tuple[float, PodInfo]]) -> list[PodInfo]:
    if all(rank != math.inf for rank, _ in ranked):
        ranked.sort(key=lambda each: each[0])
    else:
        parts = [(rank, pod.name, *pod.name.rpartition("-")) for rank, pod in ranked]
        # worker-2 comes before worker-10
        keys = [(rank, head, int(no)) if no.isdecimal() else (rank, name, -1) for rank, name, head, _, no in parts]
        ranked = [ranked[number] for number in sorted(range(len(keys)), key=keys.__getitem__)]
    return [pod for _, pod in ranked]
