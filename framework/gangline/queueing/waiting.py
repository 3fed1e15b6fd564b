"""Pods that have been decided but are held at permit until every plugin that holds them allows them.

The profile that decides a pod (`Runtime`) adds the pod to `WaitingPods` when plugins hold it, and removes the pod when
its verdict is known or the decision is given back; nothing else adds or removes pods. The binder awaits the verdict,
while the scheduler decides on other pods. Plugins find the pod through their handle, and allow or reject it; the binder
rejects the pod when the time of a plugin is over. The first verdict stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gangline.state.pods import PodInfo
from gangline.status import SUCCESS, Status, unschedulable


class PodAtPermit:
    """One held pod. It goes on when no plugin holds it any more; the first rejection ends it."""

    def __init__(self, pod: PodInfo, node: str, plugins: Iterable[str]) -> None:
        self._pod = pod
        self._node = node
        self.plugins = frozenset(plugins)
        """The plugins that held the pod at first."""
        self._holding = set(self.plugins)
        self._verdict: Status | None = None
        self._tell: Callable[[Status], None] | None = None

    @property
    def pod(self) -> PodInfo:
        """The pod."""
        return self._pod

    @property
    def node(self) -> str:
        """The node that was chosen for the pod."""
        return self._node

    @property
    def holding(self) -> frozenset[str]:
        """The plugins that still hold the pod."""
        return frozenset(self._holding)

    def allow(self, plugin: str) -> None:
        """This plugin no longer holds the pod."""
        self._holding.discard(plugin)
        if not self._holding:
            self._decide(SUCCESS)

    def reject(self, plugin: str, why: str) -> None:
        """The pod must not be bound."""
        self._decide(unschedulable(why).by(plugin))

    @property
    def verdict(self) -> Status | None:
        """SUCCESS or the rejection; None while the pod is held."""
        return self._verdict

    def on_verdict(self, tell: Callable[[Status], None]) -> None:
        """Call `tell` with SUCCESS or the rejection when there is one; now if there is one already."""
        self._tell = tell
        if self._verdict is not None:
            tell(self._verdict)

    def _decide(self, status: Status) -> None:
        if self._verdict is None:
            self._verdict = status
            if self._tell is not None:
                self._tell(status)


class WaitingPods:
    """All held pods by UID; plugins reach it through their handle."""

    def __init__(self) -> None:
        self._pods: dict[str, PodAtPermit] = {}
        self._held: dict[str, dict[str, PodAtPermit]] = {}
        """For each plugin the pods that it holds, by UID, and some pods that it has allowed since."""

    def add(self, waiting: PodAtPermit) -> None:
        """Hold a pod."""
        self._pods[waiting.pod.uid] = waiting
        for plugin in waiting.plugins:
            self._held.setdefault(plugin, {})[waiting.pod.uid] = waiting

    def remove(self, uid: str) -> None:
        """The pod is no longer held."""
        waiting = self._pods.pop(uid, None)
        for plugin in waiting.plugins if waiting is not None else ():
            self._held.get(plugin, {}).pop(uid, None)

    def held_by(self, plugin: str) -> list[PodAtPermit]:
        """The pods that this plugin still holds."""
        held = self._held.pop(plugin, None)
        if held is None:
            return []
        held = {uid: waiting for uid, waiting in held.items() if plugin in waiting.holding}
        if held:
            self._held[plugin] = held
        return list(held.values())

    def get(self, uid: str) -> PodAtPermit | None:
        """The held pod with this UID, or None."""
        return self._pods.get(uid)

    def __iter__(self) -> Iterator[PodAtPermit]:
        return iter(list(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)
