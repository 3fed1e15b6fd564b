"""Starts, in the background, that claims of pods without a node give their devices back, or are deleted."""

from __future__ import annotations

from functools import partial

import numpy as np

from gangline import BoolColumn, GroupAttempt, Handle, NodeView, PodInfo, model, node_selection
from gangline_plugins.dynamic_resources.binding import ClaimBinding
from gangline_plugins.dynamic_resources.claims import Claims, uses_claims
from gangline_plugins.dynamic_resources.ledger import Ledger
from gangline_plugins.dynamic_resources.needing import left_for_group, left_for_pod
from gangline_plugins.dynamic_resources.readiness import Readiness

DROPPED = "deletion of ResourceClaim completed"
GIVEN_BACK = "deallocation of ResourceClaim completed"


class GivingBack:
    """Decides which devices are in the way of a pod, and has them given back."""

    def __init__(self, handle: Handle, ledger: Ledger, binding: ClaimBinding, readiness: Readiness) -> None:
        self._handle = handle
        self._ledger = ledger
        self._binding = binding
        self._readiness = readiness

    def is_lost(self, claim: model.ResourceClaim) -> bool:
        """Whether a claim has devices that will not become ready."""
        return bool(self._readiness.problem(self._ledger.newest(claim)))

    def is_in_the_way(self, pod: PodInfo, claim: model.ResourceClaim, nodes: NodeView) -> bool:
        """Whether the devices of a claim keep the pod from some nodes, and nobody else needs them."""
        mine = frozenset((pod.uid, self._ledger.references.reserved_as(pod, claim)))
        if claim.status.allocation is None or not self._is_free(claim, mine, nodes):
            return False
        return self.is_lost(claim) or not _reached(claim, nodes)[nodes.alive].all()

    def _is_free(self, claim: model.ResourceClaim, mine: frozenset[str], nodes: NodeView) -> bool:
        """Whether nobody needs the devices of a claim but these consumers, by UID.

        A scheduler that died may have left reservations of pods that are not bound (`strays`). They keep no devices
        that are of no use to any pod: devices that will not become ready, or whose nodes are gone.
        """
        others = self._ledger.consumers(claim.metadata.uid) - mine
        if not others or others - self.strays(claim):
            return not others
        return self.is_lost(claim) or not _reached(claim, nodes)[nodes.alive].any()

    def strays(self, claim: model.ResourceClaim) -> frozenset[str]:
        """The UIDs of the pods for which a claim is reserved, and which have no node as far as is known.

        A pod on a node that is gone has a node: somebody has to delete the pod first.
        """
        placed = self._handle.state.pods
        pods = [each for each in claim.status.reserved_for if each.resource == "pods" and not each.api_group]
        return frozenset([each.uid for each in pods if each.uid not in placed])

    def give_back(self, pod: PodInfo, claim: model.ResourceClaim, waiting: frozenset[str] = frozenset()) -> None:
        """Take the devices from a claim of a pod, with the reservations of the pod, of the pods `waiting`, and of all
        `strays`, unless the API server knows of a node of one of these.
        """
        self._ledger.leaving(claim.metadata.uid, True)
        strays = self.strays(claim)
        reserved = {each.uid for each in claim.status.reserved_for} & (waiting | strays)
        uids = reserved | {self._ledger.references.reserved_as(pod, claim)}
        self._handle.spawn(partial(self._binding.deallocate, claim, sorted(uids), strays))

    def for_gang(self, attempt: GroupAttempt) -> str:
        """Give back what earlier attempts have left to members without a node; says what was done, or ""."""
        found = [(pod, left) for pod in attempt.pods if (left := self._ledger.extended.there(pod)) and pod.row < 0]
        for pod, left in found:
            self.drop(pod, left)
        if found:
            return DROPPED
        claiming = [pod for pod in attempt.pods if uses_claims(pod.cls)]
        for pod in claiming if self._ledger.references.has_groups else ():
            for claim in left_for_group(self._ledger, pod):
                self.give_back(pod, claim)
                return GIVEN_BACK
        is_stuck, waiting = False, frozenset(pod.uid for pod in attempt.pods if pod.row < 0)
        for pod in claiming:
            for claim in left_for_pod(self._ledger, pod, self.is_lost):
                if self._is_free(claim, waiting, self._handle.nodes):
                    self.give_back(pod, claim, waiting)
                    is_stuck = True
        return GIVEN_BACK if is_stuck else ""

    def drop(self, pod: PodInfo, left: Claims) -> None:
        """Delete the claims for extended resources that an earlier attempt has left behind."""
        leaving = self._ledger.extended.leaving
        if pod.uid not in leaving:
            leaving.add(pod.uid)
            self._handle.spawn(partial(self._binding.drop, pod, left))


def _reached(claim: model.ResourceClaim, nodes: NodeView) -> BoolColumn:
    """The nodes on which the devices of a claim can be used."""
    allocation = claim.status.allocation
    if allocation is None or allocation.node_selector is None:
        return np.ones(len(nodes), dtype=np.bool_)
    return node_selection.match_selector(allocation.node_selector, nodes)
