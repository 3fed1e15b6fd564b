"""What a lease says about which pod has which devices: reads, writes and judges leases; no I/O.

Rules:
- A lease locks one device, or all devices of a node. Its annotation HOLDERS lists its holders by pod UID. A pod that
  two schedulers try at the same time may have a second hold, under UID/ATTEMPT; see `uid_of`.
- Holders share a device only if their allocations allow it. Pods with scheduling maps share with such pods of their own
  namespace.
- `by` names the attempt that wrote a hold. An attempt may release only its own holds, and none that another scheduler
  may rely on. A hold that was `adopted` from another scheduler is given back to that scheduler; see `Hold.without`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from gangline import InvalidObject, custom_resources, model, texts
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.leases.names import device_of, lease_labels, lease_name
from gangline_plugins.gpu.node_devices import WHOLE

_MOST_DIGITS = 18
HOLDERS = "gpu.scheduling/holders"
"""On a Lease: JSON, holder to `Hold`."""
DEVICES = "gpu.scheduling/devices"
"""On a Lease: JSON, device id to the UIDs of its pods, separated by commas; for people and tools."""


class Hold(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The devices of a lease that one pod has."""

    pod: str
    """NAMESPACE/NAME of the pod."""
    by: str
    """SCHEDULER.ATTEMPT that wrote the hold."""
    ids: tuple[int, ...]
    kind: Literal["Exclusive", "Shared", "MIG", "Replicas", "Explicit"] = "Exclusive"
    milli: tuple[int, ...] = ()
    """Thousandths of each device, in the order of the ids."""
    memory: tuple[int, ...] = ()
    """MiB of each device, in the order of the ids."""
    instances: tuple[str, ...] = ()
    """UUIDs of MIG instances."""
    adopted: bool = False
    term: str = ""
    """ELECTION/NUMBER of the leadership under which the hold was written; "" without leader election."""
    owner: str = ""
    """Of an adopted hold: the attempt of the other scheduler that wrote the hold; "" if there are several others."""
    owner_term: str = ""
    """Of an adopted hold: the `term` of its owner."""

    def __post_init__(self) -> None:
        """Raises ValueError (a decoder: ValidationError) for device ids that no node has, and for a wrong number of
        amounts.
        """
        if not all(0 <= id < texts.MOST_IDS for id in self.ids):
            raise ValueError(f"ids have to be 0 to {texts.MOST_IDS - 1}")
        if any(amounts and len(amounts) != len(self.ids) for amounts in (self.milli, self.memory)):
            raise ValueError("there has to be one amount for each id")

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return self.pod.partition("/")[0]

    @property
    def scheduler(self) -> str:
        """The scheduler process that wrote the hold."""
        return self.by.partition(".")[0]

    def after(self, mine: Hold) -> Hold:
        """This hold, written in the place of an earlier hold of the same pod.

        A scheduler that does not lead any more has no use for what it wrote. Any other scheduler may still bind the
        pod.
        """
        is_ours = mine.scheduler == self.scheduler
        if mine.is_older_than(self.term) or (is_ours and not mine.adopted):
            return self
        if is_ours:
            owner, term = mine.owner, mine.owner_term
        elif not mine.adopted or mine.owner.partition(".")[0] == self.scheduler:
            owner, term = mine.by, mine.term
        else:
            owner, term = "", ""
        return msgspec.structs.replace(self, adopted=True, owner=owner, owner_term=term)

    def without(self, by: str) -> Hold | None:
        """What is left of this hold when an attempt releases its devices; None for nothing.

        An adopted hold stays for the other of the two schedulers. If several have adopted it, it stays as it is until
        the pod has ended or is elsewhere.
        """
        if self.owner == by:
            return msgspec.structs.replace(self, adopted=False, owner="", owner_term="")
        if self.by != by or (self.adopted and not self.owner):
            return self
        if not self.adopted:
            return None
        return msgspec.structs.replace(
            self, by=self.owner, term=self.owner_term, adopted=False, owner="", owner_term=""
        )

    def is_older_than(self, term: str) -> bool:
        """Whether a leader of the same election with a smaller number wrote the hold; see `is_older`."""
        return is_older(self.term, term)


Holders = Mapping[str, Hold]
"""The holds of a lease, by the UID of their pod or by UID/ATTEMPT."""


@dataclass(frozen=True, slots=True)
class HoldPart:
    """What a pod needs of one lease."""

    lease: str
    node: str
    uid: str
    hold: Hold


def parts_of(
    allocation: Allocation, node: str, uid: str, pod: str, by: str, whole_node: bool, term: str = ""
) -> list[HoldPart]:
    """What a pod with an allocation needs: one lease per device, in the order of their names, or one for the node."""
    a = allocation
    instances = a.uuids if a.exclusivity == "MIG" else ()
    if whole_node:
        hold = Hold(
            pod=pod,
            by=by,
            ids=a.ids,
            kind=a.exclusivity,
            milli=a.milli,
            memory=a.memory_mib,
            instances=instances,
            term=term,
        )
        return [HoldPart(lease_name(node), node, uid, hold)]
    parts = [
        HoldPart(
            lease_name(node, id),
            node,
            uid,
            Hold(
                pod=pod,
                by=by,
                ids=(id,),
                kind=a.exclusivity,
                milli=a.milli[place : place + 1],
                memory=a.memory_mib[place : place + 1],
                instances=instances,
                term=term,
            ),
        )
        for place, id in enumerate(a.ids)
    ]
    return sorted(parts, key=lambda part: part.lease)


def is_older(term: str, than: str) -> bool:
    """Whether a leadership has a smaller number than another one of the same election.

    Such a leader has led before, unless somebody has deleted the Lease of the election: then numbers may begin anew.
    """
    election, before, now = than.rpartition("/")[0], number_of(term), number_of(than)
    is_same = bool(election) and term.rpartition("/")[0] == election
    return is_same and before is not None and now is not None and before < now


def number_of(term: str) -> int | None:
    """The number of the leadership ELECTION/NUMBER; None if the text is none."""
    _, _, text = term.rpartition("/")
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None


def uid_of(holder: str) -> str:
    """The UID of the pod in a holder's key."""
    return holder.partition("/")[0]


def holder_for(uid: str, hold: Hold, holders: Holders) -> str:
    """The key for a hold: that of an earlier hold on the same devices, or of an earlier attempt of the same scheduler.

    Different devices that another scheduler has locked for the pod stay locked: it may be binding the pod to them.
    """
    for holder, old in holders.items():
        same = old.ids == hold.ids or (old.scheduler == hold.scheduler and not old.adopted)
        if uid_of(holder) == uid and same:
            return holder
    return f"{uid}/{hold.by}" if uid in holders else uid


# Leases


def node_of(lease: model.Lease) -> str:
    """The node whose devices the lease locks."""
    metadata = lease.metadata
    named = (metadata.annotations or {}).get(custom_resources.LEASE_NODE) or (metadata.labels or {}).get(
        custom_resources.LEASE_NODE
    )
    found = device_of(metadata.name)
    return named or (found[0] if found else "")


def holders_of(lease: model.Lease) -> dict[str, Hold]:
    """The holders of a lease; if it lists none, the pod in holderIdentity."""
    text = (lease.metadata.annotations or {}).get(HOLDERS)
    if text is not None:
        try:
            return texts.from_json(f"annotation {HOLDERS}", text, dict[str, Hold])
        except InvalidObject:
            pass  # the annotation was edited by hand: use the other fields
    holder, device = lease.spec.holder_identity, device_of(lease.metadata.name)
    if not holder or device is None:
        return {}
    labels = lease.metadata.labels or {}
    namespace = labels.get(custom_resources.LEASE_POD_NAMESPACE, lease.metadata.namespace)
    return {holder: Hold(pod=f"{namespace}/{labels.get(custom_resources.LEASE_POD, '')}", by="", ids=(device[1],))}


def lease_of(
    name: str, namespace: str, node: str, holders: Holders, now: str, before: model.Lease | None = None
) -> model.Lease:
    """The lease with these holders; `now` is a MicroTime, `before` the lease that it replaces."""
    uids: dict[int, dict[str, None]] = {}
    for holder, hold in holders.items():
        for id in hold.ids:
            uids.setdefault(id, {})[uid_of(holder)] = None
    devices = {str(id): ",".join(uids[id]) for id in sorted(uids)}
    first = None if name == lease_name(node) else next(iter(holders))
    return model.Lease(
        metadata=model.ObjectMeta(
            name=name,
            namespace=namespace,
            uid=before.metadata.uid if before else "",
            resource_version=before.metadata.resource_version if before else "",
            labels=lease_labels(node, holders[first].pod if first else None),
            annotations={
                custom_resources.LEASE_NODE: node,
                HOLDERS: msgspec.json.encode(holders).decode(),
                DEVICES: msgspec.json.encode(devices).decode(),
            },
        ),
        spec=model.LeaseSpec(holder_identity=uid_of(first) if first else None, acquire_time=now),
    )


# Judging


def in_the_way(uid: str, hold: Hold, holders: Holders, memory: Sequence[int]) -> list[str]:
    """The holders that leave no place for this hold; `memory` is MiB by device id, 0 if unknown."""
    found: dict[str, None] = {}
    for place, id in enumerate(hold.ids):
        there = {other: h for other, h in holders.items() if uid_of(other) != uid and id in h.ids}
        excluding = [other for other, h in there.items() if not _may_share(hold, h)]
        found.update(dict.fromkeys(excluding or (() if _fit(hold, place, there.values(), memory) else there)))
    return list(found)


def is_over(hold: Hold, uid: str, node: str, pod: model.Pod | None, locked: Collection[int]) -> bool:
    """Whether a pod, as it is on the API server, does not need a hold any more and never will.

    `locked` are the devices of the node that leases lock for the pod. The pod's annotation proves that it has other
    devices than the hold's only if all devices that it names are locked. A hold that does not name its pod is never
    over.
    """
    if hold.pod.endswith("/"):
        return False
    if pod is None or pod.metadata.uid != uid or pod.status.phase in ("Succeeded", "Failed"):
        return True
    if not pod.spec.node_name:
        return False
    allocated = (pod.metadata.annotations or {}).get(custom_resources.ALLOCATED)
    if pod.spec.node_name != node:
        return True
    said = set(texts.device_ids(allocated)) if allocated is not None else set(hold.ids)
    return not said.issuperset(hold.ids) and said.issubset(locked)


def _may_share(hold: Hold, other: Hold) -> bool:
    if hold.kind == "Explicit":
        return other.kind == "Explicit" and hold.namespace == other.namespace
    if hold.kind == "MIG":
        return other.kind == "MIG" and not set(hold.instances) & set(other.instances)
    return hold.kind in ("Shared", "Replicas") and other.kind in ("Shared", "Replicas")


def _fit(hold: Hold, place: int, others: Iterable[Hold], memory: Sequence[int]) -> bool:
    id = hold.ids[place]
    every = [(hold, place), *((h, h.ids.index(id)) for h in others)]
    milli = sum(h.milli[at] for h, at in every if h.milli)
    used = sum(h.memory[at] for h, at in every if h.memory)
    total = memory[id] if id < len(memory) else 0
    return milli <= WHOLE and (not total or used <= total)
