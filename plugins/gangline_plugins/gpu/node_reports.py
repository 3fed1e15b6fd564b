"""The reports of the node agents: which GpuNodeStatus belongs to which row, and what it says of the node's devices."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Protocol

from gangline import State, custom_resources, model, resources
from gangline_plugins.gpu import hardware
from gangline_plugins.gpu.columns import Columns
from gangline_plugins.gpu.links import LinkClasses
from gangline_plugins.gpu.node_devices import NodeDevices
from gangline_plugins.latest import Latest

log = logging.getLogger(__name__)

_MOST_REMEMBERED = 20_000
"""The most deleted nodes of which the plugin remembers that they had a report."""


class Table(Protocol):
    """The owner of the devices of all rows."""

    def node_at(self, row: int) -> NodeDevices:
        """The devices of a row; empty ones if the row is new."""
        ...

    def settle(self, row: int, node: NodeDevices) -> None:
        """The hardware of a row has changed."""
        ...

    def vacate(self, row: int) -> None:
        """The node of a row was removed; no pod is on it any more."""
        ...


class NodeReports:
    """Follows nodes and their reports, and tells the table which hardware has changed."""

    def __init__(self, columns: Columns, classes: LinkClasses, state: State, table: Table) -> None:
        self.count = 0
        """Grows by 1 with each report of an agent, and with each report or node that is gone."""
        self.changed: list[Callable[[int], None]] = []
        """Called with the row of a node that reports its devices for the first time, or others than before."""
        self._columns = columns
        self._classes = classes
        self._state = state
        self._table = table
        self._store = state.store(resources.GPU_NODE_STATUSES)
        self._row_of: dict[str, int] = {}
        self._reports: dict[int, custom_resources.GpuNodeStatus] = {}
        self._had: Latest[str, None] = Latest(_MOST_REMEMBERED)
        """Names of nodes that are gone and had a report, the latest last."""

    def follow(self) -> None:
        """Read all nodes and reports, and from now on their changes."""
        self._state.follow_nodes(self)
        self._store.subscribe(self)

    def has(self, row: int) -> bool:
        """Whether the node of a row has a report."""
        return row in self._reports

    def reason(self, row: int, id: int) -> str:
        """Why a device is not healthy, in the words of its node's report; "" if the report gives no reason."""
        report = self._reports.get(row)
        devices = report.status.devices if report is not None else ()
        return next((device.reason for device in devices if device.id == id), "")

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node was added or has changed."""
        name = node.metadata.name
        devices = self._table.node_at(row)
        before = (devices.replicas, devices.mps, devices.mig_single)
        devices.label(node.metadata.labels or {})
        if self._row_of.get(name) != row:
            self._row_of[name] = row
            report: custom_resources.GpuNodeStatus | None = self._store.get(name)
            if report is not None:
                self._take(report, row, devices)
                return
            if name in self._had:  # its agent will report again
                self._lose(row)
        if before != (devices.replicas, devices.mps, devices.mig_single):
            self._table.settle(row, devices)

    def node_removed(self, name: str, row: int) -> None:
        """A node was removed; no pod is on it any more."""
        self._row_of.pop(name, None)
        had = self._reports.pop(row, None) is not None or self._columns.lost[row] > -math.inf
        self._columns.lost[row] = -math.inf
        self.count += 1
        if had:
            self._had.keep(name, None)
        self._table.vacate(row)

    def on_upsert(self, report: custom_resources.GpuNodeStatus) -> None:
        """An agent has reported."""
        row = self._row_of.get(report.metadata.name)
        if row is not None:
            self._take(report, row, self._table.node_at(row))

    def on_remove(self, report: custom_resources.GpuNodeStatus) -> None:
        """The report of a node was deleted."""
        row = self._row_of.get(report.metadata.name)
        if row is not None:
            node = self._table.node_at(row)
            node.hardware, node.problem = None, ""
            self._reports.pop(row, None)
            self._lose(row)
            self._table.settle(row, node)

    def _lose(self, row: int) -> None:
        """The node of a row has no report any more."""
        self._columns.lost[row] = math.inf
        self.count += 1

    def _take(self, report: custom_resources.GpuNodeStatus, row: int, node: NodeDevices) -> None:
        before = self._reports.get(row)
        self._reports[row] = report
        self._columns.lost[row] = -math.inf
        self._columns.heartbeat[row] = hardware.heartbeat(report)
        self.count += 1
        if before is not None and hardware.says_the_same(before, report):
            return
        found = hardware.read(report, self._classes)
        problem = found if isinstance(found, str) else ""
        if problem and problem != node.problem:
            log.warning("%s; pods with claims do not go to the node", problem)
        node.problem = problem
        node.hardware = None if isinstance(found, str) else found
        self._table.settle(row, node)
        if node.hardware is not None:
            for tell in self.changed:
                tell(row)
