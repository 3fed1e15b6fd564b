"""The devices that ResourceClaims ask for, as one more resource of the arithmetic.

The arithmetic counts devices that the members' own claims may be given, taken or free. It does not count where that
could be too few: devices of several nodes, and devices that several claims share. Everything else that a claim may ask
for is left to the filters, as are claims that several pods use and extended resources that devices serve.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from gangline import DeadlineExceeded, Handle, InvalidObject, PodInfo
from gangline.dra.asked import Asked
from gangline.dra.supply import Supply
from gangline_plugins.dynamic_resources.claims import uses_claims
from gangline_plugins.dynamic_resources.ledger import Ledger, ledger
from gangline_plugins.extended_resources import ExtendedResources


class ClaimedDevices:
    """The devices of all nodes for certain claims at one moment."""

    def __init__(self, ledger: Ledger, supply: Supply, asked: Collection[Asked], removable: Iterable[PodInfo]) -> None:
        """`removable` may end; the devices of a claim come free when all of its users do."""
        self.free: NDArray[np.int64] = supply.free
        self._ledger = ledger
        self._supply = supply
        self._kinds = frozenset(asked)
        self._removable = {pod.uid for pod in removable if uses_claims(pod.cls)}

    def held(self, pod: PodInfo) -> int:
        """The devices that come free when the pod and all others that use its claims go."""
        if not uses_claims(pod.cls):
            return 0
        given = (self._ledger.allocation(uid) for uid in self._ledger.uses(pod) if self._may_end(uid))
        return sum(self._supply.held(each, pod.row) for each in given if each is not None)

    def _may_end(self, uid: str) -> bool:
        return self._ledger.consumers(uid) <= self._removable

    def asked(self, pod: PodInfo) -> int:
        """The least number of devices that the pod's own claims ask for."""
        kind = _asked(self._ledger, pod)
        return self._ledger.devices.least(kind) if kind in self._kinds and kind is not None else 0


def claimed_devices(
    handle: Handle, members: Iterable[PodInfo], removable: Sequence[PodInfo], size: int
) -> ClaimedDevices | None:
    """The devices of all nodes; None if none of these pods has claims of its own, or counting could be too low.

    Or if it takes too long to find out which devices the claims mean.
    """
    claiming = [pod for pod in members if uses_claims(pod.cls)]
    if not claiming:
        return None
    found = ledger(handle)
    kinds = {kind: None for pod in claiming if (kind := _asked(found, pod)) is not None}
    try:
        supply = found.devices.supply(list(kinds), size) if kinds else None
    except DeadlineExceeded:
        return None
    return ClaimedDevices(found, supply, kinds, removable) if supply is not None else None


def served_by_devices(handle: Handle, members: Iterable[PodInfo]) -> set[str]:
    """The extended resources of these pods that classes of devices serve on nodes without a device plugin for them."""
    served = handle.state.shared(ExtendedResources, handle.state)
    return {name for pod in members for name in served.of(pod.cls)}


def _asked(ledger: Ledger, pod: PodInfo) -> Asked | None:
    """What the claims that were made for the pod ask for; None if there are none, or they cannot be used."""
    own = ledger.own(pod) if uses_claims(pod.cls) else []
    try:
        return ledger.devices.asked(own) if own else None
    except InvalidObject:
        return None
