"""When a pod will have ended, by its own fields and annotations or those of its workload, as far as they are
believed.
"""

from __future__ import annotations

import math

from gangline import Handle, InvalidObject, PodInfo, annotation_values, moments, permissions, resources
from gangline_plugins.reservation.arguments import ReservationArgs
from gangline_plugins.reservation.limited import MAX_RUNTIME, Limited
from gangline_plugins.telling import Teller

__all__ = ["MAX_RUNTIME", "Lifetimes"]


class Lifetimes:
    """Judges the runtime of pods for a gang of some namespace.

    `activeDeadlineSeconds` is believed of every pod, because Kubernetes ends such pods. The annotation is a promise
    that nothing enforces. So gangs of other namespaces rely on it only if an administrator has allowed it.
    """

    def __init__(self, handle: Handle, args: ReservationArgs) -> None:
        self._handle = handle
        self._teller = Teller(handle)
        self._args = args
        self._namespaces = handle.state.store(resources.NAMESPACES)
        self._limited = handle.state.tracker(Limited)

    def endings(self, now: float, beneficiary: str) -> list[tuple[float, PodInfo]]:
        """The placed pods whose end is known, with their ends: see `end_of`; in no order. Of most pods it is not
        known.
        """
        pods, found = self._handle.state.pods, []
        for uid in pods if self._args.default_max_runtime_seconds else self._limited.that_may_end(pods, self._handle):
            pod = pods.get(uid)
            if pod is None or pod.row < 0:
                continue
            end = self.end_of(pod, now, beneficiary)
            if math.isfinite(end):
                found.append((end, pod))
        return found

    @property
    def are_known(self) -> bool:
        """Whether some placed pod may have a known end."""
        if self._args.default_max_runtime_seconds:
            return True
        return any(True for _ in self._limited.that_may_end(self._handle.state.pods, self._handle))

    def end_of(self, pod: PodInfo, now: float, beneficiary: str) -> float:
        """Seconds since the epoch at which the pod will have ended at the latest; infinite if that is unknown.

        `beneficiary` is the namespace of the gang that waits for the pod. A pod that has not started counts as starting
        now. A pod that is being deleted ends now.
        """
        if pod.terminating:
            return now
        longest = self.longest(pod, beneficiary)
        if math.isinf(longest):
            return math.inf  # its start makes no difference
        return max(now, _started(pod, now) + longest)

    def longest(self, pod: PodInfo, beneficiary: str) -> float:
        """Seconds for which a pod runs at most; infinite if that is unknown. See `end_of`."""
        longest = min(self._said(pod, beneficiary), _deadline(pod))
        return (self._args.default_max_runtime_seconds or math.inf) if math.isinf(longest) else longest

    def _said(self, pod: PodInfo, beneficiary: str) -> float:
        """The longest runtime in seconds by the annotation; infinite if there is no annotation that counts."""
        annotations = self._handle.workload(pod)
        if MAX_RUNTIME not in annotations or not self._is_believed(pod.namespace, beneficiary):
            return math.inf
        try:
            said = annotation_values.seconds(annotations, MAX_RUNTIME)
        except InvalidObject as error:
            self._teller.once(pod, "InvalidMaxRuntime", str(error))
            return math.inf
        longest = self._args.longest_max_runtime_seconds
        if said is not None and said > longest:
            note = f"{MAX_RUNTIME} {annotations[MAX_RUNTIME]} is cut to {longest:g} seconds, the most in this profile"
            self._teller.once(pod, "MaxRuntimeCut", note)
        return math.inf if said is None else min(said, longest)

    def _is_believed(self, namespace: str, beneficiary: str) -> bool:
        return (
            namespace == beneficiary
            or not self._args.require_max_runtime_permission
            or permissions.is_allowed(permissions.MAX_RUNTIME, namespace, self._namespaces)
        )


def _deadline(pod: PodInfo) -> float:
    """Seconds after which Kubernetes ends the pod; infinite if it does not."""
    deadline = pod.spec.active_deadline_seconds
    return math.inf if deadline is None else float(max(0, min(deadline, int(moments.LONGEST_SPAN))))


def _started(pod: PodInfo, now: float) -> float:
    """When the pod started, in seconds since the epoch: now at the latest, and now if its start time is unreadable."""
    try:
        return min(moments.moment(pod.start_time), now) if pod.start_time else now
    except ValueError:
        return now
