"""The ledger: which claim has which devices, by what is written and by what is under way.

A claim has the first of these that there is:

1. The allocation in its status, from the watch or from the answer to a write of this process, whichever is newer.
2. A firm choice: a pod that is being bound will write it (`reserve`), until it is known what came of that (`forget`).
3. A guess: a pod was placed, perhaps in a transaction, and its claim got devices on that row. The pods that were placed
   later use them too. The guess ends with the last of them.

Devices that are written come free only when the API server says so: other schedulers see nothing else. But whoever asks
on trial what will be gets another answer. Where a transaction has lifted the last pod that uses a claim, the claim
counts as having none of its devices until the pod is put back; with foresight (`State.foreseen`) also where the last
one is gone or ending. See `entries`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress

from gangline import DeadlineExceeded, Handle, InvalidObject, NodeView, PodClass, PodInfo, State, model, resources
from gangline.dra.live import Devices
from gangline_plugins.default_preemption.levels import PriorityLevels
from gangline_plugins.dynamic_resources.claims import ClaimProblem, Claims, PodClaims, is_made_for, uses_claims
from gangline_plugins.dynamic_resources.conceding import Concessions
from gangline_plugins.dynamic_resources.entries import Allocation, ClaimEntry, Endings
from gangline_plugins.dynamic_resources.extended import ExtendedClaims
from gangline_plugins.dynamic_resources.guests import Guests
from gangline_plugins.dynamic_resources.listening import ClaimListener, NodeLabels
from gangline_plugins.dynamic_resources.narrowing import Narrowings
from gangline_plugins.dynamic_resources.offering import Offering
from gangline_plugins.dynamic_resources.orders import AllocationOrders
from gangline_plugins.dynamic_resources.referring import References
from gangline_plugins.dynamic_resources.written import Written, version_of
from gangline_plugins.extended_resources import ExtendedResources

_FEW_ENDING = 16
"""Claims that are about to come free, at most, if a choice is tried without them first."""


class Ledger:
    """The tracker of all claims of a cluster."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._store = state.store(resources.RESOURCE_CLAIMS)
        self._entries: dict[str, ClaimEntry] = {}
        self._turns = itertools.count(1)
        self.levels = PriorityLevels()
        """The priorities of the pods with claims on each row."""
        self._endings = Endings(state)
        self._free: set[str] = set()
        """The UIDs of the claims whose devices count as given back on trial."""
        self.concessions = Concessions()
        self.narrowings = Narrowings()
        self._ending: set[str] = set()
        """While somebody looks ahead: the UIDs of the claims of pods that are gone or ending."""
        self._pods: dict[str, tuple[str, ...]] = {}
        """By pod: the UIDs of the claims that it was placed with."""
        self.nodes: Callable[[], NodeView] | None = None
        """All nodes; the plugin says how to get them, as only its handle has them."""
        self.devices = Devices(self._nodes)
        self.references = References(state, self.devices.changes)
        self.claims = PodClaims(self._store, self.references.group_of)
        self.orders = AllocationOrders()
        self._store.subscribe(ClaimListener(self.learn, self.gone))
        self.written = Written(self._store, self._nodes)
        self.extended = ExtendedClaims(state.shared(ExtendedResources, state), self._nodes, self._store)
        self.guests = Guests(state, self.devices, self._nodes, self._lacking, self.solve)
        self.offering = Offering(state, self.devices, self.written)
        state.follow_nodes(NodeLabels(self.devices.node_changed))

    def _nodes(self) -> NodeView:
        if self.nodes is None:
            raise RuntimeError("nobody has said where the nodes are")
        return self.nodes()

    # The tracker

    def concerns(self, cls: PodClass) -> bool:
        """Pods with claims, and pods that request what classes of devices serve."""
        return uses_claims(cls) or self.extended.served.concern(cls)

    def add(self, pod: PodInfo, row: int) -> None:
        """A pod is placed: its claims have devices on that row, unless they have some already, or there are none."""
        self._endings.placed(pod)
        self.levels.add(pod, row)
        self.devices.changes.note(row)
        lifted = self._endings.lifted.pop(pod.uid, None)
        if lifted is not None and lifted[0] == row:
            self._put_back(pod, lifted[1])
            return
        try:
            claims = self.claims_at(pod, row)
        except ClaimProblem:
            claims = []
        self._pods[pod.uid] = tuple(claim.metadata.uid for claim in claims)
        lacking = []
        for claim in claims:
            entry = self._entry(claim.metadata.uid)
            entry.consumers.add(pod.uid)
            if not pod.node_name:
                entry.guessing.add(pod.uid)
            if self._free:
                self._settle(claim.metadata.uid)
            if entry.allocation is None:
                lacking.append(claim)
        if lacking and not pod.node_name and self.nodes is not None:
            self._guess(pod, lacking, row)

    def remove(self, pod: PodInfo, row: int) -> None:
        """A pod is taken off: a guess ends with its last consumer."""
        if pod.uid in self._pods:
            self.levels.remove(pod, row)
            self.devices.changes.note(row)
        if self._state.is_lifted(pod.uid):
            self._lift(pod, row)
            return
        self._endings.removed(pod)
        for uid in self._pods.pop(pod.uid, ()):
            entry = self._entry(uid)
            entry.leave(pod.uid)
            if not entry.guessing:
                entry.guess = None
            self._settle(uid)

    def _lift(self, pod: PodInfo, row: int) -> None:
        """A transaction takes a pod off that is bound or assumed: what the pod alone uses counts as given back."""
        uids = self._pods.pop(pod.uid, ())
        self._endings.lifted[pod.uid] = row, uids
        for uid in uids:
            entry = self._entry(uid)
            entry.leave(pod.uid)
            if not entry.guessing and entry.settled is None:
                entry.guess = None
        for uid in self._endings.claims_of(pod.uid).union(uids):
            self._settle(uid)

    def _put_back(self, pod: PodInfo, uids: tuple[str, ...]) -> None:
        """Undo `_lift`: the claims have the very same devices again."""
        self._pods[pod.uid] = uids
        for uid in uids:
            self._entry(uid).consumers.add(pod.uid)
        for uid in self._endings.claims_of(pod.uid).union(uids):
            self._settle(uid)

    def foresee(self, begins: bool) -> bool:
        """Count claims as free whose last pod is gone or ending, or do so no more; whether there are some."""
        before, ending = len(self._free), list(self._endings.foresee(begins))
        if begins:
            self._ending = {uid for pod in ending for uid in (*self._pods.get(pod, ()), *self._endings.claims_of(pod))}
        for uid in self._ending:
            self._settle(uid)
        if not begins:
            self._ending = set()
        return len(self._free) != before

    def clear(self) -> None:
        """Forget all pods that are placed."""
        self._pods.clear()
        self.levels.clear()
        self._endings.clear()
        for uid, entry in list(self._entries.items()):
            entry.consumers.clear()
            entry.guessing.clear()
            entry.guess = None
            self._settle(uid)

    def claims_at(self, pod: PodInfo, row: int) -> Claims:
        """The claims of a pod on a row, that for its extended resources last. Raises ClaimProblem."""
        claims = self.claims.of(pod)
        extended = self.extended.at(pod, row)
        return claims if extended is None else [*claims, extended]

    def _lacking(self, pod: PodInfo) -> Claims:
        """The claims of a pod that have no devices; none if one of them cannot be used."""
        try:
            claims = self.claims.of(pod)
        except ClaimProblem:
            return []
        return [each for each in claims if not self.has_devices(each.metadata.uid)]

    def _guess(self, pod: PodInfo, claims: Claims, row: int, is_final: bool = False) -> None:
        """Without `is_final` a pod that makes do with less gets the last alternatives of its claims."""
        wanted = claims if is_final else self.concessions.of(pod, claims)
        with self.guests.provided(pod, row) as are_some:
            found = self._solve_soon(pod, wanted, row)
        if found is None and are_some:
            found = self._solve_soon(pod, wanted, row)
        for claim, allocation in zip(claims, found or (), strict=bool(found)):
            self._entry(claim.metadata.uid).guess = allocation
            self._settle(claim.metadata.uid)

    def _improve(self, pod: PodInfo, claims: Claims, row: int) -> None:
        """All members have a node: give the claims of this one the earliest alternatives that the others leave."""
        own = [claim for claim in claims if self._entry(claim.metadata.uid).is_guess_of(pod.uid)]
        before = [self._entry(claim.metadata.uid).guess for claim in own]
        for claim in own:
            self._entry(claim.metadata.uid).guess = None
            self._settle(claim.metadata.uid)
        if own:
            self._guess(pod, own, row, is_final=True)
        for claim, guess in zip(own, before, strict=True):
            entry = self._entry(claim.metadata.uid)
            entry.guess = entry.guess or guess
            self._settle(claim.metadata.uid)

    def _solve_soon(self, pod: PodInfo, claims: Claims, row: int) -> tuple[Allocation, ...] | None:
        """As `solve`; with foresight only if there are not enough devices without.

        Where much is about to come free, looking at once without would take long.
        """
        found = None
        if 0 < len(self._ending) <= _FEW_ENDING:
            self.foresee(False)
            try:
                found = self.solve(pod, claims, row)
            finally:
                self.foresee(True)
        return found or self.solve(pod, claims, row)

    def solve(self, pod: PodInfo, claims: Claims, row: int) -> tuple[Allocation, ...] | None:
        """What the node of a row has for claims of a pod without devices; None if that is too little, or takes long."""
        order, shared_on = self.orders.of(pod.scheduler_name), self.narrowings.of(pod, claims)
        try:
            return self.devices.allocate(self.devices.asked(claims), claims, row, order, shared_on).allocations
        except (InvalidObject, DeadlineExceeded):
            return None

    # What is known of a claim

    def _entry(self, uid: str) -> ClaimEntry:
        entry = self._entries.get(uid)
        if entry is None:
            entry = self._entries[uid] = ClaimEntry()
        return entry

    def _settle(self, uid: str) -> None:
        """Take what the claim has now, and no more."""
        entry = self._entry(uid)
        entry.set_free(self._endings.is_free(entry))
        if entry.is_free:
            self._free.add(uid)
        elif self._free:
            self._free.discard(uid)
        allocation, before = entry.allocation, entry.taken
        if allocation is not before:
            if allocation is None:
                self.devices.give(uid)
            else:
                self.devices.take(uid, allocation)
            entry.taken = allocation
            entry.turn = next(self._turns)
        if entry.is_empty:
            del self._entries[uid]

    def learn(self, claim: model.ResourceClaim) -> None:
        """The claim is, or was, as the API server says; older news than what is known changes nothing.

        Nor does news of a claim whose end is known: an answer to a write may come after the watch.
        """
        stored = self._store.get(claim.metadata.name, claim.metadata.namespace)
        if stored is None or stored.metadata.uid != claim.metadata.uid:
            return
        entry = self._entry(claim.metadata.uid)
        if entry.claim is None or version_of(entry.claim) < version_of(claim):
            before = entry.reserved
            entry.see(claim)
            self._endings.reserved(claim.metadata.uid, before, entry.reserved)
        self._settle(claim.metadata.uid)

    def gone(self, uid: str) -> None:
        """The claim is deleted."""
        entry = self._entry(uid)
        self._endings.reserved(uid, entry.reserved, ())
        entry.see(None)
        entry.firm = entry.guess = None
        entry.holders.clear()
        self._settle(uid)

    def newest(self, claim: model.ResourceClaim) -> model.ResourceClaim:
        """The newest known state of a claim."""
        return self.shown(claim.metadata.uid) or claim

    def shown(self, uid: str) -> model.ResourceClaim | None:
        """The newest known state of the claim with this UID; None if the watch has not shown it, or it is gone."""
        return self._entries[uid].claim if uid in self._entries else None

    def uses(self, pod: PodInfo) -> frozenset[str]:
        """The UIDs of the claims that a placed pod was placed with, and of those that are reserved for the pod."""
        return self._endings.claims_of(pod.uid).union(self._pods.get(pod.uid, ()))

    def own(self, pod: PodInfo) -> Claims:
        """The claims without devices that were made for a pod; none if the pod has a claim that cannot be used."""
        return [each for each in self._lacking(pod) if is_made_for(pod, each)]

    def allocation(self, uid: str) -> Allocation | None:
        """What a claim has."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.allocation

    def has_devices(self, uid: str) -> bool:
        """Whether a claim has devices."""
        return self.allocation(uid) is not None

    def turn(self, uid: str) -> int:
        """A number for the devices of a claim, which no others ever have; 0 without devices."""
        entry = self._entries.get(uid)
        return 0 if entry is None or entry.allocation is None else entry.turn

    def consumers(self, uid: str) -> set[str]:
        """The pods that use a claim: those that it is reserved for, and those that are placed."""
        entry = self._entries.get(uid)
        return set() if entry is None else entry.consumers.union(entry.reserved)

    def is_leaving(self, uid: str) -> bool:
        """Whether what was written for a claim is being taken back."""
        entry = self._entries.get(uid)
        return entry is not None and entry.is_leaving

    async def has_seen(self, claims: Claims, seconds: float) -> bool:
        """Wait, at most so many seconds, until the watch has shown the newest known states of claims; whether it has.

        Then it has shown everything that was written to any claim before.
        """
        newest = max((version_of(self.newest(claim)) for claim in claims), default=0)
        shown = asyncio.Event()
        end = self._store.when_seen(newest, shown.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await shown.wait()
        finally:
            end()
        return shown.is_set()

    # On the way to a binding

    def reserve(self, pod: PodInfo, claims: Claims, row: int) -> dict[str, Allocation] | None:
        """Make the choice for the claims of a placed pod firm, until `forget`; None if some have no devices.

        By UID of the claim: what is to be written, if it is not yet.
        """
        if self.concessions.are_made_by(pod):
            self._improve(pod, claims, row)
        lacking = [claim for claim in claims if self._entry(claim.metadata.uid).allocation is None]
        if lacking:
            self._guess(pod, lacking, row)
        found = {claim.metadata.uid: self.allocation(claim.metadata.uid) for claim in claims}
        chosen = {uid: allocation for uid, allocation in found.items() if allocation is not None}
        if len(chosen) < len(found):
            return None
        for uid, allocation in chosen.items():
            entry = self._entry(uid)
            entry.firm = entry.firm or allocation
            entry.holders.add(pod.uid)
        return chosen

    def created(self, pod: PodInfo, uid: str, claim: model.ResourceClaim) -> None:
        """A claim in memory of a pod is there now: what was chosen for it is the claim's."""
        before, after = self._entry(uid), self._entry(claim.metadata.uid)
        after.firm, after.guess = before.firm, before.guess
        after.holders |= before.holders
        after.consumers |= before.consumers
        after.guessing |= before.guessing
        before.firm = before.guess = None
        before.holders, before.consumers, before.guessing = set(), set(), set()
        self._settle(uid)
        self._settle(claim.metadata.uid)
        if pod.uid in self._pods:
            self._pods[pod.uid] = tuple([claim.metadata.uid if each == uid else each for each in self._pods[pod.uid]])

    def forget(self, pod: PodInfo, uids: tuple[str, ...]) -> None:
        """The pod will not write its choice any more, or has."""
        self._endings.pending(pod.uid)
        for uid in uids:
            entry = self._entry(uid)
            entry.holders.discard(pod.uid)
            if not entry.holders:
                entry.firm = None
                if not entry.consumers:  # the pod was placed before the claim came
                    entry.guess = None
            self._settle(uid)

    def leaving(self, uid: str, is_leaving: bool) -> None:
        """What was written is being taken back, or is no more: meanwhile no pod gets the claim."""
        self._entry(uid).is_leaving = is_leaving
        self._settle(uid)
        self.devices.changes.note_all()


def ledger(handle: Handle) -> Ledger:
    """The ledger of the cluster."""
    found = handle.state.tracker(Ledger, handle.state)
    found.nodes = lambda: handle.nodes
    found.guests.nominated = handle.nominated
    return found
