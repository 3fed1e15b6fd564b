"""Who holds which device, from event to event. Pods that together have more of a device than there is are a fault at
once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gangline_e2e.day.workload import CORE, WHOLE

Device = tuple[str, int]
"""The name of the node and the device's id."""
NODE_CORES = 96
"""CPUs of a node, as `kwok_node` has them."""


@dataclass(slots=True)
class Holding:
    """The devices of one pod from its binding to its end; revisions are those of etcd."""

    uid: str
    pod: str
    node: str
    ids: tuple[int, ...]
    milli: int
    since: int
    until: int = 0
    """The revision at which the pod ended; 0 while it has the devices."""


class Ledger:
    """Devices of nodes that are numbered; the columns have a row for each node."""

    def __init__(self, nodes: Sequence[str], gpus: int) -> None:
        self.row = {name: row for row, name in enumerate(nodes)}
        self.free: NDArray[np.int32] = np.full((len(nodes), gpus), WHOLE, np.int32)
        """Thousandths of each device that nobody has."""
        self.cores: NDArray[np.int32] = np.full(len(nodes), NODE_CORES * CORE, np.int32)
        """Thousandths of CPUs that nobody has."""
        self.there = np.zeros(len(nodes), np.bool_)
        """Whether the node is there."""
        self.faults: list[str] = []
        self.now: dict[str, Holding] = {}
        """The pods that have devices now, by UID."""
        self.past: list[Holding] = []
        """The pods that had devices and have ended."""
        self._holders: dict[Device, dict[str, Holding]] = defaultdict(dict)

    @property
    def held(self) -> float:
        """How many devices pods have; a part of a device counts as that part."""
        return float((WHOLE - self.free).sum()) / WHOLE

    @property
    def present(self) -> int:
        """How many devices existing nodes have."""
        return int(self.there.sum()) * self.free.shape[1]

    def take(self, new: Holding) -> None:
        """A pod was bound with its devices."""
        self.now[new.uid] = new
        row = self.row[new.node]
        for id in new.ids:
            if not 0 <= id < self.free.shape[1]:
                self.faults.append(f"{new.pod} has GPU {id} of {new.node}, which has no such GPU")
                continue
            there = self._holders[new.node, id]
            there[new.uid] = new
            self.free[row, id] -= new.milli
            if sum(each.milli for each in there.values()) > WHOLE:
                names = ", ".join(sorted(each.pod for each in there.values()))
                self.faults.append(f"GPU {id} of {new.node} was given to {names} at revision {new.since}")
        self.cores[row] -= CORE * max(len(new.ids), 1)
        if self.cores[row] < 0:
            self.faults.append(f"{new.node} has fewer CPUs than its pods, with {new.pod}, ask for")

    def give_back(self, uid: str, revision: int) -> None:
        """A pod has ended or was deleted. A pod without devices changes nothing."""
        old = self.now.pop(uid, None)
        if old is None:
            return
        old.until = revision
        self.past.append(old)
        row = self.row[old.node]
        for id in old.ids:
            if self._holders[old.node, id].pop(uid, None) is not None:
                self.free[row, id] += old.milli
        self.cores[row] += CORE * max(len(old.ids), 1)

    def on(self, node: str) -> list[Holding]:
        """What the pods of a node hold."""
        return [each for each in self.now.values() if each.node == node]


class Locks:
    """The locks in leases over all revisions, to be compared with the ledger at the end."""

    def __init__(self) -> None:
        self._now: dict[str, dict[Device, frozenset[str]]] = {}
        """The present locks, by the name of the lease."""
        self._spans: dict[tuple[Device, str], list[tuple[int, int]]] = defaultdict(list)
        """Device and UID to the revisions from which and until which the device was locked for the pod; 0 for still."""

    def note(self, lease: str, holders: dict[Device, frozenset[str]], revision: int) -> None:
        """A lease was written, or deleted when it has no holders."""
        before = self._now.get(lease, {})
        for device in before.keys() | holders.keys():
            old, new = before.get(device, frozenset()), holders.get(device, frozenset())
            for uid in new - old:
                self._spans[device, uid].append((revision, 0))
            for uid in old - new:
                spans = self._spans[device, uid]
                spans[-1] = spans[-1][0], revision
        if holders:
            self._now[lease] = holders
        else:
            self._now.pop(lease, None)

    def faults(self, holdings: Sequence[Holding], lost: frozenset[str] = frozenset()) -> list[str]:
        """One line for each device that a pod had without a lock, and for each lock that nobody needs any more.

        ``lost`` are nodes that went: with a node its locks go, whatever was there.
        """
        found = [
            f"{each.pod} had GPU {id} of {each.node} from revision {each.since} to {each.until or 'now'}, but it was "
            f"locked {self._spans.get(((each.node, id), each.uid), [])}"
            for each in holdings
            for id in each.ids
            if each.node not in lost and not self._covers(each, id)
        ]
        needed = {((each.node, id), each.uid) for each in holdings if not each.until for id in each.ids}
        locked = {(device, uid) for held in self._now.values() for device, uids in held.items() for uid in uids}
        stray = [f"GPU {id} of {node} is locked for {uid}, which has it not" for (node, id), uid in locked - needed]
        return [*found, *sorted(stray)]

    def _covers(self, holding: Holding, id: int) -> bool:
        """Whether the device was locked for the pod from its binding to its end."""
        end = holding.until or float("inf")
        spans = self._spans.get(((holding.node, id), holding.uid), ())
        return any(since <= holding.since and (until or float("inf")) >= end for since, until in spans)
