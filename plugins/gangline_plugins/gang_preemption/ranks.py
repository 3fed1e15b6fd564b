"""Counts the pods that have a node by priority, so that a group of the lowest priority need not look at all pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from gangline import Handle, PodInfo, resources

_NAMING = (resources.POD_GROUPS_V1BETA1, resources.POD_GROUPS_V1ALPHA2)
"""The groups that may name a priority of their own, lower than the priorities of their pods."""
_Key = TypeVar("_Key")


class Ranks:
    """A tracker of the priorities of pods, and of the pods that are being deleted."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all pods."""
        self._priorities: Counter[int] = Counter()
        self._groups: Counter[tuple[str, str]] = Counter()
        """The pods of each group of Kubernetes, by namespace and name."""
        self._leaving: dict[str, None] = {}

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on the row now."""
        if pod.terminating:
            self._leaving[pod.uid] = None
            return
        self._priorities[pod.priority] += 1
        if pod.group:
            self._groups[pod.namespace, pod.group] += 1

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> bool:
        """As `add` for each of these pods of one class, and so of one priority; their groups may differ.

        Returns False, with nothing added, if one is being deleted.
        """
        if any([pod.terminating for pod in pods]):
            return False
        self._priorities[pods[0].priority] += len(pods)
        if grouped := [(pod.namespace, pod.group) for pod in pods if pod.group]:
            self._groups.update(grouped)
        return True

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on the row."""
        if pod.terminating:
            self._leaving.pop(pod.uid, None)
            return
        _less(self._priorities, pod.priority)
        if pod.group:
            _less(self._groups, (pod.namespace, pod.group))

    def counts_alike(self, known: PodInfo, newer: PodInfo) -> bool:
        """Whether both records are in one group, and of a pod that is being deleted or not."""
        return known.terminating == newer.terminating and known.group == newer.group

    def has_lower(self, priority: int, handle: Handle) -> bool:
        """Whether a pod or a group of lower priority may have a node: False is certain, True is not."""
        if self._priorities and min(self._priorities) < priority:
            return True
        return bool(self._groups) and any(named is not None and named < priority for named in self._named(handle))

    def _named(self, handle: Handle) -> Iterable[int | None]:
        """The priorities that the groups name."""
        stores = [store for kind in _NAMING if len(store := handle.state.store(kind))]
        for namespace, name in self._groups if stores else ():
            for store in stores:
                found = store.get(name, namespace)
                if found is not None:
                    yield found.spec.priority

    def leaving(self, handle: Handle) -> list[PodInfo]:
        """The pods that have a node and are being deleted."""
        if not self._leaving:
            return []
        pods = handle.state.pods
        return [pod for uid in self._leaving if (pod := pods.get(uid)) is not None and pod.row >= 0]


def _less(counts: Counter[_Key], key: _Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
