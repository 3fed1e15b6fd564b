"""GPUs that failed lately, and are well again, are the last to be chosen on their nodes for a while.

Each failure counts 1 point, and half as much after each half-life from when the GPU is well again. A GPU is avoided
while it has more than half a point: for one half-life after one failure, and for longer after several in a row.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress

from gangline import Handle, model
from gangline_plugins.gpu.devices import device_table

_ENOUGH = 0.5
"""A GPU with more points than this is avoided."""
_MOST = 4096
"""Nodes that are remembered, those that are gone included."""


class DeviceWear:
    """Counts the failures of GPUs, and tells the device table which to avoid for the pods of this profile."""

    def __init__(self, handle: Handle, half_life: float) -> None:
        """`half_life` is in seconds; 0 counts nothing."""
        self._handle = handle
        self._half_life = half_life
        self._table = device_table(handle.state)
        self._nodes: dict[str, dict[int, tuple[float, float]]] = {}
        """By node and GPU: its points, and when it had so many, on the monotonic clock; infinite while it is ill."""
        self._changed = asyncio.Event()
        if half_life:
            handle.state.follow_nodes(self)
            handle.state.at_end(self._end)
            handle.run(self.run)

    def told(self, node: str, before: frozenset[int], ill: frozenset[int], now: float) -> None:
        """Count the failures of a node's GPUs: the GPUs `before` were ill, and the GPUs `ill` are ill now."""
        if not self._half_life or before == ill:
            return
        if node not in self._nodes and len(self._nodes) >= _MOST:
            oldest = next(iter(self._nodes))
            self._nodes[oldest] = {}
            self._avoid(oldest, now)
        devices = self._nodes.setdefault(node, {})
        for id in ill - before:
            devices[id] = self._left(*devices.get(id, (0.0, now)), now) + 1.0, math.inf
        for id in before - ill:
            devices[id] = devices[id][0] if id in devices else 1.0, now
        self._avoid(node, now)
        self._changed.set()

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node was added or has changed."""
        if node.metadata.name in self._nodes:
            self._avoid(node.metadata.name, self._handle.clock.monotonic())

    def node_removed(self, name: str, row: int) -> None:
        """A node was deleted; nothing is known of the next node in its row."""

    async def run(self) -> None:
        """Let GPUs be chosen again once their failures are long ago."""
        while True:
            self._changed.clear()
            now = self._handle.clock.monotonic()
            for node in [node for node, devices in self._nodes.items() if self._next(devices) <= now]:
                self._avoid(node, now)
            soonest = min(map(self._next, self._nodes.values()), default=math.inf)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if math.isinf(soonest) else max(0.0, soonest - now)):
                    await self._changed.wait()

    def _avoid(self, node: str, now: float) -> None:
        """Tell the table which GPUs of a node to avoid, and forget the others."""
        devices = {id: each for id, each in self._nodes[node].items() if now < self._until(*each)}
        row = self._handle.nodes.row_of(node)
        if row is not None:
            self._table.avoid(self._handle.profile, row, devices)
        if devices:
            self._nodes[node] = devices
        else:
            del self._nodes[node]

    def _left(self, points: float, since: float, now: float) -> float:
        return points * 0.5 ** (max(0.0, now - since) / self._half_life)

    def _until(self, points: float, since: float) -> float:
        """When a GPU with so many points is no longer avoided."""
        return since + self._half_life * math.log2(points / _ENOUGH)

    def _next(self, devices: dict[int, tuple[float, float]]) -> float:
        return min((self._until(*each) for each in devices.values()), default=math.inf)

    def _end(self) -> None:
        for node in self._nodes:
            row = self._handle.nodes.row_of(node)
            if row is not None:
                self._table.avoid(self._handle.profile, row, ())
