"""Finds new places for a group that has lost members, in a transaction that is undone.

First the lost members alone are placed beside the others, which stay: on the level that the group requires of all of
them, or as close as its preferences and the room allow. If that fails and the others are too few without them, all
members are placed anew: the group moves as a whole, to a domain that holds it. So does a group that restarts and of
whose members one would not get its node again, for example because it is cordoned. Each search is made without the pods
on lent spares if it fails with them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gangline import BoolColumn, Handle, PodGroup, PodInfo, Progress, Transaction
from gangline_plugins.preemption.precedence import importance
from gangline_plugins.recovery.policies import RecoveryPolicy

_MOST_SPARED = 32
"""For at most this many pods on lent spares, the plan tries whether they may stay."""


@dataclass(frozen=True, slots=True, eq=False)
class RecoveryPlan:
    """What is to be done for one group."""

    lost: Sequence[PodInfo]
    """Members on lost nodes."""
    evicted: Sequence[PodInfo]
    """Other members, which start anew."""
    places: Sequence[tuple[PodInfo, str]]
    """Records of the pods to come, with the nodes on which room is kept for them; "" for no node."""
    is_move: bool
    """Whether the other members get new nodes too."""
    lent: Sequence[PodInfo] = ()
    """Pods on spares, which leave them to the group."""

    def without_room(self) -> RecoveryPlan:
        """The plan without room that is kept: other pods have the room now, and have to be preempted first."""
        return replace(self, places=[(pod, "") for pod, _ in self.places], lent=())

    def of_the_lost(self) -> RecoveryPlan:
        """The same without the other members: they run on."""
        others = {pod.uid for pod in self.evicted}
        places = [(pod, node) for pod, node in self.places if pod.origin not in others]
        return replace(self, evicted=(), places=places)


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
    others = [pod for pod in handle.members(group.key) if pod.uid not in gone]
    own = {pod.uid: pod.node_name for pod in others}
    made = [*waiting, *(pod.anew() for pod in lost if pod.uid not in replaced)]
    with handle.state.transaction() as tx:
        for pod in lost:
            if pod.row >= 0:
                tx.unplace(pod)
        found = places.find(made, tx)
        if policy is RecoveryPolicy.REPLACE:
            if found is not None:
                return RecoveryPlan(lost, (), found.places, is_move=False, lent=found.lent)
            if Progress.of(group, len(others)).runs:
                return RecoveryPlan(lost, (), (), is_move=False) if lost else None
        rows = {pod.uid: pod.row for pod in others}
        for pod in others:
            tx.unplace(pod)
        if found is not None and all(handle.filter(pod.anew(), np.array([rows[pod.uid]])).all() for pod in others):
            found.places += [(pod.anew(), own[pod.uid]) for pod in others]
            return RecoveryPlan(lost, others, found.places, is_move=False, lent=found.lent)
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
        found = self._find(pods, self._allowed)
        if found is not None:
            return FoundPlaces(self._named(pods, found), [])
        leaving = [pod for pod in self._lent() if pod.row >= 0]
        if not leaving:
            return None
        before, rows = transaction.mark(), {pod.uid: pod.row for pod in leaving}
        for pod in leaving:
            transaction.unplace(pod)
        found = self._find(pods, self._allowed)
        if found is not None:
            taken = set(found.values())
            leaving = [pod for pod in leaving if rows[pod.uid] in taken]
            found, leaving = self._sparing(pods, found, leaving, rows, transaction)
        transaction.undo_to(before)
        return None if found is None else FoundPlaces(self._named(pods, found), leaving)

    def _sparing(
        self,
        pods: Sequence[PodInfo],
        found: Mapping[str, int],
        leaving: Sequence[PodInfo],
        rows: Mapping[str, int],
        transaction: Transaction,
    ) -> tuple[Mapping[str, int], list[PodInfo]]:
        """Put back each lifted pod beside which the pods find room on the same nodes.

        Returns the rows of the pods, by UID, and the lifted pods that have to leave.
        """
        here = self._handle.nodes.full(False)
        here[list(set(found.values()))] = True
        gone: list[PodInfo] = []
        for number, pod in enumerate(sorted(leaving, key=importance)):
            again = None
            if number < _MOST_SPARED:
                transaction.place(pod, rows[pod.uid])
                again = self._find(pods, here)
                if again is None:
                    transaction.unplace(pod)
            found = found if again is None else again
            if again is None:
                gone.append(pod)
        return found, gone

    def _find(self, pods: Sequence[PodInfo], allowed: BoolColumn) -> Mapping[str, int] | None:
        found: Mapping[str, int] | None = self._handle.find_places(pods, allowed) if pods else {}
        return None if found is None or len(found) < len(pods) else found

    def _named(self, pods: Sequence[PodInfo], found: Mapping[str, int]) -> list[tuple[PodInfo, str]]:
        names = self._handle.nodes.names
        return [(pod, names[found[pod.uid]]) for pod in pods]
