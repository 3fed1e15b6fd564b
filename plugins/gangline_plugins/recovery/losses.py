"""Which nodes and devices are lost, why and since when, and which groups have lost members with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gangline import Handle, Membership, PodGroup, PodInfo, custom_resources, model, resources
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.illness import on_ill_devices
from gangline_plugins.recovery.wear import NodeWear

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint with which an administrator says that nothing runs on a node any more."""
_MOST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Loss:
    """A node on which pods do no work any more, or a device of it."""

    node: str
    why: str
    """For example "node a was deleted"."""
    since: float
    """On the monotonic clock: when this was first seen."""
    is_dead: bool = False
    """Whether nothing can run there any more, so that pods may be deleted without the node's word."""


class NodeHealth:
    """Follows nodes, and knows the lost ones."""

    def __init__(self, monotonic: Callable[[], float], changed: Callable[[], None], wear: NodeWear) -> None:
        self._monotonic = monotonic
        self._changed = changed
        self._wear = wear
        self._losses: dict[str, Loss] = {}
        self._there: set[str] = set()

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node came or has changed."""
        name = node.metadata.name
        self._there.add(name)
        why, is_dead = _fault(node)
        before = self._losses.get(name)
        if not why:
            if self._losses.pop(name, None) is not None:
                self._changed()
            return
        if before is None or (before.why, before.is_dead) != (why, is_dead):
            since = self._monotonic() if before is None else before.since
            if before is None:
                self._wear.failed(name, since)
            self._losses[name] = Loss(name, why, since, is_dead)
            self._changed()

    def node_removed(self, name: str, row: int) -> None:
        """A node went."""
        self._there.discard(name)
        before = self._losses.get(name)
        since = self._monotonic() if before is None else before.since
        self._losses[name] = Loss(name, f"node {name} was deleted", since, is_dead=True)
        self._changed()

    @property
    def all(self) -> Mapping[str, Loss]:
        """All lost nodes by name, those within the grace too."""
        return self._losses

    def forget(self, names: Iterable[str]) -> None:
        """These deleted nodes have no pods any more."""
        for name in names:
            if name not in self._there:
                self._losses.pop(name, None)

    def begin_anew(self) -> None:
        """The nodes that are not ready count as lost from now on: until now, nobody could say what they were."""
        now = self._monotonic()
        self._losses = {name: loss if loss.is_dead else replace(loss, since=now) for name, loss in self._losses.items()}

    def is_blind(self, most: float) -> bool:
        """Whether more than this part of the nodes is not ready: then rather the control plane has failed."""
        unready = sum(not loss.is_dead for loss in self._losses.values())
        return unready > 1 and unready > most * len(self._there)


def _fault(node: model.Node) -> tuple[str, bool]:
    """Why a node is lost, "" if it is not, and whether nothing can run there any more."""
    name = node.metadata.name
    if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
        return f"node {name} is out of service", True
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return "", False
    return f"node {name} is not ready ({ready.reason[:_MOST_SHOWN] or ready.status})", False


class DeviceHealth:
    """Knows the bound pods on GPUs that their nodes report as Unhealthy."""

    def __init__(self, handle: Handle, changed: Callable[[], None], wear: NodeWear) -> None:
        self._handle = handle
        self._wear = wear
        self._table = device_table(handle.state)
        self._changed = changed
        self._since: dict[str, float] = {}
        """By UID of a pod, on the monotonic clock: when its device was first seen to be ill."""
        handle.state.store(resources.GPU_NODE_STATUSES).subscribe(self)

    def on_upsert(self, report: custom_resources.GpuNodeStatus) -> None:
        """A node reports its devices."""
        if any(device.health == "Unhealthy" for device in report.status.devices):
            self._changed()

    def on_remove(self, report: custom_resources.GpuNodeStatus) -> None:
        """A report went: the health of these devices is unknown, which is no loss."""

    def losses(self, now: float) -> list[tuple[PodInfo, Loss]]:
        """The pods on ill devices, with their losses."""
        found: dict[str, tuple[PodInfo, Loss]] = {}
        for pod, id, reason in on_ill_devices(self._table, self._handle.state):
            since = self._since.get(pod.uid, now)
            if pod.uid not in self._since and pod.uid not in found:
                self._wear.failed(pod.node_name, now)
            why = f"GPU {id} of node {pod.node_name} is unhealthy{f' ({reason[:_MOST_SHOWN]})' if reason else ''}"
            found.setdefault(pod.uid, (pod, Loss(pod.node_name, why, since)))
        self._since = {uid: loss.since for uid, (_, loss) in found.items()}
        return list(found.values())


@dataclass(slots=True, eq=False)
class Affected:
    """A group with lost members."""

    group: PodGroup
    lost: list[PodInfo] = field(default_factory=list)
    losses: dict[str, Loss] = field(default_factory=dict)
    """By the names of their nodes."""

    @property
    def priority(self) -> int:
        """The priority of the group."""
        return self.group.priority if self.group.priority is not None else max(pod.priority for pod in self.lost)

    @property
    def dead(self) -> set[str]:
        """The nodes on which nothing can run any more."""
        return {loss.node for loss in self.losses.values() if loss.is_dead}

    @property
    def since(self) -> float:
        """On the monotonic clock: when the first loss was seen."""
        return min(loss.since for loss in self.losses.values())


def affected(handle: Handle, lost: Iterable[tuple[PodInfo, Loss]]) -> list[Affected]:
    """The groups of this profile with lost members, those of the highest priority first, then the oldest loss.

    Members that are being deleted do not count: whoever deletes them has them replaced.
    """
    found: dict[str, Affected] = {}
    seen: set[str] = set()
    for pod, loss in lost:
        membership = handle.group_of(pod)
        if pod.scheduler_name != handle.profile or pod.terminating or not isinstance(membership, Membership):
            continue
        if pod.uid not in seen:
            seen.add(pod.uid)
            each = found.setdefault(membership.group.key, Affected(membership.group))
            each.lost.append(pod)
            each.losses[loss.node] = loss
    return sorted(found.values(), key=lambda each: (-each.priority, each.since, each.group.key))


def pods_on(handle: Handle, losses: Mapping[str, Loss]) -> list[tuple[PodInfo, Loss]]:
    """The pods on lost nodes, which are given by name."""
    nodes, found, is_gone = handle.nodes, [], False
    for name, loss in losses.items():
        row = nodes.row_of(name)
        if row is None:
            is_gone = True
        else:
            found += [(pod, loss) for pod in nodes.pods(row).values()]
    if is_gone:  # pods of deleted nodes are on no row
        homeless = ((pod, losses.get(pod.node_name)) for pod in handle.state.pods.values() if pod.row < 0)
        found += [(pod, loss) for pod, loss in homeless if loss is not None]
    return found
