"""Which pods are protected because they have not yet run for their minimum runtime."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gangline import Handle, InvalidObject, PodInfo, annotation_values, group_keys, moments, permissions, resources
from gangline_plugins.telling import Teller


class GangPreemptionArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments of GangPreemption."""

    max_min_runtime_seconds: Annotated[float, msgspec.Meta(ge=0)] = 3600.0
    """The longest time, in seconds, for which `gangline.dev/min-runtime` protects a pod. A longer value is cut to this
    one, with an event on the pod.
    """
    require_permission: bool = True
    """Whether a namespace has to allow `min-runtime` in its annotation `gangline.dev/allow` before its pods are
    protected.
    """


class Sparing:
    """Judges pods at one moment. A minimum runtime that is unreadable, too long or not allowed is told in an event on
    the pod.
    """

    def __init__(self, handle: Handle, args: GangPreemptionArgs) -> None:
        self._handle = handle
        self._teller = Teller(handle)
        self._args = args
        self._now = handle.clock.now()
        self._namespaces = handle.state.store(resources.NAMESPACES)
        self._may: dict[str, bool] = {}
        """Whether a namespace allows minimum runtimes, by the namespace."""

    def is_spared(self, pod: PodInfo) -> bool:
        """Whether the pod is younger than its minimum runtime; a pod that has not started has the age 0.

        The minimum runtime is that in the pod's own annotation, else that of its workload.
        """
        if not pod.annotations and not pod.owners:
            return False  # most pods; all pods of the cluster may be asked about
        text = pod.annotations.get(group_keys.MIN_RUNTIME)
        if text is None and pod.owners:
            text = self._handle.workload(pod).get(group_keys.MIN_RUNTIME)
        if text is None:
            return False
        if not self._is_allowed(pod.namespace):
            why = permissions.missing(permissions.MIN_RUNTIME, pod.namespace)
            self._teller.once(pod, "MinRuntimeNotAllowed", f"{group_keys.MIN_RUNTIME} spares nobody: {why}")
            return False
        try:
            least = annotation_values.seconds({group_keys.MIN_RUNTIME: text}, group_keys.MIN_RUNTIME) or 0.0
        except InvalidObject as error:
            self._teller.once(pod, "InvalidMinRuntime", str(error))
            return False
        most = self._args.max_min_runtime_seconds
        if least > most:
            note = f"{group_keys.MIN_RUNTIME} {text} is cut to {most:g} seconds, the most that this profile allows"
            self._teller.once(pod, "MinRuntimeCut", note)
        return self._now - self._start(pod) < min(least, most)

    def _is_allowed(self, namespace: str) -> bool:
        if not self._args.require_permission:
            return True
        if namespace not in self._may:
            self._may[namespace] = permissions.is_allowed(permissions.MIN_RUNTIME, namespace, self._namespaces)
        return self._may[namespace]

    def _start(self, pod: PodInfo) -> float:
        """When the pod started, in seconds since the epoch: now at the latest, and 0 if its start time is
        unreadable.
        """
        if not pod.start_time:
            return self._now
        try:
            return min(moments.moment(pod.start_time), self._now)
        except ValueError:
            return 0.0
