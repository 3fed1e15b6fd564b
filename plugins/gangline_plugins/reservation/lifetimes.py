"""When a pod will have ended, from what it or its workload says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime

from gangline import InvalidObject, PodInfo
from gangline.groups.parsing import seconds

MAX_RUNTIME = "gangline.dev/max-runtime"
"""On a pod or its workload: how long the pod runs at most, as a duration: "90m"."""


def longest_run(pod: PodInfo, annotations: Mapping[str, str]) -> float:
    """Seconds that the pod runs at most; infinite where neither annotation nor activeDeadlineSeconds says so.

    `annotations` are those of the pod over those of its workload. Raises InvalidObject for a duration that is none.
    """
    said = seconds(annotations, MAX_RUNTIME)
    deadline = pod.spec.active_deadline_seconds
    return min(math.inf if said is None else said, math.inf if deadline is None else float(deadline))


def end_of(pod: PodInfo, annotations: Mapping[str, str], now: float, default: float) -> float:
    """Seconds since the epoch at which the pod will have ended at the latest; infinite where nobody knows.

    A pod that has not started yet starts now; one that is being deleted ends now; `default` seconds are taken for one
    that does not say how long it runs, or says it in a way that cannot be read.
    """
    if pod.terminating:
        return now
    if math.isinf(default) and MAX_RUNTIME not in annotations and pod.cls.spec.active_deadline_seconds is None:
        return math.inf
    try:
        longest = longest_run(pod, annotations)
    except InvalidObject:
        longest = math.inf
    if math.isinf(longest):
        longest = default
    return max(now, _started(pod, now) + longest)


def _started(pod: PodInfo, now: float) -> float:
    try:
        return datetime.fromisoformat(pod.start_time).timestamp() if pod.start_time else now
    except ValueError:
        return now
