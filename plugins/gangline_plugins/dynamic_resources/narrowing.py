"""The nodes that devices of shared claims have to reach while a gang is tried on these nodes: see `sharing`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gangline import PodInfo, Rows
from gangline_plugins.dynamic_resources.claims import Claims


class Narrowings:
    """The nodes all of which have to reach the devices of claims, for the members of gangs alone."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[frozenset[str], Rows]] = {}
        """By UID of the claim: the UIDs of the members, and the nodes."""

    @contextmanager
    def to(self, claims: Claims, members: frozenset[str], rows: Rows) -> Iterator[None]:
        """In this block, claims without devices get for these members only devices that all of these nodes may use."""
        before = {claim.metadata.uid: self._rows.get(claim.metadata.uid) for claim in claims}
        self._rows |= dict.fromkeys(before, (members, rows))
        try:
            yield
        finally:
            for uid, old in before.items():
                if old is None:
                    self._rows.pop(uid, None)
                else:
                    self._rows[uid] = old

    def of(self, pod: PodInfo, claims: Claims) -> Mapping[int, Rows] | None:
        """By number of the claim: the nodes that have to reach its devices; None if no claim has such nodes."""
        if not self._rows:
            return None
        known = [(number, self._rows.get(claim.metadata.uid)) for number, claim in enumerate(claims)]
        return {number: each[1] for number, each in known if each is not None and pod.uid in each[0]} or None
