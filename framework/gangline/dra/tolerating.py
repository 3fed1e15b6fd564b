"""Which taints of devices a request tolerates, and for how long it tolerates taints that evict pods (NoExecute)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gangline.model.resource_claims import DeviceToleration
from gangline.model.resource_slices import DeviceTaint

NO_EXECUTE = "NoExecute"
"""The effect of a taint that evicts the pods that have the device."""


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether a toleration matches a taint; tolerationSeconds does not matter."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def endured(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> float:
    """For how many seconds, from the time at which a taint was added, tolerations accept the taint; 0 if none does.

    As in kube-controller-manager, one toleration without tolerationSeconds makes the time infinite; otherwise the
    smallest tolerationSeconds counts.
    """
    accepting = [each.toleration_seconds for each in tolerations if tolerates(each, taint)]
    limits = [max(0, seconds) for seconds in accepting if seconds is not None]
    if len(limits) < len(accepting):
        return math.inf
    return float(min(limits, default=0))
