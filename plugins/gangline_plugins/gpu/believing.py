"""Which devices a bound pod is believed to have: an annotation can be made up, what goes with it cannot.

Rules:
- What leases lock for the pod on its node it has, whatever its annotation says.
- Beyond that it has as many of the devices that it names as its claim, its request or its map gives it, of those that
  its node has and no lease gives to somebody else. A pod without any of these has none.
- What was believed once stays believed while the pod is there: its claim may go before it.
- A pod, its claim and its leases come over different watches, in any order. So nothing is final before `settle` has
  seen a pod twice; until then a claim that is not there yet counts, and nobody is accused.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol

from gangline import PodInfo, State, custom_resources, model, permissions, resources, scheduling_map
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.wants import MapProfiles, Problem, Want, plain_want

SETTLE = 5.0
"""Seconds between two looks at pods that are not judged for good; at the second they are."""
AT_ONCE = 128
"""Pods that are judged again before others get their turn; a few milliseconds."""
_FEWEST = 1024
"""Pods that are known before those are looked for that have gone: a process that does not lead settles nothing."""
_REMEMBERED = 65_536
"""Pods of which it is remembered what they were believed to have."""


class Leases(Protocol):
    """What the leases say that lock devices."""

    def held(self, uid: str, node: str) -> frozenset[int]:
        """The devices of a node that are locked for a pod."""
        ...

    def holders(self, node: str) -> Mapping[int, Collection[str]]:
        """For each locked device of a node the UIDs of the pods that it is locked for."""
        ...


@dataclass(frozen=True, slots=True)
class Doubt:
    """A pod says that it has more than it is believed to have."""

    pod: PodInfo
    note: str


class Beliefs:
    """Judges what pods say, and keeps what is doubted."""

    def __init__(self, state: State) -> None:
        self.leases: Leases | None = None
        """Set by who follows them; without it there are none."""
        self.doubts: dict[str, Doubt] = {}
        """By UID."""
        self._state = state
        self._namespaces = state.store(resources.NAMESPACES)
        self._profiles = state.shared(MapProfiles)
        self._tidy_at = _FEWEST
        self._new: dict[str, int] = {}
        """Pods that are not judged for good, by UID, and how often `settle` has seen them."""
        self._trusted: OrderedDict[str, tuple[str, frozenset[int]]] = OrderedDict()
        """UID to node and devices."""
        self._seen: set[str] = set()
        self._looked = -math.inf

    def is_new(self, uid: str) -> bool:
        """Whether more may still come that tells what the pod has."""
        return uid in self._new

    def has_judged(self, uid: str) -> bool:
        """Whether it had to be judged what the pod has; not where it was given that here."""
        return uid in self._seen

    def trust(self, pod: PodInfo, ids: Collection[int]) -> None:
        """The pod was given these devices here, or has shown that it has them."""
        self._trusted[pod.uid] = (pod.node_name, frozenset(ids))
        self._trusted.move_to_end(pod.uid)
        self.doubts.pop(pod.uid, None)
        if len(self._trusted) > _REMEMBERED:
            self._trusted.popitem(last=False)

    def judge(
        self,
        pod: PodInfo,
        want: Want | Problem | None,
        said: Collection[int],
        present: int | None,
        shared: Collection[int],
    ) -> tuple[int, ...]:
        """The devices that a bound pod has of those that it says, with those that are locked for it, rising.

        `present` is the mask of the node's devices, None where it does not report them; `shared` are devices that pods
        of other leases have and the pod may have too.
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
        return tuple(sorted(believed))

    def settle(self, now: float) -> list[str]:
        """Look at what is not judged for good; returns the UIDs of pods that are to be judged again, now for good.

        `now` is on the clock that only grows; looks that come too soon after another are none.
        """
        if now - self._looked < SETTLE:
            return []
        self._looked = now
        due = [uid for uid, looks in self._new.items() if looks]
        self._new = {uid: 1 for uid, looks in self._new.items() if not looks}
        return due

    def open_doubts(self) -> list[Doubt]:
        """What is doubted of pods that are judged for good."""
        return [doubt for uid, doubt in self.doubts.items() if uid not in self._new]

    def forget(self, uids: Collection[str]) -> None:
        """These pods are there; what is known of others is of no use any more."""
        known: tuple[MutableMapping[str, Any], ...] = (self.doubts, self._new, self._trusted)
        for each in known:
            for uid in [uid for uid in each if uid not in uids]:
                del each[uid]
        self._seen.intersection_update(uids)

    def _tidy(self) -> None:
        if len(self._seen) >= self._tidy_at:
            self.forget(self._state.pods.keys())
            self._tidy_at = max(_FEWEST, 2 * len(self._seen))

    def _is_sure(self, pod: PodInfo, ids: Collection[int]) -> None:
        self.doubts.pop(pod.uid, None)
        if pod.uid not in self._new:
            self.trust(pod, ids)

    def _own(self, pod: PodInfo) -> frozenset[int]:
        """What is locked for the pod, and what it was believed to have before."""
        node, trusted = self._trusted.get(pod.uid, ("", frozenset[int]()))
        held = self.leases.held(pod.uid, pod.node_name) if self.leases is not None else frozenset[int]()
        return held | trusted if node == pod.node_name else held

    def _others(self, pod: PodInfo, want: Want | Problem | None) -> frozenset[int]:
        """The devices of its node that are locked for others and that it cannot share with them."""
        if self.leases is None or (isinstance(want, Want) and want.exclusivity != "Exclusive"):
            return frozenset()
        holders = self.leases.holders(pod.node_name)
        return frozenset(id for id, uids in holders.items() if any(uid != pod.uid for uid in uids))

    def _most(self, pod: PodInfo, want: Want | Problem | None, said: Collection[int]) -> int:
        """How many devices the pod may have by what it asks for."""
        plain = plain_want(pod)
        requested = plain.count if plain is not None else 0
        if isinstance(want, Want):
            return want.count
        if isinstance(want, Problem):
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
    """The device ids that an entry of a map lists, rising; None where something else stands there."""
    parts = [part.strip() for part in devices.split(",")] if devices.strip() else []
    if not all(part.isascii() and part.isdigit() and len(part) <= 3 and int(part) < MOST_DEVICES for part in parts):
        return None
    return tuple(sorted({int(part) for part in parts}))


def metadata_of(pod: PodInfo) -> model.ObjectMeta:
    """What says which pod of its workload it is."""
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
