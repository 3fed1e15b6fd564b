"""TopologyPlacement: places a group in one domain of the level that it requires, or of the narrowest level that holds
it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Annotated

import msgspec
import numpy as np

from gangline import (
    ANYWHERE,
    Action,
    Domains,
    EventHint,
    GroupAttempt,
    Handle,
    Level,
    NodeView,
    Placement,
    Rows,
    Status,
    hookimpl,
    on,
    unschedulable,
)

MOST_PLACEMENTS = 64
"""At most this many domains of one level are offered: those that fit best."""


class LevelArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """One level of the network."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    """The level's name in annotations, for example "rack"."""
    node_label: Annotated[str, msgspec.Meta(min_length=1)]
    """The node label whose values are its domains."""


class TopologyPlacementArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of TopologyPlacement."""

    levels: list[LevelArgs] = []
    """The levels, widest first. The default is the well-known labels that nodes have: Topograph's, those of clouds,
    zone and region.
    """


class _Offered:
    """How many members of a group fit on each placement that was offered for one attempt."""

    def __init__(self, attempt: GroupAttempt | None) -> None:
        self.attempt = attempt
        self._roles = attempt.roles if attempt is not None else []
        self.wanted = sum(len(role.pods) for role in self._roles)
        self._held: dict[int, tuple[Rows, int]] = {}
        """How many members fit, by the `id` of the rows; the rows are kept too, so that their `id` stays theirs."""

    def count(self, rows: Rows, held: int) -> None:
        """Note that so many members fit on these rows. Nobody may change the array of rows."""
        self._held[id(rows)] = rows, held

    def held(self, rows: Rows) -> int:
        """How many members fit on these rows."""
        known = self._held.get(id(rows))
        return sum(int(role.capacity[rows].sum()) for role in self._roles) if known is None else known[1]


class TopologyPlacement:
    """Offers the domains of the preferred level, then those of wider levels up to the required one; the best fit scores
    highest.
    """

    name = "TopologyPlacement"
    args_type = TopologyPlacementArgs

    def __init__(self, args: TopologyPlacementArgs, handle: Handle) -> None:
        names = [level.name for level in args.levels]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"levels: {twice} is there twice")
        self._offered = _Offered(None)
        self._topology = handle.topology
        if args.levels:
            self._topology.use([Level(level.name, level.node_label) for level in args.levels])

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """New nodes, changed node labels, and deleted pods."""
        return (on("nodes", Action.ADD | Action.UPDATE), on("pods", Action.DELETE))

    @hookimpl
    def placement_generate(self, attempt: GroupAttempt, nodes: NodeView) -> Iterator[Placement] | Status | None:
        """Domains that hold the group; None for a group without a topology constraint."""
        constraint = attempt.group.topology
        required = constraint.required_at(attempt.waited)
        if required == ANYWHERE and constraint.preferred == ANYWHERE:
            return None
        for level in (required, constraint.preferred):
            if level != ANYWHERE and self._topology.find(level) is None:
                return unschedulable(
                    f"unknown topology level {level}; the levels are: {self._topology.names()}", resolvable=False
                )
        return self._placements(attempt, self._tiers(required, constraint.preferred), nodes)

    @hookimpl
    def pod_group_key(self) -> Hashable:
        """Placements follow from the needs of the group, its topology and strategy, and the classes of its members."""
        return ()

    @hookimpl
    def placement_score(self, attempt: GroupAttempt, placement: Placement) -> float:
        """How full the placement is with the group on it, relative to the members that it could hold."""
        offered = self._offered_for(attempt)
        return 100.0 * min(1.0, offered.wanted / max(1, offered.held(placement.rows)))

    def _offered_for(self, attempt: GroupAttempt) -> _Offered:
        if self._offered.attempt is not attempt:
            self._offered = _Offered(attempt)
        return self._offered

    def _tiers(self, required: str, preferred: str) -> list[Domains | None]:
        """The levels to try, in order: from the preferred one outwards, up to the required one; None is the cluster."""
        last = self._topology.find(required) if required != ANYWHERE else None
        if preferred == ANYWHERE:
            return [last]
        tiers: list[Domains | None] = []
        level = self._topology.find(preferred)
        while level is not None and level is not last:
            tiers.append(level)
            level = level.wider
        return [*tiers, last] if level is last else [last]

    def _placements(
        self, attempt: GroupAttempt, tiers: Sequence[Domains | None], nodes: NodeView
    ) -> Iterator[Placement]:
        for tier, level in enumerate(tiers):
            attempt.deadline.check()
            if level is None:
                yield Placement("the cluster", np.flatnonzero(nodes.alive), tier)
            else:
                yield from self._domains(attempt, level, tier)

    def _domains(self, attempt: GroupAttempt, level: Domains, tier: int) -> Iterator[Placement]:
        wanted = attempt.fewest
        sums = [np.minimum(level.sums(role.capacity), len(role.pods)) for role in attempt.roles]
        held = np.sum(sums, axis=0)
        spare = np.sum([level.sums(role.capacity) for role in attempt.roles], axis=0)
        allowed = held >= wanted
        rows = attempt.placed_rows()
        if len(rows):  # those that have a node say where the others go
            where = set(level.ids[rows].tolist())
            allowed &= np.isin(np.arange(len(level)), [d for d in where if d >= 0]) if len(where) == 1 else False
        if not allowed.any():
            attempt.messages.append(_why(attempt, level, held, len(rows) > 0))
            return
        offered = self._offered_for(attempt)
        fitting = np.flatnonzero(allowed)
        whole = held[fitting] < sum(len(role.pods) for role in attempt.roles)
        for domain in fitting[np.lexsort((level.order[fitting], spare[fitting], whole))][:MOST_PLACEMENTS].tolist():
            rows = level.rows(domain)
            offered.count(rows, int(spare[domain]))
            yield Placement(f"{level.level} {level.path(domain)}", rows, tier)


def _why(attempt: GroupAttempt, level: Domains, held: np.ndarray, is_pinned: bool) -> str:
    if is_pinned:
        return f"no room in the {level.level} where the other pods of the group are"
    if not len(level):
        return f"no node is in a {level.level}"
    best = int(held.argmax())
    return (
        f"no {level.level} of {len(level)} holds {attempt.fewest} pods: "
        f"the best one, {level.path(best)}, holds {int(held[best])}"
    )
