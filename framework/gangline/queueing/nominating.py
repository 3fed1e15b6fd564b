"""The nominations: which waiting pods are meant for which nodes.

A waiting pod is nominated when a plugin makes room for the pod on a node, or when the pod's status.nominatedNodeName
names a node, whoever has written it. Plugins may also expect pods that a controller has yet to create in place of
others: see `PodInfo.anew`. Such pods are nominated too, so that other pods leave room for them, until the plugin ends
their nominations.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from gangline.state.pods import PodInfo

Nominations = Mapping[str, Mapping[str, PodInfo]]
"""The pods that are meant for each node, by node name and UID."""


class Nominated:
    """The nominations of waiting pods."""

    def __init__(self) -> None:
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        self._node_of: dict[str, str] = {}
        self._expected: dict[str, dict[str, PodInfo]] = {}
        """The pods that are yet to be created, by the key of their group and by UID."""

    @property
    def by_node(self) -> Nominations:
        """All nominations."""
        return self._by_node

    def nominate(self, pod: PodInfo, node: str) -> None:
        """The pod is meant for this node; "" takes the nomination back."""
        before = self._node_of.pop(pod.uid, None)
        if before is not None:
            pods = self._by_node[before]
            del pods[pod.uid]
            if not pods:
                del self._by_node[before]
        if node:
            self._node_of[pod.uid] = node
            self._by_node.setdefault(node, {})[pod.uid] = pod

    def elsewhere(self, uid: str, node: str) -> PodInfo | None:
        """The pod with this UID, if it is meant for another node than this one."""
        meant = self._node_of.get(uid, node)
        return None if meant == node else self._by_node[meant][uid]

    def expect(self, group: str, places: Iterable[tuple[PodInfo, str]]) -> list[PodInfo]:
        """Nominate pods of a group that are yet to be created, each to its node.

        They replace the pods that were expected for the group before. Returns the pods that are no longer expected, or
        not on the node where they were.
        """
        before, after = self._expected.pop(group, {}), dict(places)
        stay = {pod.uid for pod, node in after.items() if self._node_of.get(pod.uid) == node}
        for pod, node in after.items():
            self.nominate(pod, node)
        if after:
            self._expected[group] = {pod.uid: pod for pod in after}
        given_up = [pod for uid, pod in before.items() if uid not in stay]
        for pod in given_up:
            if pod.uid not in self._expected.get(group, {}):
                self.nominate(pod, "")
        return given_up

    def is_expected(self, group: str) -> bool:
        """Whether room is kept for pods of this group that are yet to be created."""
        return group in self._expected

    def changed(self, before: PodInfo, pod: PodInfo) -> None:
        """A waiting pod has a newer record. If its status names a node, or named one before, the status counts.

        If neither record's status names a node, the pod keeps its nomination: a plugin has made it, and it is still to
        be written to the status.
        """
        if pod.nominated_in_status or before.nominated_in_status:
            self.nominate(pod, pod.nominated_in_status)
        elif (node := self._node_of.get(pod.uid)) is not None:
            self._by_node[node][pod.uid] = pod


def without(placed: Container[str], is_incomplete: Callable[[str], bool], nominated: Nominations) -> Nominations:
    """The nominations of the pods that have no place yet; `placed` has the UIDs of the pods that have a place.

    A pod keeps its nomination until the API server answers its binding. It has a place before that answer comes, and
    must not be counted twice. `is_incomplete` says whether a pod waits for other members of its group to be created:
    such a pod keeps no room from others, as nobody knows whether the members will ever come.
    """
    found = {}
    for node, pods in nominated.items():
        waiting = {uid: pod for uid, pod in pods.items() if uid not in placed and not is_incomplete(uid)}
        if waiting:
            found[node] = waiting
    return found
