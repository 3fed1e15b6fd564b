"""Which members of a group are alike, so that what is found out about one of them holds for all."""

from __future__ import annotations

from collections.abc import Hashable

from gangline.groups.strategy import PLACEMENT_STRATEGY
from gangline.profile.runtime import Runtime
from gangline.state.pods import PodInfo


def likeness(pod: PodInfo, runtime: Runtime) -> Hashable:
    """What neither the profile's plugins nor the framework itself can tell members apart by. Raises PluginError."""
    return runtime.evaluator.likeness(pod), runtime.handle.workload(pod).get(PLACEMENT_STRATEGY)
