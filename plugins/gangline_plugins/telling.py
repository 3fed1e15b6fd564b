"""Reports each finding about a pod in one event only: plugins find the same fault again at every attempt."""

from __future__ import annotations

from gangline import Handle, PodInfo
from gangline_plugins.latest import Latest

_MOST = 10_000
"""At most this many reports are remembered; an older one may be repeated."""


class Told:
    """The reports so far, by UID of the pod."""

    def __init__(self) -> None:
        self._said: Latest[tuple[str, str, str], None] = Latest(_MOST)

    def is_first(self, uid: str, reason: str, note: str) -> bool:
        """Whether this report about this pod is new; it is remembered."""
        key = uid, reason, note
        is_first = key not in self._said
        self._said.keep(key, None)
        return is_first


class Teller:
    """Writes warning events, each finding once; shared by all plugins of the cluster."""

    def __init__(self, handle: Handle) -> None:
        self._recorder = handle.recorder
        self._told = handle.state.shared(Told)

    def once(self, pod: PodInfo, reason: str, note: str) -> bool:
        """Write a warning event on the pod unless it was written before; returns whether it was written."""
        is_first = self._told.is_first(pod.uid, reason, note)
        if is_first:
            self._recorder.event(pod, "Warning", reason, note)
        return is_first
