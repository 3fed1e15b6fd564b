"""Which members of a group are alike: a result for one of them holds for all of them."""

from __future__ import annotations

from collections.abc import Hashable

from gangline.groups.strategy import PLACEMENT_STRATEGY
from gangline.profile.runtime import Runtime
from gangline.state.pods import PodInfo


def likeness(pod: PodInfo, runtime: Runtime) -> Hashable:
    """A value that is equal for two members when neither the plugins nor the framework can tell them apart.

    Raises PluginError.
    """
    annotations = runtime.handle.workload(pod)
    return runtime.evaluator.likeness(pod, annotations), annotations.get(PLACEMENT_STRATEGY)
