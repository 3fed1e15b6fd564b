"""Which pods of a group have a node: kept in step with every placement, hypothetical ones too."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from gangline.api.pod_group import Membership, Problem
from gangline.state.pods import PodInfo


class Grouping(Protocol):
    """Who knows which group a pod is in."""

    def of(self, pod: PodInfo) -> Membership | Problem | None:
        """The pod's group; a Problem where it names one that cannot be used."""
        ...

    def annotations(self, pod: PodInfo) -> Mapping[str, str]:
        """The annotations of a pod and of what owns it, the nearest winning."""
        ...

    @property
    def version(self) -> int:
        """Grows when an object changes that groups are read from."""
        ...


class PlacedMembers:
    """A tracker of the members of groups; a pod whose group was not known when it was placed is looked at again."""

    def __init__(self, groups: Grouping) -> None:
        self._groups = groups
        self.clear()

    def clear(self) -> None:
        """Nobody has a node."""
        self._by_key: dict[str, dict[str, PodInfo]] = {}
        self._key_of: dict[str, str] = {}
        self._unknown: dict[str, PodInfo] = {}
        self._version = -1

    def add(self, pod: PodInfo, row: int) -> None:
        """Pod is on row now."""
        membership = self._groups.of(pod)
        if isinstance(membership, Membership):
            key = membership.group.key
            self._key_of[pod.uid] = key
            self._by_key.setdefault(key, {})[pod.uid] = pod
        elif membership is not None:
            self._unknown[pod.uid] = pod

    def remove(self, pod: PodInfo, row: int) -> None:
        """Pod is no longer on row."""
        self._unknown.pop(pod.uid, None)
        key = self._key_of.pop(pod.uid, None)
        if key is not None:
            members = self._by_key[key]
            del members[pod.uid]
            if not members:
                del self._by_key[key]

    def of(self, key: str) -> Collection[PodInfo]:
        """The members of a group that have a node."""
        self._look_again()
        return self._by_key.get(key, _NOBODY).values()

    def groups(self) -> dict[str, dict[str, PodInfo]]:
        """The groups of which somebody has a node: key to members by UID; only to read."""
        self._look_again()
        return self._by_key

    def start_over(self, pods: Collection[PodInfo]) -> None:
        """Read the groups of all pods anew; for when everything has been listed."""
        self.clear()
        for pod in pods:
            if pod.row >= 0:
                self.add(pod, pod.row)

    def _look_again(self) -> None:
        if self._unknown and self._version != self._groups.version:
            self._version = self._groups.version
            unknown, self._unknown = self._unknown, {}
            for pod in unknown.values():
                self.add(pod, pod.row)


_NOBODY: dict[str, Any] = {}
