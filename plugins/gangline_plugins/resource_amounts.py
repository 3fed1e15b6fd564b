"""The amounts of resources that count in scores: what nodes advertise, and devices that serve extended resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from gangline import Changes, Handle, Int64Column, NodeView
from gangline_plugins.dynamic_resources.ledger import ledger
from gangline_plugins.extended_resources import ExtendedResources

Amounts = Callable[[tuple[str, ...], NodeView], tuple[Int64Column, Int64Column]]
"""From names of resources: allocatable and requested amounts, one row per resource, which nobody may change."""


def advertised(resources: tuple[str, ...], nodes: NodeView) -> tuple[Int64Column, Int64Column]:
    """What nodes and their device plugins advertise."""
    return nodes.amounts(resources)


def amounts_of(handle: Handle, resources: Iterable[str]) -> tuple[Amounts, tuple[Changes, ...]]:
    """The amounts for a plugin that scores these resources, and the logs that it has to read for them."""
    if not any("/" in name for name in resources):
        return advertised, ()
    served = _ServedByDevices(handle)
    return served.amounts, (served.changes,)


class _ServedByDevices:
    """As kube-scheduler v1.36, resource_allocation.go: where no device plugin advertises an extended resource, the
    devices of the class that serves the resource count, and those of them that claims have.
    """

    def __init__(self, handle: Handle) -> None:
        self._profile = handle.profile
        self._extended = handle.state.shared(ExtendedResources, handle.state)
        self._devices = ledger(handle).devices
        self.changes = self._devices.changes

    def amounts(self, resources: tuple[str, ...], nodes: NodeView) -> tuple[Int64Column, Int64Column]:
        """The amounts of some resources."""
        allocatable, requested = nodes.amounts(resources)
        if not self._extended.are_given_out_in(self._profile):
            return allocatable, requested
        served = [(at, found) for at, name in enumerate(resources) if (found := self._extended.serving(name))]
        if served:
            allocatable, requested = allocatable.copy(), requested.copy()
        for at, device_class in served:
            total, given = self._devices.stock(device_class, nodes)
            here = (allocatable[at] == 0) & (total > 0)
            allocatable[at] = np.where(here, total, allocatable[at])
            requested[at] = np.where(here, given, requested[at])
        return allocatable, requested
