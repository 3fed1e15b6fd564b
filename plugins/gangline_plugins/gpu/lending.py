"""The side of GpuClaims in `twin_gpus`: what pods have of the GPUs of reports, and GPUs that ResourceClaims have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.making_way import MakingWay
from gangline_plugins.gpu.node_devices import NodeDevices
from gangline_plugins.gpu.publishing import Publisher
from gangline_plugins.twin_gpus import ReportedUuids


class TwinLending:
    """Counts GPUs that ResourceClaims have as in use on their nodes."""

    def __init__(
        self,
        nodes: Mapping[int, NodeDevices],
        allocations: Mapping[str, Allocation],
        making_way: MakingWay,
        publisher: Publisher,
    ) -> None:
        """The parts of the device table: nodes by row, the devices of pods by UID."""
        self._nodes = nodes
        self._allocations = allocations
        self._making_way = making_way
        self._publisher = publisher

    def known(self, row: int) -> ReportedUuids:
        """What the report of a row's node names."""
        node = self._nodes.get(row)
        hardware = node.hardware if node is not None else None
        if hardware is None:
            return ReportedUuids({}, {})
        gpus = {uuid: id for id, uuid in enumerate(hardware.uuids) if uuid}
        return ReportedUuids(gpus, {each.uuid: each.device for each in hardware.instances})

    def given(self, row: int) -> Iterator[str]:
        """The UUIDs of the GPUs and instances that pods have on a row."""
        node = self._nodes.get(row)
        for uid in node.pods if node is not None else ():
            allocation = self._allocations.get(uid)
            if node is not None and allocation is not None:
                yield from allocation.uuids if allocation.exclusivity == "MIG" else node.uuids(allocation.ids)

    def lend(self, key: str, row: int, id: int, instance: str) -> None:
        """A claim has a GPU, or one MIG instance of it; pods with guessed devices make way."""
        node = self._nodes[row]
        if instance:
            allocation = Allocation(row, (id,), (instance,), "MIG", is_firm=True)
        else:
            allocation = Allocation(row, (id,), node.uuids((id,)), "Explicit", is_firm=True)
        node.lend(key, allocation)
        self._making_way.make(key, allocation, node, row)
        self._publisher.taken(row, node)

    def take_back(self, key: str, row: int) -> None:
        """Undo `lend`."""
        node = self._nodes.get(row)
        if node is not None:
            guesses = self._making_way.leave(key, node)
            node.take_back(key)
            self._making_way.put_back(guesses, node)
            self._publisher.taken(row, node)
