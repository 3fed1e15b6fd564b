"""The effect of draining nodes: where each of their pods would go, and which pods would wait.

The pods are removed from their nodes in a transaction. Pods that a controller would create again are placed by the
search that decides units, the pods of the highest priority first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from gangline.commands.judging import Judged
from gangline.errors import ConfigError
from gangline.groups.gpu_count import gpus_of
from gangline.plurals import known_nodes
from gangline.profile.runtime import Runtime
from gangline.state.cache import Cache
from gangline.state.pods import PodInfo
from gangline.state.transaction import Transaction

_TIED = frozenset(("DaemonSet", "Node"))
"""Controllers whose pods belong to one particular node, and stay there."""
_NO_ROOM = "would wait: no other node has room"


class DrainMove(msgspec.Struct, frozen=True, rename="camel"):
    """A pod whose controller creates it again on another node."""

    pod: str
    source: str
    destination: str
    gpus: int


class DrainLoss(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that has no node after the drain, and why."""

    pod: str
    source: str
    gpus: int
    why: str


class Drain(msgspec.Struct, frozen=True, rename="camel"):
    """The effect of draining some nodes."""

    nodes: list[str]
    moves: list[DrainMove]
    losses: list[DrainLoss]
    gpus_moved: int
    gpus_lost: int
    """GPUs that the pods without a node use now."""


@dataclass(frozen=True, slots=True)
class _Evicted:
    """Evicted pods that are placed again together: one pod, or the evicted members of one group."""

    runtime: Runtime
    group: str
    """The key of the group; "" for a pod on its own."""
    pods: list[PodInfo] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)


def drain(judged: Judged, names: Sequence[str]) -> Drain:
    """Cordon the named nodes of the listed cluster, and return the effect on their pods. Raises ConfigError."""
    nodes = list(dict.fromkeys(names))
    draining = _Draining(judged, [_cordoned(judged.cluster, name) for name in nodes])
    with judged.cluster.transaction() as tx:
        for unit in draining.evict(tx):
            draining.place(unit, tx)
    moved, lost = (sum(each.gpus for each in pods) for pods in (draining.moves, draining.losses))
    return Drain(nodes, draining.moves, draining.losses, moved, lost)


def _cordoned(cluster: Cache, name: str) -> int:
    """Cordon the node with this name in the listed cluster; returns its row. Raises ConfigError."""
    row = cluster.nodes.row_of(name)
    node = cluster.nodes.objects[row] if row is not None else None
    if node is None:
        names = [each.metadata.name for each in cluster.nodes.objects if each is not None]
        raise ConfigError("--drain", name, f"there is no such node; {known_nodes(names)}")
    return cluster.upsert_node(
        msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, unschedulable=True))
    )


class _Draining:
    """Removes the pods of some rows of nodes, and places them on other rows."""

    def __init__(self, judged: Judged, rows: Sequence[int]) -> None:
        self.moves: list[DrainMove] = []
        self.losses: list[DrainLoss] = []
        self._judged = judged
        self._cluster = judged.cluster
        self._rows = rows
        self._allowed = self._cluster.nodes.alive[: self._cluster.nodes.size].copy()
        self._allowed[np.array(rows, dtype=np.intp)] = False

    def evict(self, tx: Transaction) -> list[_Evicted]:
        """Remove the pods from their nodes; returns the pods to be placed again, the highest priority first."""
        units: dict[str, _Evicted] = {}
        for row in self._rows:
            for pod in list(self._cluster.nodes.pods_on[row].values()):
                if pod.controller is not None and pod.controller.kind in _TIED:
                    continue
                tx.unplace(pod)
                if not pod.terminating:
                    self._sort_out(pod, self._cluster.nodes.names[row], units)
        return sorted(units.values(), key=lambda each: -max(pod.priority for pod in each.pods))

    def _sort_out(self, pod: PodInfo, source: str, units: dict[str, _Evicted]) -> None:
        """Put an evicted pod beside the other evicted members of its group, or among the losses."""
        runtime = self._judged.runtimes.get(pod.scheduler_name)
        if pod.controller is None:
            self._lose(pod, source, "would be gone: no controller makes it anew")
        elif runtime is None:
            self._lose(pod, source, f"would be placed by another scheduler: {pod.scheduler_name}")
        else:
            group = runtime.group_key(pod)
            unit = units.setdefault(group or pod.uid, _Evicted(runtime, group))
            unit.pods.append(pod)
            unit.sources.append(source)

    def _lose(self, pod: PodInfo, source: str, why: str) -> None:
        self.losses.append(DrainLoss(pod.key, source, gpus_of(pod, self._cluster), why))

    def place(self, unit: _Evicted, tx: Transaction) -> None:
        """Place the pods that replace the evicted ones, if there is room for all pods of the unit."""
        made = [pod.anew() for pod in unit.pods]
        places = unit.runtime.handle.find_places(made, self._allowed) or {}
        why = "" if places else self._why(unit)
        for pod, source in zip(made, unit.sources, strict=True):
            if pod.uid not in places:
                self._lose(pod, source, why)
                continue
            tx.place(pod, places[pod.uid])
            destination = self._cluster.nodes.names[pod.row]
            self.moves.append(DrainMove(pod.key, source, destination, gpus_of(pod, self._cluster)))

    def _why(self, unit: _Evicted) -> str:
        """Why evicted pods have no node: those of a gang may have to be near members that run on."""
        if not unit.group:
            return _NO_ROOM
        others = [*unit.runtime.handle.members(unit.group)]
        if not others:
            return _NO_ROOM
        with self._cluster.transaction() as tx:
            for pod in others:
                tx.unplace(pod)
            whole = [pod.anew() for pod in (*unit.pods, *others)]
            has_room = unit.runtime.handle.find_places(whole, self._allowed) is not None
        elsewhere = "; the gang as a whole would have room elsewhere" if has_room else ""
        return f"{_NO_ROOM} beside the other pods of its gang{elsewhere}"
