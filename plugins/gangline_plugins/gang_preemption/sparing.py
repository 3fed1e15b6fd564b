"""Which pods have not yet run as long as their workload was promised."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gangline import Handle, InvalidObject, PodInfo, annotation_values, group_keys, moments, permissions, resources
from gangline_plugins.telling import Teller


class GangPreemptionArgs(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Arguments."""

    max_min_runtime_seconds: Annotated[float, msgspec.Meta(ge=0)] = 3600.0
    """Seconds for which `gangline.dev/min-runtime` spares a pod at most; what says more is cut, with an event."""
    require_permission: bool = True
    """Only pods of namespaces that allow `min-runtime` in their annotation `gangline.dev/allow` are spared."""


class Sparing:
    """Judges pods at one moment; what cannot be read, is too long or not allowed is told to the pod."""

    def __init__(self, handle: Handle, args: GangPreemptionArgs) -> None:
        self._handle = handle
        self._teller = Teller(handle)
        self._args = args
        self._now = handle.clock.now()
        self._namespaces = handle.state.store(resources.NAMESPACES)
        self._may: dict[str, bool] = {}
        """By namespace."""

    def is_spared(self, pod: PodInfo) -> bool:
        """Whether the pod is younger than its minimum runtime; one that has not started is of age 0."""
        text = self._promised(pod)
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

    def _promised(self, pod: PodInfo) -> str | None:
        """What the pod or its workload says."""
        own = pod.annotations.get(group_keys.MIN_RUNTIME)
        return own if own is not None or not pod.owners else self._handle.workload(pod).get(group_keys.MIN_RUNTIME)

    def _is_allowed(self, namespace: str) -> bool:
        if not self._args.require_permission:
            return True
        if namespace not in self._may:
            self._may[namespace] = permissions.is_allowed(permissions.MIN_RUNTIME, namespace, self._namespaces)
        return self._may[namespace]

    def _start(self, pod: PodInfo) -> float:
        """When it started: not in the future, and long ago where what it says is no time."""
        if not pod.start_time:
            return self._now
        try:
            return min(moments.moment(pod.start_time), self._now)
        except ValueError:
            return 0.0
