"""The devices of pods that were removed from a row, so that each pod that returns gets the same devices."""

from __future__ import annotations

import weakref
from typing import NamedTuple

from gangline import PodInfo
from gangline_plugins.gpu.allocation import Allocation

REMEMBERED = 65_536
"""At most this many removed pods whose devices are remembered."""

OTHER = -1
"""A state that no node is ever in."""


class Before(NamedTuple):
    """The devices of a pod that was removed from a row, and the state of the node right after the removal.

    If the node is in that state when the pod returns, the pod simply gets its devices back.
    """

    pod: weakref.ref[PodInfo]
    row: int
    allocation: Allocation | None
    state: int
    gave_way: bool = False
    """Whether pods with guessed devices, which had made way for this pod, went back to them at the removal."""
