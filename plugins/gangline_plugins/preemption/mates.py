"""The pods that have to stop together with a victim: a group that would keep too few members stops as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from gangline import Handle, Membership, PodGroup, PodInfo, Progress


def with_mates(handle: Handle, victims: Sequence[PodInfo]) -> list[PodInfo]:
    """The victims, followed by all other members of each group that cannot run without its victims."""
    taken: dict[str, int] = {}
    groups: dict[str, PodGroup] = {}
    for victim in victims:
        membership = handle.group_of(victim)
        if isinstance(membership, Membership):
            key = membership.group.key
            taken[key] = taken.get(key, 0) + 1
            groups[key] = membership.group
    chosen = {victim.uid for victim in victims}
    mates: list[PodInfo] = []
    for key, number in taken.items():
        members = handle.members(key)
        if not Progress.of(groups[key], len(members)).without(number).runs:
            mates += [member for member in members if member.uid not in chosen]
    return [*victims, *mates]
