"""The nominations: which waiting pods are meant for which nodes, and whose room is free again.

A waiting pod is nominated when a plugin makes room for the pod on a node, or when the pod's status.nominatedNodeName
names a node, whoever has written it. Plugins may also expect pods that a controller has yet to create in place of
others: see `PodInfo.anew`. Such pods are nominated too, so that other pods leave room for them, until the plugin ends
their nominations.

A nominated pod keeps room unless it has a place already, or waits for other members of its group to be created. Nobody
else has to find out when room is free again: `take_freed` returns each pod that has kept room and keeps it no longer,
keeps it on another node, or counts otherwise there, for whatever reason. The queue tells others of these pods before
it hands out the next unit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping

from gangline.state.pods import PodInfo
from gangline.state.slots import nominate as name_in_slot

Nominations = Mapping[str, Mapping[str, PodInfo]]
"""The pods that are meant for each node, by node name and UID."""
_Meant = tuple[PodInfo, str]
"""A pod, and the node that it is meant for."""


def _nobody() -> None:
    """Nobody has to be woken."""


class Nominated:
    """The nominations of waiting pods.

    What decides whether a pod keeps room is looked at when somebody reads the nominations: only the outcome of a step
    counts, and not its order. `touch` is to be called when the place of a pod, or its group, may have changed.
    """

    def __init__(self, lacks_members: Callable[[str], bool]) -> None:
        """`lacks_members` says whether the pod with a UID waits for other members of its group to be created: such a
        pod keeps no room from others, as nobody knows whether the members will ever come.
        """
        self._lacks_members = lacks_members
        self._placed: Mapping[str, PodInfo] = {}
        self._wake = _nobody
        self._meant: dict[str, _Meant] = {}
        """All nominations, by UID."""
        self._expected: dict[str, dict[str, PodInfo]] = {}
        """The pods that are yet to be created, by the key of their group and by UID."""
        self._touched: dict[str, None] = {}
        """The UIDs of pods that may have begun or ceased to keep room."""
        self._keeping: dict[str, _Meant] = {}
        """The nominations that keep room, by UID; without regard to `_touched`."""
        self._by_node: dict[str, dict[str, PodInfo]] = {}
        """`_keeping` by node; replaced at a change, because others hold it."""
        self._freed: list[PodInfo] = []

    def follow(self, placed: Mapping[str, PodInfo], wake: Callable[[], None]) -> None:
        """`placed` has the pods that have a place, by UID; `wake` is called when room may be free again."""
        self._placed = placed
        self._wake = wake

    @property
    def by_node(self) -> Nominations:
        """The nominations that keep room from others.

        A pod keeps its nomination until the API server answers its binding. It has a place before that answer comes,
        and must not be counted twice.
        """
        self._look()
        return self._by_node

    @property
    def has_news(self) -> bool:
        """Whether `take_freed` may return something."""
        return bool(self._touched or self._freed)

    def take_freed(self, most: int = sys.maxsize) -> list[PodInfo]:
        """The pods whose room is free again, in whole or in part, each as it kept the room; each is returned once, and
        at most so many at a time.
        """
        self._look()
        freed, self._freed = self._freed[:most], self._freed[most:]
        return freed

    def touch(self, uid: str) -> None:
        """The place or the group of a pod may have changed."""
        if uid in self._meant or uid in self._keeping:
            self._touched[uid] = None
            self._wake()

    def touch_all(self, pods: Iterable[PodInfo]) -> None:
        """As `touch` for each."""
        if self._meant or self._keeping:
            for pod in pods:
                self.touch(pod.uid)

    def nominate(self, pod: PodInfo, node: str) -> None:
        """The pod is meant for this node; "" takes the nomination back."""
        if not (node or self._meant or self._keeping):
            return  # nobody is nominated, as in most clusters
        self._meant.pop(pod.uid, None)
        if node:
            self._meant[pod.uid] = (pod, node)
        self.touch(pod.uid)

    def expect(self, group: str, places: Iterable[tuple[PodInfo, str]]) -> None:
        """Nominate pods of a group that are yet to be created, each to its node.

        They replace the pods that were expected for the group before.
        """
        after = dict(places)
        for pod in self._expected.pop(group, {}).values():
            self.nominate(pod, "")
        for pod, node in after.items():
            self.nominate(pod, node)
        if after:
            self._expected[group] = {pod.uid: pod for pod in after}

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
        elif (meant := self._meant.get(pod.uid)) is not None:
            name_in_slot(pod.slot, meant[1])
            self.nominate(pod, meant[1])

    def _look(self) -> None:
        """Find out which of the touched pods keep room now, and whose room is free again."""
        if not self._touched:
            return
        touched, self._touched = self._touched, {}
        is_changed = False
        for uid in touched:
            before, now = self._keeping.get(uid), self._kept(uid)
            if before is now:
                continue
            is_changed = True
            if now is None:
                del self._keeping[uid]
            else:
                self._keeping[uid] = now
            if before is not None and self._frees(before, now):
                self._freed.append(before[0])
        if is_changed:
            self._by_node = {}
            for pod, node in self._keeping.values():
                self._by_node.setdefault(node, {})[pod.uid] = pod

    def _kept(self, uid: str) -> _Meant | None:
        """The nomination of a pod, if it keeps room."""
        meant = self._meant.get(uid)
        return None if meant is None or uid in self._placed or self._lacks_members(uid) else meant

    def _frees(self, before: _Meant, now: _Meant | None) -> bool:
        """Whether others may have room that was kept before; not if the pod itself has taken it."""
        pod, node = before
        placed = self._placed.get(pod.uid)
        if placed is not None and placed.node_name == node:
            return False
        return now is None or now[1] != node or not pod.counts_as(now[0])
