"""Which waiting pods room is being made for, and on which nodes."""

from __future__ import annotations

from collections.abc import Container, Mapping

from gangline.state.pods import PodInfo

Nominations = Mapping[str, Mapping[str, PodInfo]]
"""Node name to the pods that room is being made for, by UID."""


class Nominated:
    """The nominations of waiting pods."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}

    @property
    def by_node(self) -> Nominations:
        """All of them."""
        return self._by_node

    def nominate(self, pod: PodInfo, node: str) -> None:
        """Room is being made for pod on a node; "" takes the nomination back."""
        before = self._node_of.pop(pod.uid, None)
        if before is not None:
            pods = self._by_node[before]
            del pods[pod.uid]
            if not pods:
                del self._by_node[before]
        if node:
            self._node_of[pod.uid] = node
            self._by_node.setdefault(node, {})[pod.uid] = pod

    def renew(self, pod: PodInfo) -> None:
        """The pod's newest record stands for it where it is nominated."""
        node = self._node_of.get(pod.uid)
        if node is not None:
            self._by_node[node][pod.uid] = pod


def without(placed: Container[str], nominated: Nominations) -> Nominations:
    """The nominations of pods that have no place, those `placed` being given by UID.

    A pod keeps its nomination until its binding is answered: it has a place before that, and must not be counted twice.
    """
    found = {}
    for node, pods in nominated.items():
        waiting = {uid: pod for uid, pod in pods.items() if uid not in placed}
        if waiting:
            found[node] = waiting
    return found
