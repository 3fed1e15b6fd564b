"""Starts, in the background, that claims of pods without a node give their devices back, or are deleted."""

from __future__ import annotations

from functools import partial

from gangline import GroupAttempt, Handle, NodeView, PodInfo, model, node_selection
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
        """Whether the devices of a claim keep the pod from some nodes, and nobody else uses them."""
        allocation = claim.status.allocation
        if allocation is None or self._is_used(pod, claim):
            return False
        if self.is_lost(claim):
            return True
        selector = allocation.node_selector
        return selector is not None and not node_selection.match_selector(selector, nodes)[nodes.alive].all()

    def _is_used(self, pod: PodInfo, claim: model.ResourceClaim) -> bool:
        """Whether pods besides this one use a claim."""
        mine = self._ledger.references.reserved_as(pod, claim)
        return bool(self._ledger.consumers(claim.metadata.uid) - {pod.uid, mine})

    def give_back(self, pod: PodInfo, claim: model.ResourceClaim, waiting: frozenset[str] = frozenset()) -> None:
        """Take the devices from a claim of a pod, with the reservations of the pod and of the pods `waiting`."""
        self._ledger.leaving(claim.metadata.uid, True)
        reserved = {each.uid for each in claim.status.reserved_for} & waiting
        uids = reserved | {self._ledger.references.reserved_as(pod, claim)}
        self._handle.spawn(partial(self._binding.deallocate, claim, sorted(uids)))

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
            for claim in left_for_pod(self._ledger, pod, waiting, self.is_lost):
                self.give_back(pod, claim, waiting)
                is_stuck = True
        return GIVEN_BACK if is_stuck else ""

    def drop(self, pod: PodInfo, left: Claims) -> None:
        """Delete the claims for extended resources that an earlier attempt has left behind."""
        leaving = self._ledger.extended.leaving
        if pod.uid not in leaving:
            leaving.add(pod.uid)
            self._handle.spawn(partial(self._binding.drop, pod, left))
