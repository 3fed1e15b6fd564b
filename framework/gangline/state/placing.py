"""Puts pods on rows and takes them off: the columns count them, and the trackers are told.

Every placement and removal of a pod goes through this module. To put a pod on a row can fail, because a tracker may not
take the pod; then nothing has changed. To take a pod off, or to put it back where it was, cannot fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangline.failures import Failures, cause_of
from gangline.state.nodes import Nodes
from gangline.state.pods import PodInfo
from gangline.state.tracking import ToldTrackers, Trackers


class PlacedPods:
    """The nodes, the pods on them, and the trackers that are told of these pods."""

    def __init__(self, nodes: Nodes, failures: Failures) -> None:
        self.failures = failures
        self.nodes = nodes
        self.trackers = Trackers(failures)
        self._told = self.trackers.told
        self._pods: dict[str, PodInfo] = {}
        """Every pod that is bound or assumed, by UID."""

    def place(self, pod: PodInfo, row: int) -> None:
        """Put a pod on a row. If a tracker cannot take the pod, raises PluginError and changes nothing.

        Raises ValueError if the pod is on a row already, under another record.
        """
        self._check_absent(pod)
        self.nodes.place(pod, row)
        self._tell_of(pod, row, self._told(pod.cls))

    def _tell_of(self, pod: PodInfo, row: int, told: ToldTrackers) -> None:
        """Tell trackers of a pod that is on a row now. If one cannot take the pod, take it off: PluginError."""
        try:
            for add in told.adds:
                add(pod, row)
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            failed = add  # pyright: ignore[reportPossiblyUnboundVariable]  # only trackers raise
            found = self.trackers.take_back(told, failed, pod, row, error)
            self.nodes.unplace(pod)
            raise found from cause_of(error)

    def place_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """Put pods of one class on rows, all of them or none. Raises PluginError and ValueError as `place` does."""
        if not self._pods.keys().isdisjoint([pod.uid for pod in pods]):
            for pod in pods:
                self._check_absent(pod)
        self.nodes.place_all(pods, rows)
        try:
            self.trackers.add_all(self._told(pods[0].cls), pods, rows)
        except BaseException:
            for pod in reversed(pods):
                self.nodes.unplace(pod)
            raise

    def _check_absent(self, pod: PodInfo) -> None:
        """Raise ValueError if another record of the pod is on a row: both would count, and one removal end both."""
        known = self._pods.get(pod.uid)
        if known is not None and known.slot is not pod.slot and known.row >= 0:
            raise ValueError(f"{pod.key} cannot be put on a row: it is on row {known.row} already")

    def put_back(self, pod: PodInfo, row: int) -> None:
        """Put a pod back on the row where it was; this cannot fail."""
        self.nodes.place(pod, row)
        told = self._told(pod.cls)
        try:
            for add in told.adds:
                add(pod, row)
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            failed = add  # pyright: ignore[reportPossiblyUnboundVariable]  # only trackers raise
            self.trackers.go_on(told.adds, failed, pod, row, error)

    def unplace(self, pod: PodInfo) -> None:
        """Take a pod off its row. Every removal goes through this method; it cannot fail."""
        self._tell_off(pod, pod.row, self._told(pod.cls))
        self.nodes.unplace(pod)

    def _tell_off(self, pod: PodInfo, row: int, told: ToldTrackers) -> None:
        """Tell trackers that a pod leaves its row; this cannot fail."""
        try:
            for remove in told.removes:
                remove(pod, row)
        except BaseException as error:  # a plugin may raise anything, and must not stop the scheduler
            failed = remove  # pyright: ignore[reportPossiblyUnboundVariable]  # only trackers raise
            self.trackers.go_on(told.removes, failed, pod, row, error)
