"""Says a thing about a pod once: what is found again at every look would else be an event at every look."""

from __future__ import annotations

from collections import OrderedDict

from gangline import Handle, PodInfo

_MOST = 10_000
"""Sayings that are remembered; older ones may be said again."""


class Told:
    """What has been said, by UID of the pod."""

    def __init__(self) -> None:
        self._said: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def is_first(self, uid: str, reason: str, note: str) -> bool:
        """Whether this was not said of this pod before; from now on it was."""
        key = uid, reason, note
        if key in self._said:
            self._said.move_to_end(key)
            return False
        self._said[key] = None
        if len(self._said) > _MOST:
            self._said.popitem(last=False)
        return True


class Teller:
    """Warns in events, of one thing once; together with all others of the cluster."""

    def __init__(self, handle: Handle) -> None:
        self._recorder = handle.recorder
        self._told = handle.state.shared(Told)

    def once(self, pod: PodInfo, reason: str, note: str) -> bool:
        """Warn of something in an event on the pod, unless that was done before; says whether it was not."""
        is_first = self._told.is_first(pod.uid, reason, note)
        if is_first:
            self._recorder.event(pod, "Warning", reason, note)
        return is_first
