"""NodePorts: two pods on a node cannot use the same host port."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from gangline import (
    NODE,
    SKIP,
    SPECS,
    Action,
    CodeColumn,
    EventHint,
    Handle,
    NodeView,
    PodClass,
    PodInfo,
    Reason,
    Status,
    codes,
    hookimpl,
    on,
)

ANY_ADDRESS = "0.0.0.0"
Port = tuple[str, int]
"""Protocol and number."""


class NodePorts:
    """Keeps, for each port in use, the nodes and addresses that use it."""

    name = "NodePorts"
    reads = NODE | SPECS
    reasons = (Reason("node(s) didn't have free ports for the requested pod ports"),)

    def __init__(self, handle: Handle) -> None:
        self._used = handle.state.tracker(PortsInUse)

    @hookimpl
    def events_to_register(self) -> Sequence[EventHint]:
        """A deleted pod, or a new node."""
        return (
            on(
                "pods",
                Action.DELETE,
                lambda pod, old, new: old is None or bool(host_ports(old.cls)),
            ),
            on("nodes", Action.ADD),
        )

    @hookimpl
    def pre_filter(self, pod: PodInfo) -> Status | None:
        """Skip the filter for pods without host ports."""
        return None if host_ports(pod.cls) else SKIP

    @hookimpl
    def filter(self, pod: PodInfo, nodes: NodeView) -> CodeColumn:
        """Nodes on which one of the ports is taken."""
        taken = self._used.rows_in_conflict(host_ports(pod.cls))
        return codes(np.isin(nodes.rows, list(taken)))


class PortsInUse:
    """Port to row to addresses, kept in step with the pods."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start over with no pods."""
        self._rows: defaultdict[Port, dict[int, Counter[str]]] = defaultdict(dict)

    def concerns(self, cls: PodClass) -> bool:
        """Whether pods of this class use host ports."""
        return bool(host_ports(cls))

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod's ports are in use on row."""
        for address, port in host_ports(pod.cls):
            self._rows[port].setdefault(row, Counter())[address] += 1

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on row."""
        for address, port in host_ports(pod.cls):
            addresses = self._rows[port][row]
            addresses[address] -= 1
            if not addresses[address]:
                del addresses[address]
            if not addresses:
                del self._rows[port][row]

    def rows_in_conflict(self, wanted: Sequence[tuple[str, Port]]) -> set[int]:
        """Rows on which one of the wanted ports is taken."""
        return {
            row
            for address, port in wanted
            for row, used in self._rows.get(port, {}).items()
            if address == ANY_ADDRESS or address in used or ANY_ADDRESS in used
        }


def host_ports(cls: PodClass) -> tuple[tuple[str, Port], ...]:
    """Address, protocol and number of every host port that a pod of the class takes."""
    found: tuple[tuple[str, Port], ...] | None = cls.memo.get(NodePorts)
    if found is None:
        found = cls.memo[NodePorts] = tuple(_host_ports(cls))
    return found


def _host_ports(cls: PodClass) -> Iterator[tuple[str, Port]]:
    sidecars = [c for c in cls.spec.init_containers if c.restart_policy == "Always"]
    for container in (*sidecars, *cls.spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if cls.spec.host_network else 0)
            if number > 0:
                yield port.host_ip or ANY_ADDRESS, (port.protocol or "TCP", number)
