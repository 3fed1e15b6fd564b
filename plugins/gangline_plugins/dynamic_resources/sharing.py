"""Nodes for a gang whose members share a claim: the claim's device decides which nodes the members can use together.

The first member that is placed fixes the devices of a shared claim, and their nodes are those of all others. So a gang
is tried on each set of nodes that may use a free device of the claim together. Meanwhile the claim gets only devices
that all nodes of the set may use, whatever else the node of the first member has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from gangline import BoolColumn, DeadlineExceeded, GroupAttempt, InvalidObject, NodeView, Placement, Rows, model
from gangline_plugins.dynamic_resources.claims import Claims, uses_claims
from gangline_plugins.dynamic_resources.ledger import Ledger
from gangline_plugins.dynamic_resources.needing import Needs
from gangline_plugins.dynamic_resources.orders import BEST, Order

_MOST_SETS = 64
"""At most this many sets of nodes are offered for one placement; the framework tries no more."""
_MOST_ALL = 1024
"""At most this many sets of nodes are compared."""


class SharedClaims:
    """Finds the sets of nodes for the gangs of one profile."""

    def __init__(self, ledger: Ledger, needs: Needs, order: Order) -> None:
        self._ledger = ledger
        self._needs = needs
        self._order = order

    def parts(self, attempt: GroupAttempt, placement: Placement, nodes: NodeView) -> Iterator[Rows] | None:
        """The sets of nodes of a placement that hold the gang; None if its members share no claim without devices.

        In the order `best`, sets with less room come first; in the order of kube-scheduler, sets whose device comes
        first. Sets without room for the whole gang come last.
        """
        claims = self._lacking(attempt)
        return self._tried(attempt, claims, placement.rows, nodes) if claims else None

    def _lacking(self, attempt: GroupAttempt) -> Claims:
        """The claims without devices that several members share."""
        users: Counter[str] = Counter()
        claims: dict[str, model.ResourceClaim] = {}
        for role in attempt.roles:
            if not uses_claims(role.pods[0].cls):
                continue
            need = self._needs.of(role.pods[0])
            for claim in [] if isinstance(need, str) else need.named:
                uid = claim.metadata.uid
                if not self._ledger.has_devices(uid):
                    claims[uid] = claim
                    users[uid] += len(role.pods)  # like members name the same claims
        return [claim for uid, claim in claims.items() if users[uid] > 1]

    def _tried(self, attempt: GroupAttempt, claims: Claims, rows: Rows, nodes: NodeView) -> Iterator[Rows]:
        members = frozenset(pod.uid for pod in attempt.pods)
        for mask in self._ranked(attempt, self._sets(attempt, claims, rows, nodes), rows):
            part = rows[mask]
            with self._ledger.narrowings.to(claims, members, part):
                yield part

    def _sets(self, attempt: GroupAttempt, claims: Claims, rows: Rows, nodes: NodeView) -> list[BoolColumn]:
        """For each set of nodes that may use devices of all claims: which of the rows are in it."""
        found, devices, room = [np.ones(len(rows), dtype=np.bool_)], self._ledger.devices, _room(attempt, rows)
        for claim in claims:
            try:
                sets, alone = devices.reached(devices.asked([claim]), nodes.at(rows))
            except (InvalidObject, DeadlineExceeded):
                return []
            single = np.flatnonzero(alone & (room >= attempt.fewest))  # the filters have found devices there
            if self._order == BEST:
                single = single[np.argsort(room[single], kind="stable")]
            of_one = [np.arange(len(rows)) == number for number in single[:_MOST_SETS].tolist()]
            found = _different(attempt, (before & mask for before in found for mask in (*sets, *of_one)))
        return found

    def _ranked(self, attempt: GroupAttempt, sets: list[BoolColumn], rows: Rows) -> list[BoolColumn]:
        room, wanted = _room(attempt, rows), len(attempt.pods)
        ranked = []
        for number, mask in enumerate(sets):
            attempt.deadline.check()
            if room[mask].sum() < attempt.fewest:
                continue
            held = sum(min(int(role.capacity[rows[mask]].sum()), len(role.pods)) for role in attempt.roles)
            if held >= attempt.fewest:
                tightness = int(room[mask].sum()) if self._order == BEST else 0
                ranked.append((held < wanted, tightness, number))
        return [sets[number] for _, _, number in sorted(ranked)[:_MOST_SETS]]


def _room(attempt: GroupAttempt, rows: Rows) -> Rows:
    """How many members, of any role, fit on each of these nodes at most."""
    found = np.zeros(len(rows), dtype=np.intp)
    for role in attempt.roles:
        found += np.minimum(role.capacity[rows], len(role.pods))
    return found


def _different(attempt: GroupAttempt, sets: Iterable[BoolColumn]) -> list[BoolColumn]:
    """Some sets of rows that are not empty, each once. Raises DeadlineExceeded."""
    found: dict[bytes, BoolColumn] = {}
    for mask in sets:
        attempt.deadline.check()
        if mask.any():
            found.setdefault(mask.tobytes(), mask)
        if len(found) >= _MOST_ALL:
            break
    return list(found.values())
