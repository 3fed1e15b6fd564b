"""Which nodes and devices are lost, why and since when, and which groups have lost members with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gangline import Handle, Membership, PodGroup, PodInfo, model
from gangline_plugins.recovery.down import DownDomains
from gangline_plugins.recovery.wear import CORDONED, LOST, NodeWear

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint with which an administrator says that nothing runs on a node any more."""
_MOST_SHOWN = 80
_FEW = 64
"""When so many lost nodes are remembered, nodes that are gone for good are looked for and forgotten."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A node on which pods do no work any more, or a device of it."""

    node: str
    why: str
    """Why the pods do no work, for example "node a was deleted"."""
    since: float
    """On the monotonic clock: when this was first seen."""
    due: float
    """On the monotonic clock: when the pods count as lost, which is later where there is a grace."""
    is_dead: bool = False
    """Whether nothing can run there any more, so that pods may be deleted without the node's word."""
    is_certain: bool = False
    """Whether an object or an administrator says that it is lost; otherwise the node is silent, and may run on."""
    is_silent: bool = False
    """Whether nobody hears of the node."""


class NodeHealth:
    """Follows nodes, and knows the lost ones."""

    def __init__(
        self, handle: Handle, grace: float, changed: Callable[[], None], wear: NodeWear, down: DownDomains
    ) -> None:
        """`grace` is for nodes that are not ready, in seconds."""
        self._state = handle.state
        self._monotonic = handle.clock.monotonic
        self._grace = grace
        self._changed = changed
        self._wear = wear
        self._down = down
        self._losses: dict[str, Loss] = {}
        """The nodes with a fault of their own, and the deleted nodes on which there still are pods."""
        self._down_since: dict[str, float] = {}
        self._all: Mapping[str, Loss] | None = None
        """`_losses` together with the nodes in domains that are down; None if this has to be computed again."""
        self._there: dict[str, Mapping[str, str]] = {}
        """The labels of each node that exists, by its name."""
        self._next_look = _FEW

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node was added or has changed."""
        name, labels, now = node.metadata.name, node.metadata.labels or {}, self._monotonic()
        if name not in self._there:
            self._wear.rows_changed()
        if self._down.any and self._there.get(name) != labels:  # they say in which domains the node is
            self._changed()
        self._there[name] = labels
        self._all = None
        why, is_dead = fault_of(node)
        before = self._losses.get(name)
        self._count(node, bool(why), now)
        if not why:
            if self._losses.pop(name, None) is not None:
                self._changed()
            return
        if before is None or (before.why, before.is_dead) != (why, is_dead):
            since = now if before is None else before.since
            due = now if is_dead else since + self._grace
            self._losses[name] = Loss(name, why, since, due, is_dead, is_certain=is_dead, is_silent=not is_dead)
            self._changed()

    def _count(self, node: model.Node, is_lost: bool, now: float) -> None:
        """Count failures against the node, each once when it begins."""
        name = node.metadata.name
        for what, is_wrong in ((CORDONED, bool(node.spec.unschedulable)), (LOST, is_lost)):
            if is_wrong and not self._wear.has(name, what):
                self._wear.failed(name, now)
            self._wear.hold(name, what, is_wrong, now)

    def node_removed(self, name: str, row: int) -> None:
        """A node was deleted. It is lost if pods are still on it."""
        now, before = self._monotonic(), self._losses.pop(name, None)
        self._there.pop(name, None)
        self._wear.removed(name, now)
        self._all = None
        if len(self._losses) >= self._next_look:
            self._forget()
        if name in self._state.homeless:
            since = now if before is None else before.since
            self._losses[name] = Loss(name, f"node {name} was deleted", since, now, is_dead=True, is_certain=True)
        self._changed()

    def look(self) -> None:
        """Find nodes that do not exist although pods are on them, and forget deleted nodes whose pods are gone.

        A scheduler that was started after the deletion of a node learns of the deletion only in this way. A node whose
        watch event is late looks the same. So such a node has a grace, and its pods are not deleted without its word.
        """
        self._forget()
        now = self._monotonic()
        for name in self._state.homeless:
            if name and name not in self._there and name not in self._losses:
                self._losses[name] = Loss(name, f"there is no node {name}", now, now + self._grace, is_silent=True)
                self._all = None

    def _forget(self) -> None:
        homeless = self._state.homeless
        gone = [name for name in self._losses if name not in self._there and name not in homeless]
        for name in gone:
            del self._losses[name]
            self._all = None
        self._next_look = 2 * len(self._losses) + _FEW

    @property
    def all(self) -> Mapping[str, Loss]:
        """All lost nodes by name, those within the grace too."""
        if not self._down.any:
            return self._losses
        if self._all is None:
            self._all = self._with_down()
        return self._all

    def _with_down(self) -> Mapping[str, Loss]:
        found, down, now = dict(self._losses), self._down.nodes(), self._monotonic()
        self._down_since = {name: self._down_since.get(name, now) for name in down}
        for name, why in down.items():
            own, since = found.get(name), self._down_since[name]
            if own is None:
                found[name] = Loss(name, why, since, since, is_certain=True)
            elif not own.is_dead:
                found[name] = replace(own, why=why, due=min(own.due, since), is_certain=True)
        return found

    def begin_anew(self) -> None:
        """Let the grace of nodes that are not ready begin now: until now nobody could tell whether they are lost."""
        now = self._monotonic()
        self._losses = {
            name: loss if loss.is_certain else replace(loss, since=now, due=now + self._grace)
            for name, loss in self._losses.items()
        }
        self._all = None

    def is_blind(self, most: float) -> bool:
        """Whether more than the fraction `most` of the nodes is not ready: then rather the control plane has failed.

        Nodes that are lost for certain are left out.
        """
        there = [loss.is_certain for name, loss in self.all.items() if name in self._there]
        certain = sum(there)
        unready = len(there) - certain
        return unready > 1 and unready > most * (len(self._there) - certain)


def fault_of(node: model.Node) -> tuple[str, bool]:
    """Why a node is lost, "" if it is not, and whether nothing can run there any more."""
    name = node.metadata.name
    if any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints):
        return f"node {name} is out of service", True
    ready = next((each for each in node.status.conditions if each.type == "Ready"), None)
    if ready is None or ready.status == "True":
        return "", False
    return f"node {name} is not ready ({ready.reason[:_MOST_SHOWN] or ready.status})", False


@dataclass(slots=True, eq=False)
class Affected:
    """A group with lost members."""

    group: PodGroup
    lost: list[PodInfo] = field(default_factory=list)
    losses: dict[str, Loss] = field(default_factory=dict)
    """The losses that concern the group, by the name of the node."""

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
    nodes, homeless = handle.nodes, handle.state.homeless
    found = []
    for name, loss in losses.items():
        row = nodes.row_of(name)
        pods = nodes.pods(row) if row is not None else homeless.get(name, {})
        found += [(pod, loss) for pod in pods.values()]
    return found
