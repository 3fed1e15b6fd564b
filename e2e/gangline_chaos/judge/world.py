"""The cluster as it is at one revision: objects by key, with the indexes that the rules need."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable

from gangline_chaos.judge.history import Change
from gangline_chaos.judge.objects import (
    GPU,
    Claim,
    Device,
    Node,
    Pod,
    claim_of,
    locks_of,
    names_no_writer,
    node_of,
    pod_of,
)

PODS, NODES, LEASES = "/registry/pods/", "/registry/minions/", "/registry/leases/"
CLAIMS, REPORTS = "/registry/resourceclaims/", "/registry/gpu.scheduling/gpunodestatuses/"


class World:
    """The cluster after some changes, which `fold` takes in one after the other."""

    def __init__(self) -> None:
        self.pods: dict[str, Pod] = {}
        """The pods by their keys in etcd; the other objects are kept in the same way."""
        self.claims: dict[str, Claim] = {}
        self.locks: dict[str, frozenset[tuple[Device, str]]] = {}
        self.damaged: set[str] = set()
        """The keys of the locks that do not say who wrote them."""
        self.nodes: dict[str, Node] = {}
        """The nodes by name. A deleted node stays here as it was, because pods may still be on it."""
        self.present: set[str] = set()
        """The names of the nodes that exist."""
        self.reported: set[str] = set()
        """The names of the nodes that report devices."""
        self._on: defaultdict[str, dict[str, Pod]] = defaultdict(dict)
        self._gangs: defaultdict[str, dict[str, Pod]] = defaultdict(dict)

    def fold(self, change: Change) -> tuple[Pod | None, Pod | None]:
        """Take in a change. If a pod has changed, returns the pod before and after, either of which may be None."""
        key, found = change.key, change.object
        if key.startswith(PODS):
            return self._fold_pod(change)
        if key.startswith(NODES):
            name = key.removeprefix(NODES)
            (self.present.discard if found is None else self.present.add)(name)
            if found is not None:
                self.nodes[name] = node_of(found)
        elif key.startswith(LEASES):
            self.locks[key] = locks_of(found) if found is not None else frozenset()
            if not self.locks[key]:
                del self.locks[key]
            if found is not None and names_no_writer(found):
                self.damaged.add(key)
            else:
                self.damaged.discard(key)
        elif key.startswith(CLAIMS):
            if found is None:
                self.claims.pop(key, None)
            else:
                self.claims[key] = claim_of(key, found)
        elif key.startswith(REPORTS):
            name = key.removeprefix(REPORTS)
            has = found is not None and bool(found.get("status", {}).get("devices"))
            (self.reported.add if has else self.reported.discard)(name)
        return None, None

    def live_on(self, node: str) -> list[Pod]:
        """The pods that take room on a node."""
        return [pod for pod in self._on[node].values() if pod.is_live]

    def gang(self, name: str) -> list[Pod]:
        """The pods of a gang that are not being deleted."""
        return [pod for pod in self._gangs[name].values() if not pod.is_leaving]

    @property
    def gangs(self) -> Iterable[str]:
        """The names of all gangs."""
        return [name for name, members in self._gangs.items() if members]

    def has_room(self, pods: list[Pod], beside: list[Pod]) -> bool:
        """Whether like pods have room now; if they require one domain, in that of their gang's live members."""
        first = pods[0]
        domains = {self.domain(pod, first.within) for pod in beside if pod.is_live}
        free: defaultdict[tuple[str | None, ...], int] = defaultdict(int)
        for name in self.present:
            domain = tuple(self.nodes[name].labels.get(level) for level in first.within)
            if None not in domain and (not domains or domain in domains):
                free[domain] += self._fits(first, name)
        return any(count >= len(pods) for count in free.values())

    def domain(self, pod: Pod, levels: tuple[str, ...]) -> tuple[str | None, ...]:
        """The values of these labels of the pod's node."""
        node = self.nodes.get(pod.node)
        return tuple(node.labels.get(level) if node is not None else None for level in levels)

    def is_heard_of(self, name: str) -> bool:
        """Whether a node exists and is Ready."""
        return name in self.present and self.nodes[name].is_heard_of

    def _fits(self, pod: Pod, name: str) -> int:
        """How many such pods have room on a node; devices of which others have a share count as taken."""
        there, node = self.live_on(name), self.nodes[name]
        if not node.is_open or (pod.share and name not in self.reported):
            return 0
        taken = {id for other in there for id in other.devices or ()}
        amounts = [
            int((node.has.get(resource, 0) - sum(other.asks.get(resource, 0) for other in there)) // asked)
            for resource, asked in pod.asks.items()
            if asked
        ]
        if pod.wants:
            blind = sum(other.wants for other in there if other.devices is None)
            amounts.append((int(node.has.get(GPU, 0)) - len(taken) - blind) // pod.wants)
        return max(0, min(amounts))

    def _fold_pod(self, change: Change) -> tuple[Pod | None, Pod | None]:
        old = self.pods.pop(change.key, None)
        if old is not None:
            self._on[old.node].pop(old.key, None)
            self._gangs[old.gang].pop(old.key, None)
        if change.object is None:
            return old, None
        new = pod_of(change.key, change.object, change.at)
        if old is not None and old.uid == new.uid:
            new = dataclasses.replace(new, at=old.at)
        self.pods[new.key] = new
        if new.node:
            self._on[new.node][new.key] = new
        if new.gang:
            self._gangs[new.gang][new.key] = new
        return old, new
