"""Remedies by repaired nodes: nodes that are uncordoned, or ready, or whose GPUs are all healthy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import numpy as np

from gangline import model
from gangline.errors import InvalidObject
from gangline.kube.resources import GPU_NODE_STATUSES
from gangline.plurals import listed
from gangline.remedies.bisecting import first_that_does
from gangline.remedies.remedy import Remedy, RemedyCost, RemedyKind
from gangline.remedies.trying import Trial
from gangline.state.cache import Cache
from gangline.state.node_view import Rows
from gangline.state.taints import TaintKey
from gangline.state.transaction import Transaction
from gangline.status import BoolColumn
from gangline.wire.custom_resources import AMD_GPU, GPU, GpuNodeStatus

CONDITIONS = "node.kubernetes.io/"
"""Prefix of the keys of taints by which Kubernetes marks nodes that are cordoned, not ready or under pressure."""
GPUS = (GPU, AMD_GPU)
"""Resources whose amounts are whole GPUs."""
_MOST_LOOKED_AT = 64
"""Faulty nodes that are considered, at most: those with the most GPUs."""
_MOST_NODES = 16
"""Nodes that are repaired together, at most."""
_MOST_SINGLE = 8
"""Nodes that are tried alone, at most."""
_MOST_SHOWN = 3
"""Nodes that would help alone and are shown, at most."""


def is_condition(taint: TaintKey) -> bool:
    """Whether Kubernetes sets the taint for a condition of the node, and takes it off again."""
    return taint.key.startswith(CONDITIONS)


def repair_nodes(trial: Trial) -> Iterator[Remedy]:
    """Some nodes each of which would help alone; if there is none, the fewest nodes that would help together."""
    faults = _Faults(trial.cache)
    rows = faults.rows[np.argsort(-_promise(trial, faults), kind="stable")][:_MOST_NODES]
    single = [row for row in rows[:_MOST_SINGLE].tolist() if faults.help(trial, [row])][:_MOST_SHOWN]
    for row in single:
        yield _remedy(trial, faults, [row])
    if single:
        return
    number = first_that_does(len(rows) - 1, lambda number: faults.help(trial, rows[: number + 2].tolist()))
    if number is not None:
        yield _remedy(trial, faults, _fewest(trial, faults, rows[: number + 2].tolist()))


def _fewest(trial: Trial, faults: _Faults, rows: list[int]) -> list[int]:
    """These rows without those whose repair is not needed: each row is left out on trial."""
    for row in list(rows):
        without = [other for other in rows if other != row]
        if without and faults.help(trial, without):
            rows = without
    return rows


def _promise(trial: Trial, faults: _Faults) -> np.ndarray:
    """By faulty row: for how many pods of the unit it would have room if all of these rows were repaired."""
    with trial.cache.transaction() as tx:
        for row in faults.rows.tolist():
            faults.repair(row, tx)
        return trial.capacity()[faults.rows]


class _Faults:
    """The nodes that are cordoned, not ready, under pressure, or have a GPU that is not healthy."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        nodes, size = cache.nodes, cache.nodes.size
        marked = np.array([any(map(is_condition, taints)) for taints in nodes.taint_sets], dtype=np.bool_)
        faulty: BoolColumn = nodes.unschedulable[:size] | marked[nodes.taints[:size]]
        self._reports: dict[int, GpuNodeStatus] = {}
        self._newest = ""
        for report in cache.store(GPU_NODE_STATUSES):  # one for each node with an agent, once for a question
            row = nodes.row_of(report.metadata.name)
            self._newest = max(self._newest, report.status.heartbeat_time)
            if row is not None and any(device.health != "Healthy" for device in report.status.devices):
                self._reports[row] = report
        faulty[list(self._reports)] = True
        rows = np.flatnonzero(faulty & nodes.alive[:size])
        gpus = nodes.allocatable[nodes.axis.row(GPU), rows]
        self.rows: Rows = rows[np.argsort(-gpus, kind="stable")][:_MOST_LOOKED_AT]

    def help(self, trial: Trial, rows: Sequence[int]) -> bool:
        """Whether the unit would start if these rows were repaired."""
        if trial.is_over:
            return False
        with self._cache.transaction() as tx:
            for row in rows:
                self.repair(row, tx)
            return trial.starts()

    def repair(self, row: int, tx: Transaction) -> None:
        """Replace the node in the row, and its report, by sound ones until the transaction is undone."""
        node, reports = self._cache.nodes.objects[row], self._cache.store(GPU_NODE_STATUSES)
        if node is None:
            return
        try:
            self._cache.upsert_node(_sound(node))
        except InvalidObject:  # the capacity is read nowhere else, so it may be invalid
            return
        tx.on_rollback(partial(self._put_back, node))
        report = self._reports.get(row)
        if report is not None:
            tx.on_rollback(partial(reports.upsert, report))
            reports.upsert(_healthy(report, self._newest))

    def _put_back(self, node: model.Node) -> None:
        self._cache.upsert_node(node)

    def of(self, row: int) -> list[str]:
        """The faults of the node in the row, in words."""
        node, report = self._cache.nodes.objects[row], self._reports.get(row)
        if node is None:
            return []
        keys = [taint.key.removeprefix(CONDITIONS) for taint in node.spec.taints if taint.key.startswith(CONDITIONS)]
        found = ["cordoned"] if node.spec.unschedulable else []
        found += [key for key in dict.fromkeys(keys) if key != "unschedulable" or not found]
        bad = [device.id for device in report.status.devices if device.health != "Healthy"] if report else []
        return found + ([f"GPU {', '.join(map(str, bad))} not healthy"] if bad else [])


def _sound(node: model.Node) -> model.Node:
    """The node without faults: all GPUs in its capacity are allocatable."""
    taints = [taint for taint in node.spec.taints if not taint.key.startswith(CONDITIONS)]
    capacity, offered = node.status.capacity or {}, node.status.allocatable
    whole = {name: capacity[name] for name in GPUS if name in capacity}
    return msgspec.structs.replace(
        node,
        spec=msgspec.structs.replace(node.spec, unschedulable=False, taints=taints),
        status=msgspec.structs.replace(node.status, allocatable={**(offered or {}), **whole}),
    )


def _healthy(report: GpuNodeStatus, heartbeat: str) -> GpuNodeStatus:
    """The report with healthy devices, as recent as the most recent of all reports."""
    devices = [msgspec.structs.replace(device, health="Healthy", reason="") for device in report.status.devices]
    status = msgspec.structs.replace(
        report.status, devices=devices, healthy=len(devices), heartbeat_time=heartbeat or report.status.heartbeat_time
    )
    return msgspec.structs.replace(report, status=status)


def _remedy(trial: Trial, faults: _Faults, rows: Sequence[int]) -> Remedy:
    found = {trial.cache.nodes.names[row]: faults.of(row) for row in rows}
    said = [f"{name} ({', '.join(wrong)})" for name, wrong in found.items()]
    whose = "node" if len(rows) == 1 else f"{len(rows)} nodes"
    sentence = f"Repair or uncordon {whose} {listed(said)}."
    return Remedy(RemedyKind.REPAIR_NODES, sentence, {"nodes": found}, RemedyCost(changed=len(rows)))
