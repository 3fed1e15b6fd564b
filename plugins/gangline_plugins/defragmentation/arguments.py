"""The plugin's arguments."""

from __future__ import annotations

from typing import Annotated

import msgspec


class DefragmentationArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of Defragmentation."""

    interval_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds between two rounds of planning in the background. 0 turns them off: then only `gangline defrag` moves
    pods.
    """
    most_moves: Annotated[int, msgspec.Meta(gt=0)] = 4
    """The number of single pods and gangs that are moved at the same time, at most."""
    factor: Annotated[float, msgspec.Meta(ge=1)] = 2.0
    """A plan is carried out only if its worth is at least this many times its cost."""
    worth_seconds: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    """The worth of a freed GPU: the seconds by which the GPU is used earlier."""
    restart_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    """Seconds that a moved pod takes until it runs again."""
    priority_seconds: Annotated[float, msgspec.Meta(ge=0)] = 300.0
    """Seconds added to a pod's cost for each lower priority that some pod of the cluster has."""
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 120.0
    """The longest time, in seconds, of each wait: for a budget, for a replacement pod, for the group."""
    namespace: str = "kube-system"
    """The namespace of the ConfigMap gangline-moves."""
