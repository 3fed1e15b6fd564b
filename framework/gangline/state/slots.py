"""Where a pod is, and what else the scheduler itself knows of it: the slot beside the record of a pod.

The record (`PodInfo`) holds what the API server says, and never changes. What changes while the scheduler works is in
the slot. Everybody reads it by way of the record; nobody can assign to it. Each field has one owner, who writes it with
one of the functions below: the columns and the cache say where a pod is, `groups` which group it is in, `outcomes` the
node that is nominated. An import contract keeps everybody else away from this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Slot(msgspec.Struct, frozen=True, eq=False):
    """What changes about one pod; made with its record."""

    row: int = -1
    """The row of the node that it is on or assumed to be on, -1 for none."""
    node_name: str = ""
    """The name of that node; where the node is not known, the one that spec.nodeName names."""
    nominated_node_name: str = ""
    """The node on which room is being made for it; "" for none."""
    membership: tuple[int, Any] | None = None
    """What `groups` has found out about it, and when, so that it need not look twice."""


def _writer(field: str) -> Callable[[Slot, Any], None]:
    """What assigns to a field, past the lock that is on it for everybody else."""
    write: Callable[[Slot, Any], None] = getattr(Slot, field).__set__
    return write


put_on: Callable[[Slot, int], None] = _writer("row")
"""The pod is on a row now; -1 for none."""
name_node: Callable[[Slot, str], None] = _writer("node_name")
"""The pod is bound to a node, or assumed to be; "" for neither."""
nominate: Callable[[Slot, str], None] = _writer("nominated_node_name")
"""Room is being made on a node; "" where none is any more."""
remember_group: Callable[[Slot, tuple[int, Any]], None] = _writer("membership")
"""What `groups` found, and how often its bell had rung."""
