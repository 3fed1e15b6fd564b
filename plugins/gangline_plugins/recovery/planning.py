"""Finds new places for a group that has lost members, in a transaction that is undone.

First the lost members alone are placed beside the others, which stay: on the level that the group requires of all of
them, or as close as its preferences and the room allow. If that fails and the others are too few without them, all
members are placed anew: the group moves as a whole, to a domain that holds it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from gangline import BoolColumn, Handle, PodGroup, PodInfo, Progress
from gangline_plugins.recovery.policies import RecoveryPolicy


@dataclass(frozen=True, slots=True, eq=False)
class RecoveryPlan:
    """What is to be done for one group."""

    lost: Sequence[PodInfo]
    """Members on lost nodes."""
    evicted: Sequence[PodInfo]
    """Other members, which start anew."""
    places: Sequence[tuple[PodInfo, str]]
    """Records of the pods to come, with the nodes on which room is kept for them."""
    is_move: bool
    """Whether the other members get new nodes too."""


def find_recovery(
    handle: Handle,
    group: PodGroup,
    lost: Sequence[PodInfo],
    waiting: Sequence[PodInfo],
    replaced: Container[str],
    policy: RecoveryPolicy,
    allowed: BoolColumn,
) -> RecoveryPlan | None:
    """The plan for a group; None if there is no room. Changes nothing.

    `lost` are members whose nodes are lost, and `waiting` members that wait for a node in place of others: also of
    those that are being deleted, which therefore count no more. `replaced` has the UIDs of the lost members in whose
    place some of them wait. `allowed` has one truth value per row.
    """
    gone = {pod.uid for pod in lost}
    others = [pod for pod in handle.members(group.key) if pod.uid not in gone and not pod.terminating]
    own = {pod.uid: pod.node_name for pod in others}
    made = [pod.anew() for pod in lost if pod.uid not in replaced]
    with handle.state.transaction() as tx:
        for pod in lost:
            if pod.row >= 0:
                tx.unplace(pod)
        found = _places(handle, [*waiting, *made], allowed)
        if found is not None:
            if policy is RecoveryPolicy.RESTART:
                found += [(pod.anew(), own[pod.uid]) for pod in others]
                return RecoveryPlan(lost, others, found, is_move=False)
            return RecoveryPlan(lost, (), found, is_move=False)
        if policy is RecoveryPolicy.REPLACE and Progress.of(group, len(others)).runs:
            return RecoveryPlan(lost, (), (), is_move=False) if lost else None
        for pod in others:
            tx.unplace(pod)
        found = _places(handle, [*waiting, *made, *(pod.anew() for pod in others)], allowed)
    return None if found is None else RecoveryPlan(lost, others, found, is_move=True)


def _places(handle: Handle, pods: Sequence[PodInfo], allowed: BoolColumn) -> list[tuple[PodInfo, str]] | None:
    """A node for each of the pods; None if not all of them find one."""
    found: Mapping[str, int] | None = handle.find_places(pods, allowed) if pods else {}
    if found is None or len(found) < len(pods):
        return None
    names = handle.nodes.names
    return [(pod, names[found[pod.uid]]) for pod in pods]
