"""Keeps the cuts of nodes for one question until the slices of a node change, within a bound of bytes."""

from __future__ import annotations

from gangline.dra.candidates import Candidates
from gangline.dra.cutting import Cut, Cutter
from gangline.dra.links import Outline
from gangline.dra.losses import Losses
from gangline.dra.solving import ProblemShape, Solver

_MOST_CUT_BYTES = 16 << 20
"""Bytes of the cuts of one question, at most."""
_CUT_BYTES = 1500
"""Bytes of a cut without its positions, about."""
_POSITION_BYTES = 150
_FEW = 4096
"""If at most this many nodes have changed, only their cuts are forgotten, else all cuts."""


class KeptCuts:
    """By row of a node: its cut, and its outline for the order `best`; see `losses`."""

    def __init__(self, candidates: Candidates, solver: Solver, losses: Losses) -> None:
        self._moved = candidates.table.moved
        self._position = self._moved.position
        self._losses = losses
        self._cutter = Cutter(candidates, solver)
        self._cuts: dict[int, Cut] = {}
        self._outlines: dict[int, Outline | None] = {}
        self.nbytes = 0
        """Bytes of everything that is kept, about."""

    def of(self, node: int) -> Cut:
        """The cut of a node. Raises Unallocatable."""
        self._follow()
        found = self._cuts.get(node)
        if found is None:
            if self.nbytes > _MOST_CUT_BYTES:
                self._forget()
            found = self._cuts[node] = self._cutter.cut(node)
            self.nbytes += _CUT_BYTES + _POSITION_BYTES * len(found.devices.rows)
        return found

    def shape_of(self, node: int) -> ProblemShape | None:
        """The shape of a node whose cut is kept; None if no cut was made, because the claims are unallocatable."""
        found = self._cuts.get(node)
        return None if found is None else found.shape

    def outline(self, node: int, found: Cut) -> Outline | None:
        """The outline of a node, given its cut."""
        if node not in self._outlines:
            self._outlines[node] = self._losses.outline(node, found.devices.numbers)
            self.nbytes += _POSITION_BYTES * len(found.devices.rows)
        return self._outlines[node]

    def _follow(self) -> None:
        """Forget the nodes that have changed since the last question."""
        moved = self._moved
        if self._position == moved.position:
            return
        changed = moved.since(self._position, _FEW)
        if changed is None:
            self._forget()
        else:
            for row in changed[0].tolist():
                self._cuts.pop(row, None)
                self._outlines.pop(row, None)
        self._position = moved.position

    def _forget(self) -> None:
        self._cuts.clear()
        self._cutter.forget()
        self._outlines.clear()
        self.nbytes = 0
