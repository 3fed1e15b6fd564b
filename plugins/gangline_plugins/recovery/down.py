"""Domains that an administrator has marked as down: their nodes are lost, all at once, and no pods come to them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from gangline import BoolColumn, Handle
from gangline_plugins.recovery.arguments import DownArgs

log = logging.getLogger(__name__)


class DownDomains:
    """Knows the nodes in these domains."""

    def __init__(self, handle: Handle, args: Sequence[DownArgs]) -> None:
        self._handle = handle
        self._args = args
        self._unknown: set[DownArgs] = set()
        """The domains of which it was said that there are no such domains."""

    @property
    def any(self) -> bool:
        """Whether a domain is marked as down."""
        return bool(self._args)

    def rows(self) -> BoolColumn:
        """The nodes in these domains, for all rows."""
        found: BoolColumn = self._handle.nodes.full(False)
        for each in self._args:
            found |= self._rows_of(each)
        return found

    def nodes(self) -> Mapping[str, str]:
        """The names of the nodes in these domains, and why each is lost."""
        nodes = self._handle.nodes
        found: dict[str, str] = {}
        for each in self._args:
            for row in np.flatnonzero(self._rows_of(each) & nodes.alive).tolist():  # those that are down
                name = nodes.name_of(row)
                found.setdefault(name, f"{each.level} {each.name} of node {name} is marked as down")
        return found

    def _rows_of(self, each: DownArgs) -> BoolColumn:
        level = self._handle.topology.find(each.level)
        rows: BoolColumn = self._handle.nodes.full(False)
        if level is not None:
            named = [n for n in range(len(level)) if each.name in (level.values[n], level.path(n))]
            rows = np.isin(level.ids, named)
        if not rows.any() and each not in self._unknown and self._handle.nodes.alive.any():
            self._unknown.add(each)
            log.warning("Recovery: no node is in the %s %s, which is marked as down", each.level, each.name)
        return rows
