"""Which taints of devices a request tolerates, and for how long those that end pods."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gangline.model.resource_claims import DeviceToleration
from gangline.model.resource_slices import DeviceTaint

NO_EXECUTE = "NoExecute"
"""The effect of a taint that ends the pods that have the device."""


def tolerates(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """Whether a toleration accepts a taint, for however long."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


def endured(taint: DeviceTaint, tolerations: Iterable[DeviceToleration]) -> float:
    """The seconds for which tolerations accept a taint, from when it was added; 0 for not at all, infinite for ever.

    As in kube-controller-manager: one toleration without seconds is enough, and else the fewest seconds count.
    """
    accepting = [each.toleration_seconds for each in tolerations if tolerates(each, taint)]
    limits = [max(0, seconds) for seconds in accepting if seconds is not None]
    if len(limits) < len(accepting):
        return math.inf
    return float(min(limits, default=0))
