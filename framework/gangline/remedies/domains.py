"""The domains in which a unit could start: those of the level that a gang requires, else the whole cluster; for a pod
on its own each node.
"""

from __future__ import annotations

import numpy as np

from gangline.api.pod_group import ANYWHERE
from gangline.remedies.trying import Trial
from gangline.state.node_view import Int64Column
from gangline.state.topology import Domains


def domains_of(trial: Trial) -> tuple[Domains | None, Int64Column]:
    """The level of the domains, and for each row the number of its domain, or -1."""
    nodes = trial.cache.nodes
    alive = nodes.alive[: nodes.size]
    if trial.group is None:
        return None, np.where(alive, np.arange(nodes.size), -1)
    required = trial.group.topology.required_at(trial.waited)
    level = trial.runtime.topology.find(required) if required != ANYWHERE else None
    if level is not None:
        return level, np.where(alive, level.ids.astype(np.int64), -1)
    return None, np.where(alive, 0, -1)


def sums(ids: Int64Column, column: Int64Column) -> Int64Column:
    """The sum of a column for each domain."""
    inside = ids >= 0
    return np.bincount(ids[inside], weights=column[inside], minlength=int(ids.max(initial=-1)) + 1).astype(np.int64)
