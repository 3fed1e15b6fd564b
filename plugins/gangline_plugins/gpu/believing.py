"""Which devices a bound pod is believed to have. A user can write a false annotation, but cannot make up a lease or a
claim.

Rules:
- A pod has the devices that leases lock for it on its node, regardless of its annotation.
- Beyond these it has as many of the devices in its annotation as its claim, its request or its map gives it. Only
  devices that its node has and that no lease locks for another pod count. A pod without lease, claim, request and map
  has none.
- What was believed once stays believed as long as the pod exists, because its claim may be deleted before it.
- A doubt is looked at again as soon as a device of its node is locked no longer: before others are given the device,
  which may have been locked for another pod by mistake.
- A pod, its claim and its leases arrive over different watches, in any order. So a judgement is final only after
  `settle` has seen the pod twice. Until then a claim that is missing counts as if it were there, and no doubt is
  reported.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from gangline import PodInfo, State, custom_resources, model, permissions, resources, scheduling_map
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.wants import MapProfiles, Want, WantProblem, plain_want
from gangline_plugins.latest import Latest

SETTLE = 5.0
"""Seconds between two rounds of `settle`; a pod is judged for good in its second round."""
AT_ONCE = 128
"""Pods that are judged again before other tasks get their turn: a few milliseconds."""
_FEWEST = 1024
"""At this many known pods, deleted ones are forgotten here, because a process that does not lead never calls
`settle`.
"""
_REMEMBERED = 65_536
"""At most this many pods whose believed devices are remembered."""


class Leases(Protocol):
    """The devices that leases lock."""

    def held(self, uid: str, node: str) -> frozenset[int]:
        """The devices of a node that are locked for a pod."""
        ...

    def holders(self, node: str) -> Mapping[int, Collection[str]]:
        """For each locked device of a node the UIDs of the pods that hold it."""
        ...


@dataclass(frozen=True, slots=True)
class Doubt:
    """A pod whose annotation names more devices than the pod is believed to have."""

    pod: PodInfo
    note: str


class Beliefs:
    """Judges the annotations of bound pods, and keeps the doubts."""

    def __init__(self, state: State) -> None:
        self.leases: Leases | None = None
        """Set by the plugin that follows leases; None if no plugin does."""
        self.doubts: dict[str, Doubt] = {}
        """Doubts by pod UID."""
        self._state = state
        self._namespaces = state.store(resources.NAMESPACES)
        self._profiles = state.shared(MapProfiles)
        self._tidy_at = _FEWEST
        self._new: dict[str, int] = {}
        """Pods that are not judged for good: UID to the number of rounds in which `settle` has seen them."""
        self._trusted: Latest[str, tuple[str, frozenset[int]]] = Latest(_REMEMBERED)
        """UID to node and believed devices."""
        self._doubted: dict[str, set[str]] = {}
        """The UIDs of the doubts by node, and of pods that were doubted there."""
        self._seen: set[str] = set()
        self._looked = -math.inf

    def is_new(self, uid: str) -> bool:
        """Whether objects that support the pod's annotation may still arrive."""
        return uid in self._new

    def has_judged(self, uid: str) -> bool:
        """Whether the pod's annotation was judged; False if this scheduler gave the pod its devices."""
        return uid in self._seen

    def trust(self, pod: PodInfo, ids: Collection[int]) -> None:
        """This scheduler gave the pod these devices, or their annotation was confirmed."""
        self._trusted.keep(pod.uid, (pod.node_name, frozenset(ids)))
        self.doubts.pop(pod.uid, None)

    def judge(
        self,
        pod: PodInfo,
        want: Want | WantProblem | None,
        said: Collection[int],
        present: int | None,
        shared: Collection[int],
    ) -> tuple[int, ...]:
        """The devices that a bound pod has, ascending: those locked for it, and the believed ones of `said`, those in
        its annotation.

        `present` is the mask of the node's devices, None if the node does not report them. `shared` are devices that
        leases lock for other pods and that the pod may have too.
        """
        if pod.uid not in self._seen:
            self._tidy()
            self._seen.add(pod.uid)
            self._new.setdefault(pod.uid, 0)
        own = self._own(pod)
        if own.issuperset(said):
            self._is_sure(pod, said)
            return tuple(sorted(said))
        most = max(0, self._most(pod, want, said) - len(own))
        others = self._others(pod, want)
        open_ = [
            id
            for id in sorted(set(said) - own)
            if 0 <= id < MOST_DEVICES and (present is None or present >> id & 1) and (id not in others or id in shared)
        ]
        believed = own.union(open_[:most])
        if believed.issuperset(said):
            self._is_sure(pod, believed)
        else:
            self.doubts[pod.uid] = Doubt(pod, _note(said, believed, most + len(own)))
            self._doubted.setdefault(pod.node_name, set()).add(pod.uid)
        return tuple(sorted(believed))

    def settle(self, now: float) -> list[str]:
        """Start a round; returns the UIDs of the pods that are now to be judged for good.

        `now` is in seconds of the monotonic clock; a round that comes too soon after another does nothing.
        """
        if now - self._looked < SETTLE:
            return []
        self._looked = now
        due = [uid for uid, looks in self._new.items() if looks]
        self._new = {uid: 1 for uid, looks in self._new.items() if not looks}
        return due

    def doubted(self, node: str) -> list[str]:
        """The UIDs of the pods on a node that are doubted; to be judged again when a device is locked no longer."""
        found = sorted(uid for uid in self._doubted.pop(node, ()) if uid in self.doubts)
        if found:
            self._doubted[node] = set(found)
        return found

    def open_doubts(self) -> list[Doubt]:
        """The doubts about pods that are judged for good."""
        return [doubt for uid, doubt in self.doubts.items() if uid not in self._new]

    def forget(self, uids: Collection[str]) -> None:
        """Forget all pods except these, which exist."""
        known: tuple[MutableMapping[str, Any], ...] = (self.doubts, self._new, self._trusted)
        for each in known:
            for uid in [uid for uid in each if uid not in uids]:
                del each[uid]
        self._seen.intersection_update(uids)
        for node in list(self._doubted):
            self.doubted(node)

    def _tidy(self) -> None:
        if len(self._seen) >= self._tidy_at:
            self.forget(self._state.pods.keys())
            self._tidy_at = max(_FEWEST, 2 * len(self._seen))

    def _is_sure(self, pod: PodInfo, ids: Collection[int]) -> None:
        self.doubts.pop(pod.uid, None)
        if pod.uid not in self._new:
            self.trust(pod, ids)

    def _own(self, pod: PodInfo) -> frozenset[int]:
        """The devices that are locked for the pod, and those that it was believed to have before."""
        node, trusted = self._trusted.get(pod.uid, ("", frozenset[int]()))
        held = self.leases.held(pod.uid, pod.node_name) if self.leases is not None else frozenset[int]()
        return held | trusted if node == pod.node_name else held

    def _others(self, pod: PodInfo, want: Want | WantProblem | None) -> frozenset[int]:
        """The devices of the pod's node that are locked for other pods and that it cannot share with them."""
        if self.leases is None or (isinstance(want, Want) and want.exclusivity != "Exclusive"):
            return frozenset()
        holders = self.leases.holders(pod.node_name)
        return frozenset(id for id, uids in holders.items() if any(uid != pod.uid for uid in uids))

    def _most(self, pod: PodInfo, want: Want | WantProblem | None, said: Collection[int]) -> int:
        """How many devices the pod may have by its claim, its request or its map."""
        plain = plain_want(pod)
        requested = plain.count if plain is not None else 0
        if isinstance(want, Want):
            return want.count
        if isinstance(want, WantProblem):
            return MOST_DEVICES if self.is_new(pod.uid) else requested
        return max(requested, len(self._mapped(pod).intersection(said)))

    def _mapped(self, pod: PodInfo) -> frozenset[int]:
        """The devices that the pod's map gives it, if its namespace allows maps."""
        text = pod.annotations.get(custom_resources.SCHEDULING_MAP)
        if text is None or not (self._profiles.are_free(pod.scheduler_name) or self._may_map(pod.namespace)):
            return frozenset()
        index = scheduling_map.pod_index(metadata_of(pod))
        entry = scheduling_map.parse(text).entries.get(index) if index is not None else None
        return frozenset(ids_in(entry.devices) or ()) if entry is not None else frozenset()

    def _may_map(self, namespace: str) -> bool:
        return permissions.is_allowed(permissions.SCHEDULING_MAP, namespace, self._namespaces)


def ids_in(devices: str) -> tuple[int, ...] | None:
    """The device ids that an entry of a map lists, ascending; None if the entry is no list of device ids."""
    parts = [part.strip() for part in devices.split(",")] if devices.strip() else []
    if not all(part.isascii() and part.isdigit() and len(part) <= 3 and int(part) < MOST_DEVICES for part in parts):
        return None
    return tuple(sorted({int(part) for part in parts}))


def metadata_of(pod: PodInfo) -> model.ObjectMeta:
    """The metadata that tells which pod of its workload the pod is."""
    return model.ObjectMeta(
        name=pod.name,
        namespace=pod.namespace,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        owner_references=pod.owners,
    )


def _note(said: Collection[int], believed: Collection[int], most: int) -> str:
    shown = ",".join(map(str, sorted(said)[:MOST_DEVICES])) + (",..." if len(said) > MOST_DEVICES else "")
    counted = ",".join(map(str, sorted(believed))) or "none"
    return f"the pod says that it has GPUs {shown}; counted are {counted}: no lease says so, and it may have {most}"
