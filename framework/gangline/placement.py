"""A set of nodes on which a whole pod group could be placed."""

from __future__ import annotations

from dataclasses import dataclass

from gangline.nodes import Rows


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A candidate domain: its name ("rack r7") and the rows of its nodes."""

    name: str
    rows: Rows
