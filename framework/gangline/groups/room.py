"""Whether numbers alone rule out that all parts of a group have room, before any part is tried on the columns.

Each part needs a domain that holds its least number of members. A domain holds only as many parts as fit by the number
of members and by each resource. What the numbers rule out is certain; otherwise the parts have to be tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gangline.api.pod_group import ANYWHERE, Role
from gangline.state.node_view import Int64Column, Rows
from gangline.state.nodes import Nodes
from gangline.state.topology import Topology

Amounts = NDArray[np.float64]
_ROUNDING = 1e-9
"""The possible relative error of sums of large amounts; in doubt there is room."""


@dataclass(slots=True, eq=False)
class Part:
    """Members that have to be near each other: a subgroup, or the whole group if it has none."""

    name: str
    roles: list[Role]
    minimum: int
    levels: tuple[str, ...]
    """The allowed levels, the best first; `ANYWHERE` for the whole placement."""
    placed: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    """The rows of the members that have a node already: the other members go to the same domain."""

    @property
    def widest(self) -> str:
        """The widest allowed level: the part has to be in one domain of it."""
        return self.levels[-1]


class GroupRoom:
    """The room for the parts of one attempt; the columns are read at each call."""

    def __init__(self, nodes: Nodes, topology: Topology, parts: Sequence[Part]) -> None:
        self._nodes = nodes
        self._parts = parts
        self._kinds = [
            _Alike(nodes, topology, level, [part for part in parts if part.widest == level])
            for level in dict.fromkeys(part.widest for part in parts)
            if level != ANYWHERE
        ]

    def missing(self, done: int, rows: Rows) -> str:
        """Why the parts from the `done`-th on cannot all have room within these rows now; "" if they may."""
        left = {id(part) for part in self._parts[done:] if part.minimum > 0}
        for alike in self._kinds:
            why = alike.missing(left, rows)
            if why:
                return why
        return ""


class _Alike:
    """Parts that each have to be in one domain of the same level."""

    def __init__(self, nodes: Nodes, topology: Topology, level: str, parts: Sequence[Part]) -> None:
        self._nodes = nodes
        self._level = topology.find(level)
        self._parts = parts
        roles = [role for part in parts for role in part.roles]
        self._resources = np.unique(np.concatenate([role.pods[0].cls.resources for role in roles]))
        asked = np.array([_asked(role, self._resources) for role in roles])
        self._common = asked.min(axis=0)
        self._needs = np.array([self._need(part) for part in parts])
        capacity = np.max([role.capacity for role in roles], axis=0)
        self._capacity = capacity
        self._allowed = capacity > 0
        self._known = self._allowed & (self._fits(np.arange(len(capacity))) == 0)
        """The rows where the filters accept a member although by the numbers none fits."""

    def missing(self, left: set[int], rows: Rows) -> str:
        """See `GroupRoom.missing`."""
        places = [i for i, part in enumerate(self._parts) if id(part) in left]
        if not places or self._level is None:
            return ""
        level, needs = self._level, self._needs[places]
        ids = level.ids[rows]
        rows, ids = rows[ids >= 0], ids[ids >= 0]
        allowed = self._allowed[rows]
        members = np.where(allowed, np.where(self._known[rows], self._capacity[rows], self._fits(rows)), 0)
        columns: list[NDArray[np.int64]] = [members]
        if not self._known[rows].any():
            free = self._nodes.free[np.ix_(self._resources, rows)]
            columns += list(np.where(allowed, np.maximum(free, 0), 0))
        for need, column in zip(needs.T, columns, strict=False):
            held = _most(need, np.bincount(ids, weights=column, minlength=len(level)).astype(np.float64))
            if held < len(places):
                return f"there is room for {held} of {len(places)} parts of the group that need a {level.level} each"
        return ""

    def _fits(self, rows: Rows) -> Int64Column:
        """How many members fit on each of these rows at most, if each requested the smallest amounts of all members."""
        nodes = self._nodes
        fits = np.full(len(rows), np.iinfo(np.int64).max, dtype=np.int64)
        for resource, amount in zip(self._resources.tolist(), self._common.tolist(), strict=True):
            if amount > 0:
                np.minimum(fits, np.maximum(nodes.free[resource, rows], 0) // amount, out=fits)
        most = sum(len(role.pods) for part in self._parts for role in part.roles)
        return np.minimum(fits, most)

    def _need(self, part: Part) -> Amounts:
        """The least number of members, then for each resource the smallest sum that this many members request."""
        asked = np.array([_asked(role, self._resources) for role in part.roles], dtype=np.float64)
        each = np.repeat(asked, [len(role.pods) for role in part.roles], axis=0)
        return np.concatenate(([part.minimum], np.sort(each, axis=0)[: part.minimum].sum(axis=0)))


def _asked(role: Role, resources: NDArray[np.intp]) -> NDArray[np.int64]:
    cls = role.pods[0].cls
    amounts = np.zeros(len(resources), dtype=np.int64)
    amounts[np.searchsorted(resources, cls.resources)] = cls.amounts
    return amounts


def _most(needs: Amounts, room: Amounts) -> int:
    """The most parts that can have room in the domains at the same time, by one quantity.

    The n largest parts have room only if the domains together hold n times the smallest of these n parts.
    """
    room = room * (1.0 + _ROUNDING)
    for number, need in enumerate(np.sort(needs)[::-1].tolist(), start=1):
        if need > 0 and (room // need).sum() < number:
            return number - 1
    return len(needs)
