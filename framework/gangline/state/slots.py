"""The slot of a pod: where the pod is, and what else the scheduler itself knows about it.

A pod's record (`PodInfo`) holds what the API server says, and never changes. Values that change while the scheduler
works are in the slot. Other modules read the slot through the record; they cannot assign to it. Each field has one
owner, which writes it with one of the functions below: the columns and the cache write where a pod is, `groups` the
group that it is in, `outcomes` the nominated node. The cache also hands the group on to a newer record of the pod, and
`nominating` the nominated node. An import contract keeps all other modules from importing this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec


class Slot(msgspec.Struct, frozen=True, eq=False):
    """The changing values of one pod; made with its record."""

    row: int = -1
    """The row of the node on which the pod is or is assumed to be, -1 for none."""
    node_name: str = ""
    """The name of that node; if the node is unknown, the name in spec.nodeName."""
    nominated_node_name: str = ""
    """The node on which plugins make room for the pod; "" for none."""
    membership: tuple[int, Any] | None = None
    """When `groups` read the pod's group, as a number of changes, and the group; so `groups` need not read it again."""


def _writer(field: str) -> Callable[[Slot, Any], None]:
    """A function that assigns to a field although the field is locked."""
    write: Callable[[Slot, Any], None] = getattr(Slot, field).__set__
    return write


put_on: Callable[[Slot, int], None] = _writer("row")
"""Set the row of the pod; -1 for none."""
name_node: Callable[[Slot, str], None] = _writer("node_name")
"""Set the node to which the pod is bound or assumed; "" for none."""
nominate: Callable[[Slot, str], None] = _writer("nominated_node_name")
"""Set the nominated node; "" for none."""
remember_group: Callable[[Slot, tuple[int, Any]], None] = _writer("membership")
"""Set the number of changes after which `groups` read the pod's group, and the group."""
