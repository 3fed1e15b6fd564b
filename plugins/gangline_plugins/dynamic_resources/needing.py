"""What a pod needs of a node, read from its claims and from the classes that serve its extended resources."""

from __future__ import annotations

from collections.abc import Callable

from gangline import Handle, PodInfo, model, resources
from gangline_plugins.dynamic_resources.binding import IN_USE, LEFT_BEHIND
from gangline_plugins.dynamic_resources.claims import (
    MOST_CONSUMERS,
    ClaimProblem,
    Claims,
    is_made_for,
    lacks_admin_access,
)
from gangline_plugins.dynamic_resources.extended import MOST_NAMES
from gangline_plugins.dynamic_resources.judging import Need
from gangline_plugins.dynamic_resources.ledger import Ledger


class Needs:
    """Works out what pods need of a node, by the present claims and classes."""

    def __init__(self, handle: Handle, ledger: Ledger) -> None:
        self._handle = handle
        self._ledger = ledger
        self._namespaces = handle.state.store(resources.NAMESPACES)

    def of(self, pod: PodInfo) -> Need | str:
        """What the pod needs, or why it cannot be placed anywhere now."""
        is_single = self._handle.group_of(pod) is None  # the priority of a group may differ from its pods'
        need = Need([], [], priority=pod.priority if is_single else None)
        try:
            for claim in self._ledger.claims.of(pod):
                if why := self._read(pod, claim, is_single, need):
                    return why
        except ClaimProblem as problem:
            return str(problem)
        extended = self._ledger.extended
        if served := extended.served.of(pod.cls):
            if len(served) > MOST_NAMES:
                return f"the pod requests {len(served)} resources that devices serve, and at most {MOST_NAMES} are read"
            need.pod, need.left = pod, extended.there(pod)
            if pod.uid in extended.leaving and not need.left:
                return LEFT_BEHIND
        return need

    def _read(self, pod: PodInfo, claim: model.ResourceClaim, is_single: bool, need: Need) -> str:
        """Add a claim to the need of a pod; returns why the pod cannot use the claim, or "". Raises ClaimProblem."""
        newest = self._ledger.newest(claim)
        uid = claim.metadata.uid
        if lacks_admin_access(newest, self._namespaces.get(claim.metadata.namespace)):
            name = f"{claim.metadata.namespace}/{claim.metadata.name}"
            return f"claim {name} asks for admin access, and its namespace does not allow it"
        if self._ledger.is_leaving(uid) or is_full(self._ledger, pod, newest):
            return IN_USE
        if (is_single or is_made_for(pod, newest)) and not self._ledger.has_devices(uid):
            need.own.append(newest)
        else:
            need.named.append(newest)
        return ""


def is_full(ledger: Ledger, pod: PodInfo, claim: model.ResourceClaim) -> bool:
    """Whether a claim has so many consumers that it cannot be reserved for the pod. Raises ClaimProblem."""
    references = ledger.references
    consumer = references.of(pod, claim).uid if references.group_of(pod) else pod.uid
    if consumer != pod.uid:
        return len({each.uid for each in claim.status.reserved_for} - {consumer}) >= MOST_CONSUMERS
    if ledger.has_few_consumers(claim.metadata.uid, MOST_CONSUMERS):
        return False
    consumers = ledger.consumers(claim.metadata.uid)
    return len(consumers) - (pod.uid in consumers) >= MOST_CONSUMERS


def left_for_pod(ledger: Ledger, pod: PodInfo, is_lost: Callable[[model.ResourceClaim], bool]) -> Claims:
    """The claims of a pod without a node whose devices may keep the pod from its nodes: the devices are on certain
    nodes only, or will not become ready (`is_lost`).
    """
    return [
        claim
        for claim in _allocated(ledger, pod)
        if claim.status.allocation is not None and (claim.status.allocation.node_selector is not None or is_lost(claim))
    ]


def left_for_group(ledger: Ledger, pod: PodInfo) -> Claims:
    """The claims of a pod without a node that have devices for its PodGroup, and that no pod with a node uses."""
    found = []
    for claim in _allocated(ledger, pod):
        mine = ledger.references.reserved_as(pod, claim)
        if mine not in ("", pod.uid) and not ledger.consumers(claim.metadata.uid) - {mine}:
            found.append(claim)
    return found


def _allocated(ledger: Ledger, pod: PodInfo) -> Claims:
    """The claims of a pod without a node that have devices and are not giving them back."""
    if pod.row >= 0:
        return []
    try:
        claims = [ledger.newest(each) for each in ledger.claims.of(pod)]
    except ClaimProblem:
        return []
    return [each for each in claims if each.status.allocation is not None and not ledger.is_leaving(each.metadata.uid)]
