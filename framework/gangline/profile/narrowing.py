"""The nodes to which pre-filters narrow a pod."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gangline.state.nodes import Nodes
from gangline.status import BoolColumn, Code, Narrow, Status


def mask_of(narrow: Mapping[str, Narrow], nodes: Nodes) -> BoolColumn:
    """The rows that every pre-filter leaves; `narrow` holds at least one answer, by plugin."""
    mask = np.zeros(nodes.size, dtype=np.bool_)
    names = frozenset.intersection(*(answer.names for answer in narrow.values()))
    rows = [row for name in names if (row := nodes.row_of(name)) is not None]
    mask[rows] = True
    return mask


def nothing_left(narrow: Mapping[str, Narrow]) -> Status | None:
    """The rejection if the pre-filters leave no node."""
    if not narrow or frozenset.intersection(*(answer.names for answer in narrow.values())):
        return None
    names = sorted(narrow)
    if len(names) == 1:
        message = f"node(s) didn't satisfy plugin {names[0]}"
    else:
        message = f"node(s) didn't satisfy plugin(s) [{' '.join(names)}] simultaneously"
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (message,))
