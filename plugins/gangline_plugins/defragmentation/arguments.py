"""The plugin's arguments."""

from __future__ import annotations

from typing import Annotated

import msgspec


class DefragmentationArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments."""

    interval_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Seconds between two plans in the background; 0 for none: then `gangline defrag` alone moves pods."""
    most_moves: Annotated[int, msgspec.Meta(gt=0)] = 4
    """Pods on their own and gangs that are moved at the same time."""
    factor: Annotated[float, msgspec.Meta(ge=1)] = 2.0
    """How many times its cost a plan has to be worth."""
    worth_seconds: Annotated[float, msgspec.Meta(gt=0)] = 3600.0
    """Seconds by which every GPU that is freed is used earlier: what it is worth."""
    restart_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    """Seconds that a moved pod takes to run again."""
    priority_seconds: Annotated[float, msgspec.Meta(ge=0)] = 300.0
    """Seconds that a pod costs in addition for each lower priority that some pod of the cluster has."""
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 120.0
    """Seconds that each wait may take: for a budget, for the pod in an evicted one's place, for the group."""
    namespace: str = "kube-system"
    """Where the ConfigMap gangline-moves is kept."""
