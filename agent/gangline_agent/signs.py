"""Says whether a node has GPUs of NVIDIA, before they have been read or labelled.

An agent runs on every node; on a node without a sign of GPUs it reports nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from gangline.clock import SystemClock
from gangline.errors import ApiError, InvalidObject
from gangline.model import Node
from gangline.wire.custom_resources import GPU, MIG_PREFIX

log = logging.getLogger(__name__)

LABELS = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
)
"""Labels of gpu-feature-discovery, of the agent or an administrator, and of node-feature-discovery; value "true"."""
VENDOR = "0x10de"
DISPLAY = "0x03"
"""The first digits of the PCI class of a GPU."""
AGAIN = 600.0
"""Seconds between two looks at a node without a sign; the interval limits the load of the API server."""


def of_node(node: Node) -> bool:
    """Whether a node's labels, or the resource of a device plugin, say that it has GPUs."""
    labels = node.metadata.labels or {}
    resources = {**(node.status.capacity or {}), **(node.status.allocatable or {})}
    plugin = (name for name, amount in resources.items() if str(amount) != "0")
    return any(labels.get(key) == "true" for key in LABELS) or any(
        name.startswith((GPU, MIG_PREFIX)) for name in plugin
    )


def of_machine(root: Path) -> bool:
    """Whether a GPU is on the PCI bus of the machine whose /sys stands under ``root``."""
    try:
        devices = sorted((root / "sys/bus/pci/devices").iterdir())
    except OSError:
        return False
    return any(_begins(each / "vendor", VENDOR) and _begins(each / "class", DISPLAY) for each in devices)


def _begins(file: Path, text: str) -> bool:
    try:
        return file.read_text(errors="replace").startswith(text)
    except OSError:
        return False


class Signs:
    """The signs of one machine and its node; ``find`` gives the node, or raises ApiError. A found sign stays found."""

    def __init__(self, root: Path, find: Callable[[], Awaitable[Node]], clock: SystemClock | None = None) -> None:
        self._root = root
        self._find = find
        self._clock = clock or SystemClock()
        self._found = False
        self._next = float("-inf")

    async def found(self) -> bool:
        """Whether a sign has been found."""
        if not self._found:
            self._found = await asyncio.to_thread(of_machine, self._root) or await self._on_node()
        return self._found

    async def _on_node(self) -> bool:
        now = self._clock.monotonic()
        if now < self._next:
            return False
        try:
            node = await self._find()
        except (ApiError, InvalidObject) as error:
            log.warning("the node cannot be read, trying again: %s", error)
            return False
        self._next = now + AGAIN
        return of_node(node)
