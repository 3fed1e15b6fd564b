"""Which rows of the cluster have changed, and in what: the log by which others evaluate only those again."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NODE = 1
"""A change of the node itself: labels, taints, allocatable, conditions."""
PODS = 2
"""A change of the pods on it."""


class Changes:
    """Which rows changed, in order; positions only grow."""

    def __init__(self, keep: int = 16384) -> None:
        self._keep = keep
        self._log: list[int] = []
        self._base = 0
        self._after = {NODE: 0, PODS: 0}
        """Where the log stood after the last change of each kind."""

    @property
    def position(self) -> int:
        """Where the next change will stand."""
        return self._base + len(self._log)

    def note(self, row: int, kind: int) -> None:
        """Row changed."""
        log = self._log
        log.append(row)
        self._after[kind] = self._base + len(log)
        if len(log) > 2 * self._keep:
            del log[: self._keep]
            self._base += self._keep

    def since(self, position: int, limit: int) -> tuple[NDArray[np.intp], int] | None:
        """Rows changed since position, each once, and the kinds of all changes ORed; None for more than limit rows."""
        start = position - self._base
        if start < 0 or len(self._log) - start > 4 * limit:
            return None
        rows = dict.fromkeys(self._log[start:])
        if len(rows) > limit:
            return None
        return np.fromiter(rows, dtype=np.intp, count=len(rows)), self.kinds_since(position)

    def kinds_since(self, position: int) -> int:
        """The kinds of all changes since position, ORed."""
        kinds = 0
        for kind, after in self._after.items():
            if after > position:
                kinds |= kind
        return kinds
