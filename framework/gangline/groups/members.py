"""Which pods of a group have a node: updated with every placement, including hypothetical ones.

Each profile has one `PlacedMembers`, a tracker of the cluster's state. So within a transaction it counts the placements
of the transaction too, and afterwards it is as before. A pod may be placed before the object that describes its group
is known, for example while everything is listed. Such a pod is looked at again when objects of groups have changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from gangline.api.pod_group import Membership, Problem
from gangline.state.pods import PodInfo

_SLICE = 200
"""Pods whose groups one step reads, in some milliseconds."""


class Grouping(Protocol):
    """Finds the group of a pod."""

    def of(self, pod: PodInfo) -> Membership | Problem | None:
        """The pod's group; a Problem if the pod names a group that cannot be used."""
        ...

    def annotations(self, pod: PodInfo) -> Mapping[str, str]:
        """The annotations of a pod and of its owners; the nearest one wins."""
        ...

    @property
    def version(self) -> int:
        """Grows when an object changes from which groups are read."""
        ...


class GroupMembers:
    """Pods by the keys of their groups; a pod whose group was unknown when it was added is looked at again."""

    def __init__(self, groups: Grouping) -> None:
        self._groups = groups
        self.clear()

    def clear(self) -> None:
        """Forget all pods."""
        self._by_key: dict[str, dict[str, PodInfo]] = {}
        self._key_of: dict[str, str] = {}
        self._unknown: dict[str, PodInfo] = {}
        self._version = -1

    def add(self, pod: PodInfo, row: int) -> None:
        """Add a pod; the row does not matter."""
        membership = self._groups.of(pod)
        if isinstance(membership, Membership):
            key = membership.group.key
            self._key_of[pod.uid] = key
            self._by_key.setdefault(key, {})[pod.uid] = pod
        elif membership is not None:
            self._unknown[pod.uid] = pod

    def add_all(self, pods: Iterable[PodInfo]) -> None:
        """Add pods: as `add` for each, in half the time, as most of them are in one group."""
        group, key, members = None, "", dict[str, PodInfo]()
        group_of, key_of = self._groups.of, self._key_of
        for pod in pods:
            membership = group_of(pod)
            if isinstance(membership, Membership):
                if membership.group is not group:
                    group = membership.group
                    key = group.key
                    members = self._by_key.setdefault(key, {})
                key_of[pod.uid] = key
                members[pod.uid] = pod
            elif membership is not None:
                self._unknown[pod.uid] = pod

    def remove(self, pod: PodInfo, row: int) -> None:
        """Forget a pod, if it was added."""
        self._unknown.pop(pod.uid, None)
        key = self._key_of.pop(pod.uid, None)
        if key is not None:
            members = self._by_key[key]
            del members[pod.uid]
            if not members:
                del self._by_key[key]

    def has(self, pod: PodInfo) -> bool:
        """Whether the pod is in a group, or may be."""
        return pod.uid in self._key_of or pod.uid in self._unknown

    def of(self, key: str) -> Collection[PodInfo]:
        """The pods of a group."""
        self._look_again()
        return self._by_key.get(key, _NOBODY).values()

    def groups(self) -> dict[str, dict[str, PodInfo]]:
        """The groups that have pods here: key to pods by UID; read-only."""
        self._look_again()
        return self._by_key

    def _look_again(self) -> None:
        if self._unknown and self._version != self._groups.version:
            self._version = self._groups.version
            unknown, self._unknown = self._unknown, {}
            for pod in unknown.values():
                self.add(pod, pod.row)


class PlacedMembers:
    """Tracks the members of groups that have a node, and among them the members that are being deleted.

    A member that is being deleted does no work for its group any more, and another pod takes its place. It may still
    be on its node for long, for ever if nobody hears of the node.
    """

    def __init__(self, groups: Grouping) -> None:
        self._groups = groups
        self._staying = GroupMembers(groups)
        self._leaving = GroupMembers(groups)

    def clear(self) -> None:
        """Forget all placements."""
        self._staying.clear()
        self._leaving.clear()

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on the row now."""
        (self._leaving if pod.terminating else self._staying).add(pod, row)

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> bool:
        """As `add` for each of these pods, none of which is being deleted; else False, with nothing added."""
        if any([pod.terminating for pod in pods]):
            return False
        self._staying.add_all(pods)
        return True

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on the row."""
        self._staying.remove(pod, row)
        self._leaving.remove(pod, row)

    def of(self, key: str) -> Collection[PodInfo]:
        """The members of a group that have a node and are not being deleted."""
        return self._staying.of(key)

    def leaving(self, key: str) -> Collection[PodInfo]:
        """The members of a group that are being deleted and are still on their nodes."""
        return self._leaving.of(key)

    def groups(self) -> dict[str, dict[str, PodInfo]]:
        """The groups with members that `of` has: key to members by UID; read-only."""
        return self._staying.groups()

    def start_over(self, pods: Mapping[str, PodInfo]) -> Iterator[None]:
        """Read the groups of all pods, by UID, anew, after all objects have been listed; a slice at each step."""
        for number, uid in enumerate(list(pods), 1):
            pod = pods.get(uid)  # the newest record: `add` is not called for changes that no tracker counts
            if pod is not None and pod.row >= 0 and not self._is_in_none(pod):
                self.remove(pod, pod.row)
                self.add(pod, pod.row)
            if number % _SLICE == 0:
                yield

    def _is_in_none(self, pod: PodInfo) -> bool:
        """Whether the pod is in no group, as most pods are, and was in none before."""
        return self._groups.of(pod) is None and not self._staying.has(pod) and not self._leaving.has(pod)


_NOBODY: dict[str, Any] = {}
