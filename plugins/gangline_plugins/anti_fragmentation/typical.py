"""The kinds of pods that users typically create, and how popular each kind is: given as arguments, or counted.

Rules:
- A kind consists of the properties that this plugin's scores depend on: CPU, GPUs, and accepted nodes. Memory is left
  to filters.
- Popularities sum to 1. Rare kinds, together 5 % of all pods, are left out.
- Counts decay: a pod counted one half-life ago counts half as much as a new one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from gangline import BoolColumn, BoundedCache, NodeView, PodInfo, model, node_selection, requests, size_of
from gangline_plugins.latest import Latest

COVERAGE = 0.95
_SEEN = 65_536
"""At most this many pods are remembered as counted."""
_MOST_HALF_LIVES = 512.0
_KINDS_BYTES = 8 * 1024 * 1024
"""Memory for the counted kinds: thousands of them, or tens of thousands if they do not name nodes."""


class Where(msgspec.Struct, frozen=True):
    """The nodes that a kind accepts."""

    labels: tuple[tuple[str, str], ...] = ()
    required: bytes = b""
    """A NodeSelector in msgpack; empty for all nodes."""

    def matches(self, nodes: NodeView) -> BoolColumn:
        """For each node whether it is accepted."""
        mask = node_selection.match_labels(dict(self.labels), nodes)
        return mask & node_selection.match_selector(_selector(self.required), nodes) if self.required else mask


ANYWHERE = Where()


class PodKind(msgspec.Struct, frozen=True):
    """The amounts that pods of one kind ask for."""

    cpu: int
    """Milli-CPU."""
    count: int = 0
    """GPUs."""
    milli: int = 0
    """Thousandths of each GPU; 0 without GPUs."""
    where: Where = ANYWHERE


_NONE: tuple[None, PodKind | None] = None, None

Typical = tuple[tuple[PodKind, float], ...]
"""Kinds with their popularity, the most popular first."""


def kind_of(pod: PodInfo, count: int, milli: int, selector: tuple[tuple[str, str], ...]) -> PodKind:
    """The kind of a pod that takes so many thousandths of so many devices, on nodes with the selector's labels."""
    asked = count, milli, selector
    before, found = pod.cls.memo.get(PodKind, _NONE)  # the last one alone: claims may have any number of selectors
    if found is None or before != asked:
        cpu = pod.cls.requests.real.get(requests.CPU, 0)
        found = PodKind(cpu, count, milli, _where(pod.spec, selector)) if count else PodKind(cpu)
        pod.cls.memo[PodKind] = asked, found
    return found


def typical(counts: Mapping[PodKind, float], coverage: float = COVERAGE) -> Typical:
    """The most frequent kinds, until they cover this fraction of all pods."""
    total = sum(counts.values())
    found, covered = [], 0.0
    for kind, count in sorted(counts.items(), key=lambda item: _place(*item), reverse=True):
        if covered >= coverage * total:
            break
        found.append((kind, count))
        covered += count
    return tuple((kind, (count / total) / (covered / total)) for kind, count in found)


Counted = TypeVar("Counted", bound=Hashable)


class PodHistory(Generic[Counted]):
    """Counts pods by kind or by a different key, each pod once, with decay."""

    def __init__(self, half_life: float, now: float) -> None:
        self._half_life = half_life
        """Seconds."""
        self._start = now
        self._counts: dict[Counted, float] = {}
        self._bytes = 0
        """The memory of the keys of `_counts`."""
        self._seen: Latest[str, None] = Latest(_SEEN)
        self.weight = 0.0
        """The sum of all counts, in units that grow with time."""

    def has_counted(self, uid: str) -> bool:
        """Whether a pod was counted recently."""
        if uid not in self._seen:
            return False
        self._seen.move_to_end(uid)
        return True

    def count(self, uid: str, kind: Counted, now: float) -> float:
        """Count a pod unless it was counted before; returns its weight."""
        if self.has_counted(uid):
            return 0.0
        self._seen.keep(uid, None)
        age = (now - self._start) / self._half_life
        if age > _MOST_HALF_LIVES:  # no float is larger than 2.0 ** 1024, and no pod may have come for long
            self._rescale(2.0 ** min(age, 2 * _MOST_HALF_LIVES - 1))
            self._start, age = now, 0.0
        weight: float = 2.0**age
        if kind not in self._counts:
            self._bytes += size_of(kind)
        self._counts[kind] = self._counts.get(kind, 0.0) + weight
        self.weight += weight
        if self._bytes > _KINDS_BYTES:
            self._forget_rare()
        return weight

    def counts(self) -> Mapping[Counted, float]:
        """The present weight of each kind, in units of `weight`."""
        return self._counts

    def _forget_rare(self) -> None:
        """Forget the kinds with the lowest weights, until half of the memory is free."""
        kept: dict[Counted, float] = {}
        self._bytes = 0
        for kind, weight in sorted(self._counts.items(), key=lambda item: item[1], reverse=True):
            self._bytes += size_of(kind)
            if self._bytes > _KINDS_BYTES // 2:
                break
            kept[kind] = weight
        self._counts, self.weight = kept, sum(kept.values())

    def _rescale(self, unit: float) -> None:
        """Count in larger units from now on; kinds whose weight becomes 0 are forgotten."""
        counts = {kind: weight / unit for kind, weight in self._counts.items()}
        self._counts = {kind: weight for kind, weight in counts.items() if weight > 1e-6}
        self.weight = sum(self._counts.values())


def cpu_per_gpu(kinds: Iterable[tuple[PodKind, float]]) -> float:
    """Milli-CPU that typical pods with GPUs take per thousandth of a GPU; 0 if unknown."""
    with_gpu = [(kind, popularity) for kind, popularity in kinds if kind.count]
    gpu = sum(popularity * kind.count * kind.milli for kind, popularity in with_gpu)
    return sum(popularity * kind.cpu for kind, popularity in with_gpu) / gpu if gpu else 0.0


def models(label: str, values: Iterable[str]) -> Where:
    """Nodes whose label has one of these values."""
    requirement = model.Requirement(key=label, operator="In", values=list(values))
    term = model.NodeSelectorTerm(match_expressions=[requirement])
    return Where(required=msgspec.msgpack.encode(model.NodeSelector(node_selector_terms=[term])))


def _where(spec: model.PodSpec, selector: tuple[tuple[str, str], ...]) -> Where:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required if affinity else None
    labels = tuple(sorted({*selector, *(spec.node_selector or {}).items()}))
    return Where(labels, msgspec.msgpack.encode(required) if required else b"")


def _place(kind: PodKind, count: float) -> tuple[float, int, int, int, tuple[tuple[str, str], ...], bytes]:
    return (count, kind.cpu, kind.milli, kind.count, kind.where.labels, kind.where.required)


_selectors: BoundedCache[bytes, model.NodeSelector] = BoundedCache(4 * 1024 * 1024)
"""Thousands of usual ones."""


def _selector(required: bytes) -> model.NodeSelector:
    found = _selectors.get(required)
    if found is None:
        found = _selectors.put(required, msgspec.msgpack.decode(required, type=model.NodeSelector))
    return found
