"""What becomes of a gang that loses members: by annotation, else by the kind of its owner."""

from __future__ import annotations

from enum import StrEnum

from gangline import Handle, PodInfo, group_keys, resources
from gangline_plugins.telling import Teller

RECOVERY = "gangline.dev/recovery"
"""On a pod or its workload: replace, restart or none."""
_RESTARTING_LABELS = frozenset((group_keys.JOB_SET, group_keys.LWS_NAME))
"""The labels of pods of JobSets and LeaderWorkerSets."""
_RESTARTING_OWNERS = frozenset(("JobSet", "LeaderWorkerSet", "MPIJob"))
_MOST_SHOWN = 40


class RecoveryPolicy(StrEnum):
    """What the scheduler does with the other members of a gang that loses some."""

    REPLACE = "replace"
    """The other members run on while the lost ones are replaced."""
    RESTART = "restart"
    """The other members are evicted too, so that all members start anew together."""
    NONE = "none"
    """Nothing is done."""


def policy_of(handle: Handle, pod: PodInfo) -> RecoveryPolicy:
    """The policy for the group of a pod; an unreadable one is told in an event.

    Pods that no controller makes anew are left alone, unless the annotation says otherwise.
    """
    said = handle.workload(pod).get(RECOVERY)
    if said is not None:
        if said in list(RecoveryPolicy):
            return RecoveryPolicy(said)
        note = f'{RECOVERY} has to be replace, restart or none, not "{said[:_MOST_SHOWN]}"; the default applies'
        Teller(handle).once(pod, "InvalidRecovery", note)
    if pod.controller is None:
        return RecoveryPolicy.NONE
    return RecoveryPolicy.RESTART if _restarts(handle, pod) else RecoveryPolicy.REPLACE


def _restarts(handle: Handle, pod: PodInfo) -> bool:
    """Whether the owner restarts all of its pods when one is lost.

    The owner says so, in whatever dialect the group is written: Kueue and Volcano label the pods of a JobSet too.
    """
    if not _RESTARTING_LABELS.isdisjoint(pod.labels):
        return True
    controller = pod.controller
    if controller is None or controller.kind in _RESTARTING_OWNERS:
        return controller is not None
    if controller.kind != "Job":
        return False
    job = handle.state.store(resources.JOBS).get(controller.name, pod.namespace)
    above = job.metadata.owner_references if job is not None and job.metadata.uid == controller.uid else ()
    return any(owner.controller and owner.kind in _RESTARTING_OWNERS for owner in above)
