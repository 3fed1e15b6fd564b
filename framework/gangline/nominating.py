"""Which waiting pods room is being made for, and on which nodes."""

from __future__ import annotations

from collections.abc import Mapping

from gangline.pods import PodInfo


class Nominated:
    """The nominations of waiting pods."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}

    @property
    def by_node(self) -> Mapping[str, Mapping[str, PodInfo]]:
        """Node name to the pods nominated to it, by UID."""
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
