"""The nodes that members of a group are meant for: the nominated ones are tried first, as for a pod on its own.

Like members may change places among their nodes. Nominations count only if every like member that waits has one: with
fewer, the others would be drawn to the same nodes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gangline.profile.entries import Filtered
from gangline.profile.ranking import Wishes
from gangline.state.node_view import Rows
from gangline.state.nodes import Nodes
from gangline.state.pods import PodInfo

_FIRST = 1e12
"""Outweighs every score of plugins."""
_NOWHERE: Rows = np.zeros(0, dtype=np.intp)


def meant_for(pods: Sequence[PodInfo], nodes: Nodes) -> Rows:
    """The rows of the nodes that like pods are nominated to; none unless each pod without a node is nominated."""
    rows = set[int]()
    for pod in pods:
        if pod.row < 0:
            row = nodes.row_of(pod.nominated_node_name) if pod.nominated_node_name else None
            if row is None:
                return _NOWHERE
            rows.add(row)
    return np.array(sorted(rows), dtype=np.intp)


def drawn_to(meant: Rows, wishes: Wishes | None, filtered: Filtered) -> Wishes | None:
    """The wishes of like pods, with the nodes that they are meant for above all others; as given if there are none."""
    if not len(meant):
        return wishes
    index, scores = wishes or (np.flatnonzero(filtered.feasible), np.zeros(np.count_nonzero(filtered.feasible)))
    return index, scores + _FIRST * np.isin(index, meant)
