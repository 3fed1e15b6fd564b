"""The nodes that devices of shared claims have to reach while a gang is tried on these nodes: see `sharing`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec

from gangline import PodInfo, Rows
from gangline_plugins.dynamic_resources.claims import Claims


class _Narrowing(msgspec.Struct, frozen=True, eq=False):
    """The UIDs of claims, those of the members for whom the claims are narrowed, and the nodes."""

    claims: frozenset[str]
    members: frozenset[str]
    rows: Rows


class Narrowings:
    """The nodes all of which have to reach the devices of claims, for the members of gangs alone.

    A search that takes long stands aside with its block open, so the blocks of two gangs may end in any order.
    """

    def __init__(self) -> None:
        self._open: list[_Narrowing] = []

    @contextmanager
    def to(self, claims: Claims, members: frozenset[str], rows: Rows) -> Iterator[None]:
        """In this block, claims without devices get for these members only devices that all of these nodes may use."""
        narrowing = _Narrowing(frozenset(claim.metadata.uid for claim in claims), members, rows)
        self._open.append(narrowing)
        try:
            yield
        finally:
            self._open.remove(narrowing)

    @property
    def are_some(self) -> bool:
        """Whether a block is open."""
        return bool(self._open)

    def of(self, pod: PodInfo, claims: Claims) -> Mapping[int, Rows] | None:
        """By number of the claim: the nodes that have to reach its devices; None if no claim has such nodes.

        Of several blocks for one claim and member the last one counts.
        """
        mine = [each for each in self._open if pod.uid in each.members]
        numbered = list(enumerate(claims))
        return {n: each.rows for each in mine for n, claim in numbered if claim.metadata.uid in each.claims} or None
