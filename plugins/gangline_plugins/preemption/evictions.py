"""The pods that are being evicted and are not terminating yet, for whoever has to know what will be free."""

from __future__ import annotations

from collections.abc import Iterable

from gangline import PodInfo, State


class Evictions:
    """All evictions that this process carries out now; shared by all plugins and profiles."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._uids: set[str] = set()

    def begin(self, victims: Iterable[PodInfo]) -> None:
        """These pods are going to be evicted."""
        self._uids.update(victim.uid for victim in victims)

    def end(self, victims: Iterable[PodInfo]) -> None:
        """These pods are not going to be evicted after all."""
        self._uids.difference_update(victim.uid for victim in victims)

    def under_way(self) -> frozenset[str]:
        """The UIDs of the pods that have a node and are about to terminate."""
        pods = self._state.pods
        self._uids = {uid for uid in self._uids if (pod := pods.get(uid)) is not None and not pod.terminating}
        return frozenset(self._uids)
