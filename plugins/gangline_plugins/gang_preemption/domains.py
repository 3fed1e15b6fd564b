"""The domains in which making room promises to cost least.

For all domains at once, the module estimates up to which priority all pods would have to be removed. A pod whose
removal violates a PodDisruptionBudget by itself counts as higher than any priority.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline import ANYWHERE, BoolColumn, Domains, GroupAttempt, NodeView, PodInfo, Rows, Topology
from gangline_plugins.gang_preemption.demand import GangDemand, Holds
from gangline_plugins.gang_preemption.occupants import Occupants
from gangline_plugins.preemption.budgets import Budgets

MOST_DOMAINS = 8
"""At most this many domains are examined for one group."""
_MOST_STAGES = 8
"""At most this many stages of removal; with more priorities, neighbouring ones share a stage."""


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """How many members fit on each node after each stage of removal, from removing nobody to removing all that may
    go.
    """

    holds: list[Holds]
    free: NDArray[np.int64]
    """The free amounts after the last stage."""


def stages_of(demand: GangDemand, occupants: Occupants, budgets: Budgets) -> Stages:
    """The stages, the first of which removes nobody."""
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
    """For each pod the stage in which it is removed, together with all of its group."""
    keys = [(_breaks(occupant.pods, budgets), occupant.priority) for occupant in occupants.all]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    scale = min(1.0, _MOST_STAGES / max(1, len(ranks)))
    levels = np.array([int(ranks[key] * scale) for key in keys], dtype=np.intp)
    return levels[occupants.owners]


def _breaks(pods: Sequence[PodInfo], budgets: Budgets) -> bool:
    return budgets.any and any(budgets.split([pod])[0] for pod in pods)


def find_domains(
    topology: Topology, attempt: GroupAttempt, nodes: NodeView, demand: GangDemand, stages: Stages
) -> list[tuple[Rows, bool]]:
    """The rows of each domain to examine, the most promising first, and whether the domain is at the group's widest
    level.
    """
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
    """The level of which one domain must hold the group, then the levels of which one domain should; None is the whole
    cluster.

    If the group requires no level, the domains of its preferred level, or else of all switch levels, are examined too:
    plugins may prefer members that are close to each other.
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
    """For each domain whether the group may use it: all domains, or only the one in which members of the group are
    placed already.
    """
    rows = attempt.placed_rows()
    if level is None:
        return np.ones(1, dtype=np.bool_)
    if not len(rows):
        return np.ones(len(level), dtype=np.bool_)
    where = np.unique(level.ids[rows])
    is_open: BoolColumn = np.arange(len(level)) == where[0]
    return is_open if len(where) == 1 else np.zeros(len(level), dtype=np.bool_)
