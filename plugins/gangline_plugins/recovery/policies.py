"""What becomes of a gang that loses members: by annotation, else by the kind of its owner."""

from __future__ import annotations

from enum import StrEnum

from gangline import Handle, PodGroup, PodInfo
from gangline_plugins.telling import Teller

RECOVERY = "gangline.dev/recovery"
"""On a pod or its workload: replace, restart or none."""
_RESTARTING_DIALECTS = frozenset(("job-set", "leader-worker-set"))
_RESTARTING_OWNERS = frozenset(("MPIJob",))
_MOST_SHOWN = 40


class RecoveryPolicy(StrEnum):
    """What becomes of the other members."""

    REPLACE = "replace"
    """They run on while the lost members are replaced."""
    RESTART = "restart"
    """They are evicted too, so that all start anew together."""
    NONE = "none"
    """Nothing is done."""


def policy_of(handle: Handle, group: PodGroup, pod: PodInfo) -> RecoveryPolicy:
    """The policy for a group, given one of its members; an unreadable one is told in an event.

    Pods that no controller makes anew are left alone, unless the annotation says otherwise.
    """
    said = handle.workload(pod).get(RECOVERY)
    if said is not None:
        if said in list(RecoveryPolicy):
            return RecoveryPolicy(said)
        note = f'{RECOVERY} has to be replace, restart or none, not "{said[:_MOST_SHOWN]}"; the default applies'
        Teller(handle).once(pod, "InvalidRecovery", note)
    controller = pod.controller
    if controller is None:
        return RecoveryPolicy.NONE
    if group.dialect in _RESTARTING_DIALECTS or (controller is not None and controller.kind in _RESTARTING_OWNERS):
        return RecoveryPolicy.RESTART
    return RecoveryPolicy.REPLACE
