"""The amounts of resources that count in scores: what nodes advertise, and devices that serve extended resources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from gangline import Changes, Handle, Int64Column, NodeView
from gangline_plugins.dynamic_resources.ledger import ledger
from gangline_plugins.extended_resources import ExtendedResources


class Amounts(Protocol):
    """Where the allocatable and requested amounts of resources on nodes come from."""

    def of(self, resources: tuple[str, ...], nodes: NodeView) -> tuple[Int64Column, Int64Column]:
        """The allocatable and the requested amounts, each resources x nodes; nobody may change these arrays."""
        ...

    def of_one(self, resources: tuple[str, ...], nodes: NodeView) -> tuple[list[int], list[int]]:
        """As `of`, as plain numbers for the only node of the view; the caller may change the lists."""
        ...


class _Advertised:
    """What nodes and their device plugins advertise."""

    def of(self, resources: tuple[str, ...], nodes: NodeView) -> tuple[Int64Column, Int64Column]:
        return nodes.amounts(resources)

    def of_one(self, resources: tuple[str, ...], nodes: NodeView) -> tuple[list[int], list[int]]:
        return nodes.amounts_of_one(resources)


ADVERTISED: Amounts = _Advertised()


def amounts_of(handle: Handle, resources: Iterable[str]) -> tuple[Amounts, tuple[Changes, ...]]:
    """The amounts for a plugin that scores these resources, and the logs that it has to read for them."""
    if not any("/" in name for name in resources):
        return ADVERTISED, ()
    served = _ServedByDevices(handle)
    return served, (served.changes,)


class _ServedByDevices:
    """The advertised amounts; on nodes without a device plugin for an extended resource, devices of its DeviceClass.

    There all devices of the class that serves the resource are allocatable, and the devices that claims have are
    requested. Source: kube-scheduler v1.36, resource_allocation.go.
    """

    def __init__(self, handle: Handle) -> None:
        self._profile = handle.profile
        self._extended = handle.state.shared(ExtendedResources, handle.state)
        self._devices = ledger(handle).devices
        self.changes = self._devices.changes

    def of(self, resources: tuple[str, ...], nodes: NodeView) -> tuple[Int64Column, Int64Column]:
        """The amounts of some resources."""
        allocatable, requested = nodes.amounts(resources)
        served = self._served(resources)
        if served:
            allocatable, requested = allocatable.copy(), requested.copy()
        for at, device_class in served:
            total, given = self._devices.stock(device_class, nodes)
            here = (allocatable[at] == 0) & (total > 0)
            allocatable[at] = np.where(here, total, allocatable[at])
            requested[at] = np.where(here, given, requested[at])
        return allocatable, requested

    def of_one(self, resources: tuple[str, ...], nodes: NodeView) -> tuple[list[int], list[int]]:
        """The amounts of some resources of one node."""
        if not self._served(resources):
            return nodes.amounts_of_one(resources)
        allocatable, requested = self.of(resources, nodes)
        return allocatable[:, 0].tolist(), requested[:, 0].tolist()

    def _served(self, resources: tuple[str, ...]) -> list[tuple[int, str]]:
        """The places of resources that classes of devices serve, and the names of these classes."""
        if not self._extended.are_given_out_in(self._profile):
            return []
        return [(at, found) for at, name in enumerate(resources) if (found := self._extended.serving(name))]
