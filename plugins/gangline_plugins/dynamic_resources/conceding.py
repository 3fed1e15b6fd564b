"""Members of a gang that make do with the last alternatives of their claims, so that all of them have devices.

First each member gets the earliest alternative that its node has. Where the gang has no room like that, it is tried
once more, and each member gets the latest alternative. When all have a node, each member in turn gets the earliest
alternative that the others leave there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec

from gangline import PodInfo, model
from gangline_plugins.dynamic_resources.claims import Claims, is_made_for


class Concessions:
    """The pods that make do with the last alternatives of the claims that were made for them."""

    def __init__(self) -> None:
        self._uids: set[str] = set()

    @contextmanager
    def made_by(self, uids: Iterable[str]) -> Iterator[None]:
        """In this block these pods make do with the last alternatives."""
        added = set(uids) - self._uids
        self._uids |= added
        try:
            yield
        finally:
            self._uids -= added

    @property
    def are_some(self) -> bool:
        """Whether some pod makes do with the last alternatives."""
        return bool(self._uids)

    def are_made_by(self, pod: PodInfo) -> bool:
        """Whether the pod makes do with the last alternatives."""
        return pod.uid in self._uids

    def of(self, pod: PodInfo, claims: Claims) -> Claims:
        """The claims as the pod wants them now: with the alternatives in reverse order if it makes do with the last."""
        return [_reversed(pod, claim) for claim in claims] if pod.uid in self._uids else claims


def _reversed(pod: PodInfo, claim: model.ResourceClaim) -> model.ResourceClaim:
    if not is_made_for(pod, claim):  # pods besides this one may use the claim
        return claim
    replace = msgspec.structs.replace
    requests = [
        replace(request, first_available=request.first_available[::-1]) for request in claim.spec.devices.requests
    ]
    return replace(claim, spec=replace(claim.spec, devices=replace(claim.spec.devices, requests=requests)))
