"""AntiFragmentation: prefer the node, and the devices on it, on which a pod spoils least for those that will come."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from gangline import Cycle, EventHint, Handle, NodeView, PodInfo, ScoreColumn, Status, hookimpl
from gangline.requests import CPU
from gangline_plugins.anti_fragmentation.arguments import AntiFragmentationArgs, typical_of
from gangline_plugins.anti_fragmentation.gradient import Values
from gangline_plugins.anti_fragmentation.rating import Asked, Balanced, Published
from gangline_plugins.anti_fragmentation.typical import WHOLE, History, Typical, kind_of
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.wants import Want

_KEPT = 512
"""Kinds of pods for which scores are kept; at 5,000 nodes one takes 40 KiB."""
_NEWS = 0.05
"""What is typical is worked out anew when so much of what was asked for is newer."""


@dataclass(slots=True, eq=False)
class _Kept:
    """Scores of one kind of pod, one per node."""

    scores: Values
    position: int
    """Of the log of changes."""


class AntiFragmentation:
    """Scores; the scores of a kind of pod are kept and worked out again for nodes that changed."""

    name = "AntiFragmentation"
    args_type = AntiFragmentationArgs

    def __init__(self, args: AntiFragmentationArgs, handle: Handle) -> None:
        self._handle = handle
        self._table = device_table(handle.state)
        self._rating_type = Published if args.score == "published" else Balanced
        self._given = typical_of(args.typical_pods) if args.typical_pods else None
        self._history = History(args.half_life_seconds, handle.clock.now())
        self._is_restored = False
        self._news = 0.0
        self._kept: OrderedDict[Asked, _Kept] = OrderedDict()
        self._rating = self._rating_type(self._given or (), self._table.columns)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """It rejects nothing."""
        return ()

    @hookimpl
    def pre_enqueue(self, pod: PodInfo) -> Status | None:
        """Count what is asked for."""
        if self._given is None:
            self._count(pod)
            self._learn()
        return None

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """0..100, over 50 where less is left that nobody can use."""
        self._learn()
        asked = self._asked(pod)
        self._rating.gradient.refresh(nodes)
        kept = self._kept.get(asked)
        if kept is None or not self._refresh(kept, asked, nodes):
            kept = self._kept[asked] = _Kept(self._rating.scores(asked, nodes), nodes.position)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(asked)
        return kept.scores

    @hookimpl
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """Give the pod the devices that were reckoned with, where those are not what it has already."""
        asked = self._asked(pod)
        if self._rating_type is Published and asked.count and self._table.allocation(pod.uid) is not None:
            self._move(pod, asked)
        return None

    def _move(self, pod: PodInfo, asked: Asked) -> None:
        nodes, row = self._handle.nodes, pod.row
        with self._handle.state.transaction() as tx:
            tx.unplace(pod)
            gradient = self._rating.gradient
            gradient.refresh(nodes)
            devices = self._rating.devices(asked, nodes.at(nodes.rows[row : row + 1]))
        self._table.move(pod, devices)

    def _refresh(self, kept: _Kept, asked: Asked, nodes: NodeView) -> bool:
        """Bring kept scores up to date; False when it is cheaper to work out all of them."""
        if len(kept.scores) != len(nodes):
            return False
        if kept.position == nodes.position:
            return True
        changed = nodes.changed_since(kept.position)
        if changed is None:
            return False
        kept.scores[changed] = self._rating.scores(asked, nodes.at(changed))
        kept.position = nodes.position
        return True

    def _asked(self, pod: PodInfo) -> Asked:
        want = self._table.wants.of(pod)
        cpu = pod.cls.requests.real.get(CPU, 0)
        if not isinstance(want, Want) or want.exclusivity in ("MIG", "Replicas"):
            return Asked(cpu)
        return Asked(cpu, want.count, self._milli(want))

    def _milli(self, want: Want) -> int:
        """Thousandths of a device; of the largest one where the want is in memory."""
        if want.exclusivity != "Shared":
            return WHOLE
        largest = int(self._table.columns.memory_total.max()) if want.memory_mib else 0
        by_memory = -(-want.memory_mib * WHOLE // largest) if largest else 0
        return min(WHOLE, max(want.milli, by_memory, 1))

    # What is typical

    def _count(self, pod: PodInfo) -> None:
        want = self._table.wants.of(pod)
        asked = self._asked(pod)
        kind = kind_of(pod, asked.count, asked.milli, want.selector if isinstance(want, Want) else ())
        self._news += self._history.count(pod.uid, kind, self._handle.clock.now())

    def _learn(self) -> None:
        """Work out what is typical, at first from the pods that run, later when enough is new."""
        if self._given is not None:
            return
        if not self._is_restored:
            self._is_restored = True
            for pod in self._handle.state.pods.values():
                self._count(pod)
        if self._news > _NEWS * self._history.weight:
            self._news = 0.0
            self._use(self._history.typical())

    def _use(self, kinds: Typical) -> None:
        self._rating = self._rating_type(kinds, self._table.columns)
        self._kept.clear()
