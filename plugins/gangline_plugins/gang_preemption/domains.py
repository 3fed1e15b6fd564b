"""Where room could be made: the domains in which it promises to cost least.

For every domain at once it is estimated up to which priority all would have to go. What breaks a disruption budget by
itself counts as more than any priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import ANYWHERE, BoolColumn, Domains, GroupAttempt, NodeView, PodInfo, Rows, Topology
from gangline_plugins.gang_preemption.demand import Demand, Holds
from gangline_plugins.gang_preemption.occupants import Occupants
from gangline_plugins.preemption.budgets import Budgets

MOST_DOMAINS = 8
"""Domains that are looked into for one group, at most."""
_MOST_STAGES = 8
"""Priorities that are told apart; of more, neighbours count as one."""


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """How many members fit on each node when ever more have gone, up to all that may."""

    holds: list[Holds]
    free: NDArray[np.int64]
    """What is free when all have gone."""


def stages_of(demand: Demand, occupants: Occupants, budgets: Budgets) -> Stages:
    """The first stage is that nobody has gone."""
    levels = _levels(occupants, budgets)
    offered = occupants.offered()
    free, touched = demand.free.copy(), demand.touched.copy()
    everything = slice(None)
    holds = [demand.holds(free, touched, everything)]
    for level in range(int(levels.max(initial=-1)) + 1):
        slots = np.flatnonzero((levels == level) & offered)
        rows = occupants.rows[slots]
        for resource, amounts in enumerate(demand.amounts[:, slots]):
            free[resource] += np.bincount(rows, weights=amounts, minlength=demand.size).astype(np.int64)
        touched[rows] = True
        holds.append(demand.holds(free, touched, everything))
    return Stages(holds, free)


def _levels(occupants: Occupants, budgets: Budgets) -> NDArray[np.intp]:
    """For each pod the stage in which it goes, with all of its group."""
    keys = [(_breaks(occupant.pods, budgets), occupant.priority) for occupant in occupants.all]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    scale = min(1.0, _MOST_STAGES / max(1, len(ranks)))
    levels = np.array([int(ranks[key] * scale) for key in keys], dtype=np.intp)
    return levels[occupants.owners]


def _breaks(pods: Sequence[PodInfo], budgets: Budgets) -> bool:
    return budgets.any and any(budgets.split([pod])[0] for pod in pods)


def find_domains(
    topology: Topology, attempt: GroupAttempt, nodes: NodeView, demand: Demand, stages: Stages
) -> list[tuple[Rows, bool]]:
    """The rows of each domain to look into, the most promising first, and whether it is one that has to do."""
    ranked: list[tuple[tuple[int, int], Domains | None, int]] = []
    levels = _levels_for(topology, attempt)
    for level in levels:
        sums = [_sums(level, holds) for holds in stages.holds]
        met = np.array([demand.is_met(each) for each in sums])
        stage, missing = met.argmax(axis=0), demand.missing(sums[0])
        possible = np.flatnonzero(met[-1] & _is_open(level, attempt))
        best = possible[np.lexsort((missing[possible], stage[possible]))][:MOST_DOMAINS]
        ranked += [((int(stage[domain]), int(missing[domain])), level, domain) for domain in best.tolist()]
    ranked.sort(key=lambda each: each[0])
    return [
        (np.flatnonzero(nodes.alive) if level is None else level.rows(domain), level is levels[0])
        for _, level, domain in ranked[:MOST_DOMAINS]
    ]


def _sums(level: Domains | None, holds: Holds) -> Holds:
    if level is None:
        return holds.sum(axis=1, keepdims=True)
    return np.array([level.sums(held) for held in holds])


def _levels_for(topology: Topology, attempt: GroupAttempt) -> list[Domains | None]:
    """First that of which one domain has to hold the group, then those of which one should; None is the cluster.

    A group that does not care may be helped most where its members are close to each other: some plugins ask for that.
    """
    constraint = attempt.group.topology
    required = constraint.required_at(attempt.waited)
    preferred = topology.find(constraint.preferred) if constraint.preferred != ANYWHERE else None
    if required == ANYWHERE:
        return [None, *([preferred] if preferred is not None else topology.switches())]
    level = topology.find(required)
    if level is None:
        return []
    return [level] if preferred is None or preferred is level else [level, preferred]


def _is_open(level: Domains | None, attempt: GroupAttempt) -> BoolColumn:
    """Domains that the members that have a node leave open: all, or the one that they are in."""
    rows = attempt.placed_rows()
    if level is None:
        return np.ones(1, dtype=np.bool_)
    if not len(rows):
        return np.ones(len(level), dtype=np.bool_)
    where = np.unique(level.ids[rows])
    is_open: BoolColumn = np.arange(len(level)) == where[0]
    return is_open if len(where) == 1 else np.zeros(len(level), dtype=np.bool_)
