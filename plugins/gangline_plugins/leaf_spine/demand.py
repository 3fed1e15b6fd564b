"""The needs of a group in numbers: members per role, the fewest nodes that hold them, and GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gangline import GroupAttempt, NodeView, PodGroup, PodInfo, Progress, Role, custom_resources
from gangline_plugins.gpu.devices import DeviceTable
from gangline_plugins.gpu.node_devices import WHOLE
from gangline_plugins.gpu.wants import Want
from gangline_plugins.leaf_spine.layout import Bools, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Stock:
    """The GPUs of each row, in thousandths: all of them, and those in use."""

    total: Ints
    used: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Demand:
    """The needs of a number of members of each role."""

    roles: Sequence[Role]
    counts: tuple[int, ...]
    nodes: int
    """The fewest nodes that hold all these members in the present cluster, as a lower bound."""
    amount: int
    """Thousandths of GPUs that the members ask for together."""
    each: tuple[int, ...]
    """Thousandths of GPUs that one member of each role asks for."""
    stock: Stock

    def held(self, sums: Sequence[Ints]) -> Bools:
        """For each place whether it has room for all members, by its capacity for each role."""
        enough = sums[0] >= self.counts[0]
        for total, count in zip(sums[1:], self.counts[1:], strict=True):
            enough = enough & (total >= count)
        return enough

    def most_on(self) -> Ints:
        """For each row the most GPUs, in thousandths, that the group could take there."""
        most = np.zeros(len(self.stock.total), dtype=np.int64)
        for role, each in zip(self.roles, self.each, strict=True):
            most += role.capacity * each
        return np.minimum(most, self.stock.total - self.stock.used)


def demand_of(attempt: GroupAttempt, counts: Sequence[int], nodes: NodeView, table: DeviceTable) -> Demand | None:
    """The needs of so many members of each role; None if they want no GPUs, or do not fit even on all nodes
    together.
    """
    resource = next(filter(None, (_gpu_resource(role.pods[0]) for role in attempt.roles)), custom_resources.GPU)
    each = tuple(_gpus(role.pods[0], resource, table) for role in attempt.roles)
    fewest = fewest_nodes(attempt.roles, counts, nodes) if any(each) else None
    if fewest is None:
        return None
    amount = sum(one * count for one, count in zip(each, counts, strict=True))
    return Demand(attempt.roles, tuple(counts), fewest, amount, each, _stock(resource, nodes, table))


def counts_of(attempt: GroupAttempt) -> list[tuple[int, ...]]:
    """The numbers of members of each role to place: all of them first; then, if fewer are needed, the needed ones."""
    every = tuple(len(role.pods) for role in attempt.roles)
    if attempt.needed >= sum(every):
        return [every]
    if len(every) == 1:
        return [every, (attempt.fewest,)]
    needed = tuple(_needed(role, attempt.group) for role in attempt.roles)
    return [every, needed] if needed != every else [every]


def fewest_nodes(roles: Sequence[Role], counts: Sequence[int], nodes: NodeView) -> int | None:
    """A lower bound on the nodes that hold the members, from sums; None if all nodes together do not hold them."""
    fewest = 1
    for role, count in zip(roles, counts, strict=True):
        most = int(role.capacity.max(initial=0))
        if most * int(np.count_nonzero(role.capacity == most)) >= count:
            number = -(-count // most) if most else 0
        else:
            filled = np.cumsum(np.sort(role.capacity)[::-1])
            if not len(filled) or filled[-1] < count:
                return None
            number = int(np.searchsorted(filled, count)) + 1
        fewest = max(fewest, number)
    return max(fewest, _fewest_by_amounts(roles, counts, nodes)) if len(roles) > 1 else fewest


def _fewest_by_amounts(roles: Sequence[Role], counts: Sequence[int], nodes: NodeView) -> int:
    wanted: dict[str, int] = {}
    for role, count in zip(roles, counts, strict=True):
        for resource, amount in role.pods[0].cls.requests.real.items():
            wanted[resource] = wanted.get(resource, 0) + amount * count
    fewest = 1
    for resource, amount in wanted.items():
        most = int(nodes.free(resource).max(initial=0))
        fewest = max(fewest, -(-amount // most)) if most else fewest
    return fewest


def _needed(role: Role, group: PodGroup) -> int:
    subgroup = group.subgroup(role.subgroup)
    return Progress.of(subgroup, waiting=len(role.pods)).due if subgroup is not None else len(role.pods)


def _gpu_resource(pod: PodInfo) -> str | None:
    """The resource in the pod's requests that stands for GPUs, of any vendor."""
    return next((name for name in pod.cls.requests.real if name.endswith("/gpu")), None)


def _gpus(pod: PodInfo, resource: str, table: DeviceTable) -> int:
    """Thousandths of GPUs that a pod asks for, by its claim or its requests."""
    want = table.wants.of(pod)
    if isinstance(want, Want) and want.exclusivity in ("Exclusive", "Shared"):
        return want.count * (want.milli or WHOLE)
    return WHOLE * pod.cls.requests.real.get(resource, 0)


def _stock(resource: str, nodes: NodeView, table: DeviceTable) -> Stock:
    """The larger of requests and agents' reports, because pods with claims need no requests."""
    total, used = nodes.allocatable(resource), nodes.requested(resource)
    if resource == custom_resources.GPU:
        columns, index = table.columns, nodes.index
        total = np.maximum(total, np.bitwise_count(columns.present[index]))
        used = np.maximum(used, np.bitwise_count(columns.busy[index]))
    return Stock(total.astype(np.int64) * WHOLE, used.astype(np.int64) * WHOLE)
