"""How often nodes failed lately: each failure counts 1 point, and half as much after each half-life.

The points of a node do not fade while something is wrong with the node. So a node that was cordoned or lost for a day
is avoided when it is back. A deleted node keeps its points, which fade meanwhile, for a node that returns by this name.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gangline import NodeView, Rows, ScoreColumn

CORDONED = "cordoned"
LOST = "lost"
ILL = "devices"
"""Something that is wrong with a node for a while: it is cordoned, it is lost, or devices of it are ill."""
_LEAST = 0.02
"""Points that are too few to matter."""
_MOST = 16_384
"""Nodes with points, those that are gone included."""
_Floats = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class _FailurePoints:
    points: float = 0.0
    since: float = 0.0
    """When the node had so many points, on the monotonic clock."""
    wrong: set[str] = field(default_factory=set)
    """What is wrong with the node now."""


class NodeWear:
    """Counts the failures of nodes."""

    def __init__(self, half_life: float) -> None:
        """`half_life` is in seconds; 0 counts nothing."""
        self._half_life = half_life
        self._nodes: dict[str, _FailurePoints] = {}
        self._next_look = 64
        """When so many nodes are remembered, nodes whose points have faded are dropped."""
        self._columns: tuple[_Floats, _Floats] | None = None
        """For each node in `_nodes`, in order: its points, and since when; infinite while they do not fade."""
        self._rows: tuple[Rows, Rows] | None = None
        """The places in `_nodes` of nodes that exist, and the row of each."""

    def __len__(self) -> int:
        """How many nodes are remembered."""
        return len(self._nodes)

    def failed(self, node: str, now: float) -> None:
        """A node was lost or cordoned, or devices of it became ill."""
        if not self._half_life:
            return
        if node not in self._nodes:
            self._make_room(now)
            self._rows = None
        found = self._nodes.setdefault(node, _FailurePoints())
        found.points, found.since = self._left(found, now) + 1.0, now
        self._columns = None

    def has(self, node: str, what: str) -> bool:
        """Whether this is wrong with the node now."""
        found = self._nodes.get(node)
        return found is not None and what in found.wrong

    def hold(self, node: str, what: str, is_wrong: bool, now: float) -> None:
        """Something is wrong with a node from now on, or no more: meanwhile its points do not fade."""
        found = self._nodes.get(node)
        if found is None or (what in found.wrong) == is_wrong:
            return
        found.points, found.since = self._left(found, now), now
        found.wrong ^= {what}
        self._columns = None

    def removed(self, node: str, now: float) -> None:
        """A node was deleted: a failure, unless the node has failed already."""
        found = self._nodes.get(node)
        if found is None or LOST not in found.wrong:
            self.failed(node, now)
        for what in (CORDONED, LOST, ILL):
            self.hold(node, what, False, now)
        self.rows_changed()

    def rows_changed(self) -> None:
        """A node was added or deleted."""
        self._rows = None

    def any(self, now: float) -> bool:
        """Whether a node has points that matter."""
        return bool(self._nodes) and bool((self._faded(now) >= _LEAST).any())

    def scores(self, nodes: NodeView, now: float) -> ScoreColumn:
        """100 for nodes without points, 50 for 1 point, 33 for 2 points and so on."""
        if self._rows is None:
            rows = [(place, nodes.row_of(name)) for place, name in enumerate(self._nodes)]  # the few that have failed
            there = [(place, row) for place, row in rows if row is not None]
            self._rows = np.array([p for p, _ in there], dtype=np.intp), np.array([r for _, r in there], dtype=np.intp)
        places, of_nodes = self._rows
        points = np.zeros(len(nodes.whole))
        points[of_nodes] = self._faded(now)[places]
        scores: ScoreColumn = 100.0 / (1.0 + points[nodes.index])
        return scores

    def _faded(self, now: float) -> _Floats:
        """The present points of each node in `_nodes`, in order."""
        if self._columns is None:
            found = self._nodes.values()
            points = np.array([each.points for each in found], dtype=np.float64)
            since = np.array([np.inf if each.wrong else each.since for each in found], dtype=np.float64)
            self._columns = points, since
        points, since = self._columns
        faded: _Floats = points * 0.5 ** (np.maximum(0.0, now - since) / self._half_life)
        return faded

    def _left(self, found: _FailurePoints, now: float) -> float:
        return found.points if found.wrong else found.points * 0.5 ** ((now - found.since) / self._half_life)

    def _make_room(self, now: float) -> None:
        """Drop nodes with too few points to matter, and beyond the bound those that failed first."""
        if len(self._nodes) < self._next_look:
            return
        self._nodes = {
            name: each for name, each in self._nodes.items() if each.wrong or self._left(each, now) >= _LEAST
        }
        if len(self._nodes) > _MOST // 2:
            for name in list(self._nodes)[: len(self._nodes) - _MOST // 2]:
                del self._nodes[name]
        self._next_look = min(_MOST, 2 * len(self._nodes) + 64)
        self._columns = self._rows = None
