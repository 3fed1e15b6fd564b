"""A set of nodes on which a whole pod group could be placed."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.nodes import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A candidate: its name ("rack r7") and the rows of its nodes.

    All placements of one `tier` are tried before those of the next; within a tier the best score goes first.
    """

    name: str
    rows: Rows
    tier: int = 0
