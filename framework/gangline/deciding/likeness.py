"""Which members of a group are alike: a result for one of them holds for all of them.

A gang of 1,000 pods is mostly one pod a thousand times. Members with equal likeness are filtered once, and counted
instead of tried one by one. The likeness is the pod's identity for its profile, together with the strategy that its
group has chosen, which is read by the framework itself and by no plugin.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from gangline.groups.strategy import PLACEMENT_STRATEGY
from gangline.profile.runtime import Runtime
from gangline.state.pods import PodInfo

Likeness = tuple[tuple[Hashable, ...], str | None]
"""The number of a pod's class and what plugins read of the pod beyond it, and the strategy of its group."""


def likenesses(pods: Sequence[PodInfo], runtime: Runtime) -> list[Likeness]:
    """For each pod a value; two are equal when neither the plugins nor the framework can tell the members apart.

    Raises PluginError.
    """
    workload = runtime.handle.workload
    annotations = [workload(pod) if pod.owners else pod.annotations for pod in pods]
    strategies = [each.get(PLACEMENT_STRATEGY) if each else None for each in annotations]
    return list(zip(runtime.evaluator.likenesses(pods, annotations), strategies, strict=True))


def is_plain(likeness: Likeness) -> bool:
    """Whether no plugin reads more of the pod than its class."""
    said, _ = likeness
    return said.count(None) == len(said) - 1
