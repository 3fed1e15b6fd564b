"""Which rows have pods of each owner, in a tracker, so trial placements count too.

An owner is identified by namespace and UID, because a pod of a different namespace may name the same UID.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangline import OwnerKey, PodInfo, key_of


class Siblings:
    """For each owner the number of its pods on each row."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start over with no pods."""
        self._rows: dict[OwnerKey, dict[int, int]] = {}

    def of(self, pod: PodInfo) -> Mapping[int, int]:
        """Row to the number of pods that the pod's owner manages there."""
        owner = pod.controller
        return self._rows.get(key_of(owner, pod.namespace), {}) if owner is not None else {}

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on row."""
        owner = pod.controller
        if owner is not None:
            rows = self._rows.setdefault(key_of(owner, pod.namespace), {})
            rows[row] = rows.get(row, 0) + 1

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> bool:
        """As `add` for each of these pods, which all have the same owners; else False, with nothing added."""
        owners = pods[0].owners
        if any([pod.owners != owners for pod in pods]):
            return False
        owner = pods[0].controller
        if owner is not None:
            there = self._rows.setdefault(key_of(owner, pods[0].namespace), {})
            for row in rows:
                there[row] = there.get(row, 0) + 1
        return True

    def counts_alike(self, known: PodInfo, newer: PodInfo) -> bool:
        """Whether both records have the same owners."""
        return known.owners == newer.owners

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on row."""
        owner = pod.controller
        if owner is None:
            return
        key = key_of(owner, pod.namespace)
        rows = self._rows[key]
        rows[row] -= 1
        if not rows[row]:
            del rows[row]
        if not rows:
            del self._rows[key]
