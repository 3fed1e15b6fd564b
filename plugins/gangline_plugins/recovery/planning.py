"""Finds new places for a group that has lost members, in a transaction that is undone.

First the lost members alone are placed beside the others, which stay: on the level that the group requires of all of
them, or as close as its preferences and the room allow. If that fails and the others are too few without them, all
members are placed anew: the group moves as a whole, to a domain that holds it. Each search is made without the pods on
lent spares if it fails with them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass

from gangline import BoolColumn, Handle, PodGroup, PodInfo, Progress, Transaction
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
    lent: Sequence[PodInfo] = ()
    """Pods on spares, which leave them to the group."""


def find_recovery(
    handle: Handle,
    group: PodGroup,
    lost: Sequence[PodInfo],
    waiting: Sequence[PodInfo],
    replaced: Container[str],
    policy: RecoveryPolicy,
    places: Places,
) -> RecoveryPlan | None:
    """The plan for a group; None if there is no room. Changes nothing.

    `lost` are members whose nodes are lost, and `waiting` members that wait for a node in place of others: also of
    those that are being deleted, which therefore count no more. `replaced` has the UIDs of the lost members in whose
    place some of them wait.
    """
    gone = {pod.uid for pod in lost}
    others = [pod for pod in handle.members(group.key) if pod.uid not in gone and not pod.terminating]
    own = {pod.uid: pod.node_name for pod in others}
    made = [*waiting, *(pod.anew() for pod in lost if pod.uid not in replaced)]
    with handle.state.transaction() as tx:
        for pod in lost:
            if pod.row >= 0:
                tx.unplace(pod)
        found = places.find(made, tx)
        if found is not None:
            if policy is RecoveryPolicy.RESTART:
                found.places += [(pod.anew(), own[pod.uid]) for pod in others]
                return RecoveryPlan(lost, others, found.places, is_move=False, lent=found.lent)
            return RecoveryPlan(lost, (), found.places, is_move=False, lent=found.lent)
        if policy is RecoveryPolicy.REPLACE and Progress.of(group, len(others)).runs:
            return RecoveryPlan(lost, (), (), is_move=False) if lost else None
        for pod in others:
            tx.unplace(pod)
        found = places.find([*made, *(pod.anew() for pod in others)], tx)
    return None if found is None else RecoveryPlan(lost, others, found.places, is_move=True, lent=found.lent)


@dataclass(slots=True, eq=False)
class FoundPlaces:
    """Nodes for pods, and who has to leave these nodes."""

    places: list[tuple[PodInfo, str]]
    lent: list[PodInfo]


class Places:
    """Finds nodes for pods on the columns as they are, if need be on spares that are lent to others."""

    def __init__(self, handle: Handle, allowed: BoolColumn, lent: Callable[[], Sequence[PodInfo]]) -> None:
        """`allowed` has one truth value per row; `lent` gives the pods on spares."""
        self._handle = handle
        self._allowed = allowed
        self._lent = lent

    def find(self, pods: Sequence[PodInfo], transaction: Transaction) -> FoundPlaces | None:
        """A node for each of the pods; None if not all of them find one. The transaction is left unchanged."""
        found = self._find(pods)
        if found is not None:
            return FoundPlaces(self._named(pods, found), [])
        leaving = [pod for pod in self._lent() if pod.row >= 0]
        if not leaving:
            return None
        before, rows = transaction.mark(), {pod.uid: pod.row for pod in leaving}
        for pod in leaving:
            transaction.unplace(pod)
        found = self._find(pods)
        transaction.undo_to(before)
        if found is None:
            return None
        taken = set(found.values())
        return FoundPlaces(self._named(pods, found), [pod for pod in leaving if rows[pod.uid] in taken])

    def _find(self, pods: Sequence[PodInfo]) -> Mapping[str, int] | None:
        found: Mapping[str, int] | None = self._handle.find_places(pods, self._allowed) if pods else {}
        return None if found is None or len(found) < len(pods) else found

    def _named(self, pods: Sequence[PodInfo], found: Mapping[str, int]) -> list[tuple[PodInfo, str]]:
        names = self._handle.nodes.names
        return [(pod, names[found[pod.uid]]) for pod in pods]
