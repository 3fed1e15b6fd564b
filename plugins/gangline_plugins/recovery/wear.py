"""How often nodes were lost lately: each loss counts 1 point, and half as much after each half-life."""

from __future__ import annotations

import numpy as np

from gangline import NodeView, ScoreColumn

_LEAST = 0.02
"""Points that are too few to matter."""


class NodeWear:
    """Counts the losses of nodes."""

    def __init__(self, half_life: float) -> None:
        """`half_life` is in seconds; 0 counts nothing."""
        self._half_life = half_life
        self._points: dict[str, tuple[float, float]] = {}
        """By name of a node: the points, and when they were so many, on the monotonic clock."""

    def failed(self, node: str, now: float) -> None:
        """A node was lost, or a device of it."""
        if self._half_life:
            self._points[node] = self._now(node, now) + 1.0, now
            self._points = {name: each for name, each in self._points.items() if self._now(name, now) >= _LEAST}

    def _now(self, node: str, now: float) -> float:
        points, then = self._points.get(node, (0.0, now))
        return points * 0.5 ** ((now - then) / self._half_life)

    @property
    def any(self) -> bool:
        """Whether a node has points."""
        return bool(self._points)

    def scores(self, nodes: NodeView, now: float) -> ScoreColumn:
        """100 for nodes without points, 50 for 1 point, 33 for 2 points and so on."""
        scores: ScoreColumn = np.full(len(nodes), 100.0)
        for name in self._points:  # the few that have failed
            row = nodes.row_of(name)
            if row is not None:
                scores[nodes.rows == row] = 100.0 / (1.0 + self._now(name, now))
        return scores
