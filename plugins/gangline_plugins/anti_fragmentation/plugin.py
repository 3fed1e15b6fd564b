"""AntiFragmentation: prefers the nodes and devices on which a pod makes the fewest free GPUs useless for later pods."""

from __future__ import annotations

from collections.abc import Sequence

from gangline import (
    SKIP,
    Cycle,
    EventHint,
    Handle,
    KeptColumns,
    Membership,
    NodeView,
    PodInfo,
    ScoreColumn,
    Status,
    expected,
    hookimpl,
    requests,
)
from gangline_plugins.anti_fragmentation.arguments import AntiFragmentationArgs, typical_of
from gangline_plugins.anti_fragmentation.begun import Begun
from gangline_plugins.anti_fragmentation.gradient import Values
from gangline_plugins.anti_fragmentation.holes import Holes, Shares
from gangline_plugins.anti_fragmentation.offered import OfferedGpus
from gangline_plugins.anti_fragmentation.rating import AskedAmounts, Balanced, Published, score_of, worth_of
from gangline_plugins.anti_fragmentation.typical import PodHistory, PodKind, Typical, kind_of, typical
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.node_devices import WHOLE
from gangline_plugins.gpu.wants import Want

_KEPT_BYTES = 24 * 1024 * 1024
"""Memory for cached scores, one entry per kind of pod; at 5,000 nodes an entry takes 40 KiB."""
_NEWS = 0.05
"""The typical pods are computed anew when this fraction of the counted pods is newer."""


class AntiFragmentation:
    """Scores nodes. The scores of a kind of pod are cached, and computed again for nodes that have changed."""

    name = "AntiFragmentation"
    args_type = AntiFragmentationArgs

    def __init__(self, args: AntiFragmentationArgs, handle: Handle) -> None:
        self._handle = handle
        self._table = device_table(handle.state)
        self._offered = OfferedGpus(handle)
        self._rating_type = Published if args.score == "published" else Balanced
        self._given = typical_of(args.typical_pods) if args.typical_pods else None
        self._history: PodHistory[PodKind] = PodHistory(args.half_life_seconds, handle.clock.now())
        self._gangs: PodHistory[int] = PodHistory(args.half_life_seconds, handle.clock.now())
        """For each counted pod the number of GPUs of its whole gang; 0 if it is in none."""
        self._gang_news = 0.0
        self._shares: Shares = {}
        self._is_restored = False
        self._news = 0.0
        self._holes: Holes | None = None
        self._begun: Begun | None = None
        self._use(self._given or ())

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """No events: this plugin rejects no pods."""
        return ()

    @hookimpl
    def post_enqueue(self, pod: PodInfo) -> None:
        """Count the pod."""
        self._count(pod)

    @hookimpl
    def score(self, pod: PodInfo, nodes: NodeView) -> ScoreColumn:
        """0 to 100: higher where fewer free GPUs become useless, and for begun domains before others."""
        self._learn()
        asked = self._asked(pod)
        self._rating.gradient.refresh(nodes)
        (scores,) = self._scores.of(asked, nodes)
        if not asked.count or self._begun is None:
            return scores
        return self._begun.raised(self._charged(scores, nodes), nodes)

    def _charged(self, scores: Values, nodes: NodeView) -> Values:
        """The scores less the cost of breaking complete domains."""
        if self._holes is None:
            return scores
        charges = self._holes.charges(nodes, self._shares)
        if not len(charges.rows):
            return scores
        scores = scores.copy()
        scores[charges.rows] = score_of(worth_of(scores[charges.rows]) - charges.amounts)
        return scores

    @hookimpl
    def reserve(self, cycle: Cycle, pod: PodInfo, node: str) -> Status | None:
        """With the published score: give a pod of one GPU the device that was rated best, unless its claim names
        others.
        """
        if self._rating_type is Published and self._table.allocation(pod.uid) is not None:
            want = self._table.wants.of(pod)
            if isinstance(want, Want) and want.count == 1 and not want.rule.prefer_ids:
                self._move(pod)
        return None

    @hookimpl
    def reserve_all(self) -> Status | None:
        """Skip `reserve`, unless the published score is configured: only that score chooses devices itself."""
        return None if self._rating_type is Published else SKIP

    def _move(self, pod: PodInfo) -> None:
        asked, nodes, row = self._asked(pod), self._handle.nodes, pod.row
        with self._handle.state.transaction() as tx:
            tx.unplace(pod)
            self._rating.gradient.refresh(nodes)
            devices = self._rating.devices(asked, nodes.at(nodes.rows[row : row + 1]))
        self._table.move(pod, devices)

    def _asked(self, pod: PodInfo) -> AskedAmounts:
        want = self._table.wants.of(pod)
        cpu = pod.cls.requests.real.get(requests.CPU, 0)
        if want is None:
            count, milli = self._offered.wanted(pod)
            return AskedAmounts(cpu, min(count, MOST_DEVICES), milli if count else 0)
        if not isinstance(want, Want) or want.exclusivity in ("MIG", "Replicas"):
            return AskedAmounts(cpu)
        return AskedAmounts(cpu, min(want.count, MOST_DEVICES), self._milli(want))

    def _milli(self, want: Want) -> int:
        """Thousandths of a device; if the want is in memory, of the largest device."""
        if want.exclusivity != "Shared":
            return WHOLE
        largest = int(self._table.columns.memory_total.max()) if want.memory_mib else 0
        by_memory = -(-want.memory_mib * WHOLE // largest) if largest else 0
        return min(WHOLE, max(want.milli, by_memory, 1))

    # What is typical

    def _count(self, pod: PodInfo) -> None:
        if self._gangs.has_counted(pod.uid) and (self._given is not None or self._history.has_counted(pod.uid)):
            return  # the members of a gang are asked again in each attempt
        want = self._table.wants.of(pod)
        asked, now = self._asked(pod), self._handle.clock.now()
        self._gang_news += self._gangs.count(pod.uid, self._gpus_of_gang(pod, asked), now)
        if self._given is None:
            kind = kind_of(pod, asked.count, asked.milli, want.selector if isinstance(want, Want) else ())
            self._news += self._history.count(pod.uid, kind, now)

    def _gpus_of_gang(self, pod: PodInfo, asked: AskedAmounts) -> int:
        membership = self._handle.group_of(pod) if asked.count else None
        if not isinstance(membership, Membership):
            return 0
        return expected(membership.group) * asked.total // WHOLE

    def _learn(self) -> None:
        """Compute the typical pods anew when enough counted pods are new; the first time the running pods are counted
        too.
        """
        if not self._is_restored:
            self._is_restored = True
            for pod in self._handle.state.pods.values():
                self._count(pod)
        if self._given is None and self._news > _NEWS * self._history.weight:
            self._news = 0.0
            self._use(typical(self._history.counts()))
        if self._gang_news > _NEWS * self._gangs.weight:
            self._gang_news = 0.0
            counts, total = self._gangs.counts(), self._gangs.weight
            self._shares = {gpus: weight / total for gpus, weight in counts.items() if gpus}

    def _use(self, kinds: Typical) -> None:
        self.typical = kinds
        """The typical pods that placements leave GPUs for."""
        rating = self._rating = self._rating_type(kinds, self._table.columns, self._offered)
        self._scores: KeptColumns[AskedAmounts, tuple[Values]] = KeptColumns(
            lambda asked, nodes: (rating.scores(asked, nodes),),
            _KEPT_BYTES,
            own=(rating.gradient.repriced, self._offered.changes),
        )
        self._holes, self._begun = None, None
        if self._rating_type is Balanced:
            self._holes = Holes(self._rating.gradient, self._table.columns, self._handle.topology)
            self._begun = Begun(self._rating.gradient, self._table.columns, self._handle.topology)
