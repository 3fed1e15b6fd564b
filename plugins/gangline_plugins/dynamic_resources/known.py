"""What is known of each claim: the questions that need nothing but the ledger's entry for the claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from gangline import model
from gangline_plugins.dynamic_resources.claims import Claims
from gangline_plugins.dynamic_resources.entries import Allocation, ClaimEntry


class KnownClaims:
    """The entries for all claims, by UID."""

    def __init__(self) -> None:
        self._entries: defaultdict[str, ClaimEntry] = defaultdict(ClaimEntry)

    def newest(self, claim: model.ResourceClaim) -> model.ResourceClaim:
        """The newest known state of a claim."""
        entry = self._entries.get(claim.metadata.uid)
        return claim if entry is None or entry.claim is None else entry.claim

    def shown(self, uid: str) -> model.ResourceClaim | None:
        """The newest known state of the claim with this UID; None if the watch has not shown it, or it is gone."""
        return self._entries[uid].claim if uid in self._entries else None

    def allocation(self, uid: str) -> Allocation | None:
        """The devices of the claim with this UID; None if it has none."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.allocation

    def has_devices(self, uid: str) -> bool:
        """Whether a claim has devices."""
        return self.allocation(uid) is not None

    def turn(self, uid: str) -> int:
        """A number that is new each time a claim gets devices, and never occurs twice; 0 without devices."""
        entry = self._entries.get(uid)
        return 0 if entry is None or entry.allocation is None else entry.turn

    def consumers(self, uid: str) -> set[str]:
        """The UIDs of the pods that use a claim: it is reserved for them, or they are placed with it."""
        entry = self._entries.get(uid)
        return set() if entry is None else entry.consumers.union(entry.reserved)

    def has_few_consumers(self, uid: str, most: int) -> bool:
        """Whether a claim certainly has fewer than `most` consumers; quicker than to count them."""
        entry = self._entries.get(uid)
        return entry is None or len(entry.consumers) + len(entry.reserved) < most

    def have_other_devices(self, uids: Iterable[str]) -> bool:
        """Whether one of these claims counts as free and has got other devices by a guess."""
        entries = [self._entries[uid] for uid in uids if uid in self._entries]
        return any([entry.is_free and entry.guess is not None for entry in entries])

    def is_leaving(self, uid: str) -> bool:
        """Whether this process is taking back what it wrote to the claim."""
        entry = self._entries.get(uid)
        return entry is not None and entry.is_leaving

    def chosen(self, claims: Claims) -> dict[str, Allocation] | None:
        """The devices of claims, by the UID of each; None if one of them has no devices."""
        found = {claim.metadata.uid: self.allocation(claim.metadata.uid) for claim in claims}
        chosen = {uid: allocation for uid, allocation in found.items() if allocation is not None}
        return chosen if len(chosen) == len(found) else None
