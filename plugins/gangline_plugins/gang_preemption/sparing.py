"""Which pods have not yet run as long as their workload was promised."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from gangline import Handle, InvalidObject, PodInfo
from gangline.groups.keys import MIN_RUNTIME
from gangline.groups.parsing import seconds


class Sparing:
    """Judges pods at one moment; a value that cannot be read is told to the pod, and spares nobody."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._now = handle.clock.now()
        self._by_owner: dict[str, str | None] = {}

    def is_spared(self, pod: PodInfo) -> bool:
        """Whether the pod is younger than its minimum runtime; one that has not started is of age 0."""
        text = self._promised(pod)
        if text is None:
            return False
        try:
            least = seconds({MIN_RUNTIME: text}, MIN_RUNTIME) or 0.0
        except InvalidObject as error:
            self._handle.recorder.event(pod, "Warning", "InvalidMinRuntime", str(error))
            return False
        return self._now - self._start(pod) < least

    def _promised(self, pod: PodInfo) -> str | None:
        """What the pod or its workload says; workloads are asked once."""
        own = pod.annotations.get(MIN_RUNTIME)
        if own is not None or not pod.owners:
            return own
        owner = pod.owners[0].uid
        if owner not in self._by_owner:
            behind: Mapping[str, str] = self._handle.workload(pod)
            self._by_owner[owner] = behind.get(MIN_RUNTIME)
        return self._by_owner[owner]

    def _start(self, pod: PodInfo) -> float:
        return datetime.fromisoformat(pod.start_time).timestamp() if pod.start_time else self._now
