"""How placements on each leaf fared: a moving average per leaf, kept in a ConfigMap. No I/O here.

Rules:
- A group on a leaf is one placement. It counts 1 once all of its pods there run, and 0 as soon as one of them fails.
- A leaf without a known placement has the average 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from gangline import InvalidObject, PodInfo, texts

NEWS = 0.2
"""The weight of the newest placement; all older ones together have the rest."""
GOOD = 1.0
_DIGITS = 3


class DomainHistory:
    """The average of each leaf, by its path."""

    def __init__(self) -> None:
        self.version = 0
        self._averages: dict[str, float] = {}

    def of(self, leaf: str) -> float:
        """The average of a leaf, 0 to 1."""
        return self._averages.get(leaf, GOOD)

    def observe(self, leaf: str, ran: bool) -> None:
        """Add a placement that ran or failed."""
        average = (1 - NEWS) * self.of(leaf) + NEWS * float(ran)
        self._averages[leaf] = average
        self.version += 1

    def load(self, text: str) -> bool:
        """Take over written averages for leaves without a known placement; False if the text is invalid."""
        try:
            written = texts.from_json("history", text, dict[str, float])
        except InvalidObject:
            return False
        if not all(0.0 <= average <= 1.0 for average in written.values()):
            return False
        self._averages = written | self._averages
        self.version += 1
        return True

    def dump(self) -> str:
        """The text that `load` reads; leaves with the average 1 are left out."""
        kept = {leaf: round(average, _DIGITS) for leaf, average in sorted(self._averages.items())}
        return msgspec.json.encode({leaf: average for leaf, average in kept.items() if average < GOOD}).decode()


@dataclass(slots=True)
class _PodsOnLeaf:
    """The pods of one group on one leaf."""

    leaf: str
    waiting: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Pods that are not known to run yet: UID to namespace and name."""
    running: dict[str, tuple[str, str]] = field(default_factory=dict)
    has_run: bool = False
    has_failed: bool = False


class Observer:
    """Follows placed groups and adds their results to the history."""

    def __init__(self, history: DomainHistory) -> None:
        self._history = history
        self._placed: dict[tuple[str, str], _PodsOnLeaf] = {}

    def __len__(self) -> int:
        return len(self._placed)

    def placed(self, group: str, leaf: str, pod: PodInfo) -> None:
        """A pod of a group was bound to a node of a leaf."""
        placed = self._placed.setdefault((group, leaf), _PodsOnLeaf(leaf))
        placed.waiting[pod.uid] = (pod.namespace, pod.name)

    def look(self, pods: Mapping[str, PodInfo]) -> set[str]:
        """Note which pods run now. Returns the namespaces of pods that are gone: `ended` has to be called for these."""
        gone: set[str] = set()
        for placed in self._placed.values():
            for uid in [uid for uid in placed.waiting if uid in pods and pods[uid].phase == "Running"]:
                placed.running[uid] = placed.waiting.pop(uid)
            self._judge_running(placed)
            for followed in (placed.waiting, placed.running):
                gone.update(namespace for uid, (namespace, _) in followed.items() if uid not in pods)
        return gone

    def ended(self, namespace: str, phases: Mapping[str, str], pods: Mapping[str, PodInfo]) -> None:
        """Judge the pods of a namespace that are gone. `phases` gives the phase, by UID, of those that have ended; the
        others were deleted.
        """
        for placed in self._placed.values():
            for followed in (placed.waiting, placed.running):
                for uid in [uid for uid, (where, _) in followed.items() if where == namespace and uid not in pods]:
                    self._judge_ended(placed, phases.get(uid, ""))
                    del followed[uid]
            self._judge_running(placed)
        self._forget(key for key, placed in self._placed.items() if not placed.waiting and not placed.running)

    def _judge_running(self, placed: _PodsOnLeaf) -> None:
        if placed.running and not placed.waiting and not placed.has_run and not placed.has_failed:
            placed.has_run = True
            self._history.observe(placed.leaf, ran=True)

    def _judge_ended(self, placed: _PodsOnLeaf, phase: str) -> None:
        if phase == "Failed" and not placed.has_failed:
            placed.has_failed = True
            self._history.observe(placed.leaf, ran=False)
        elif phase == "Succeeded" and not placed.has_run and not placed.has_failed:
            placed.has_run = True
            self._history.observe(placed.leaf, ran=True)

    def _forget(self, keys: Iterable[tuple[str, str]]) -> None:
        for key in list(keys):
            del self._placed[key]
