"""What pods had that were taken off a row, so that putting them back gives them the same devices."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from gangline import PodInfo
from gangline_plugins.gpu.allocation import Allocation

REMEMBERED = 65_536
"""Choices of pods that were taken off, so that putting them back gives the same devices."""

OTHER = -1
"""A state that no node is in."""


@dataclass(frozen=True, slots=True)
class Before:
    """What a pod had when it was taken off a row, and the state in which that left the node.

    When the node is in that state again, putting the pod back undoes taking it off.
    """

    pod: weakref.ref[PodInfo]
    row: int
    allocation: Allocation | None
    state: int
