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

import itertools
from collections.abc import Mapping, Sequence

from gangline import DeadlineExceeded, Handle, InvalidObject, PodClass, PodInfo, State, model, resources
from gangline.dra.live import Devices
from gangline_plugins.default_preemption.levels import PriorityLevels
from gangline_plugins.dynamic_resources.claims import ClaimProblem, Claims, PodClaims, is_made_for, uses_claims
from gangline_plugins.dynamic_resources.conceding import Concessions
from gangline_plugins.dynamic_resources.entries import Allocation, Endings, devices_of
from gangline_plugins.dynamic_resources.extended import ExtendedClaims
from gangline_plugins.dynamic_resources.guests import Guests
from gangline_plugins.dynamic_resources.known import KnownClaims
from gangline_plugins.dynamic_resources.listening import ClaimListener, NodeLabels
from gangline_plugins.dynamic_resources.narrowing import Narrowings
from gangline_plugins.dynamic_resources.offering import Offering
from gangline_plugins.dynamic_resources.orders import AllocationOrders, Order
from gangline_plugins.dynamic_resources.referring import References
from gangline_plugins.dynamic_resources.restoring import Restoring
from gangline_plugins.dynamic_resources.written import Written
from gangline_plugins.extended_resources import ExtendedResources
from gangline_plugins.twin_gpus import TwinGpus
from gangline_plugins.versions import version_of

_FEW_ENDING = 16
"""With at most this many claims about to come free, a choice is first tried without their devices."""


class Ledger(KnownClaims):
    """The tracker of all claims of a cluster."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state
        self._store = state.store(resources.RESOURCE_CLAIMS)
        self._turns = itertools.count(1)
        self.levels = PriorityLevels()
        """The priorities of the pods with claims on each row."""
        self._endings = Endings(state)
        self._restoring = Restoring(state, self, self._entries, self._settle)
        self._free: set[str] = set()
        """The UIDs of the claims whose devices count as given back on trial."""
        self.concessions = Concessions()
        self.narrowings = Narrowings()
        self._ending: set[str] = set()
        """During a look ahead (`foresee`): the UIDs of the claims of pods that are gone or ending."""
        self._pods: dict[str, tuple[str, ...]] = {}
        """The UIDs of the claims with which a pod was placed, by the UID of the pod."""
        self.devices = Devices(state.view)
        self.references = References(state, self.devices.changes)
        self.claims = PodClaims(self._store, self.references.group_of)
        self.orders = AllocationOrders()
        self.twins: TwinGpus | None = None
        """Is told of the devices of claims, see `meet`."""
        self._store.subscribe(ClaimListener(self.learn, self.gone))
        self.written = Written(self._store, state.view)
        self.extended = ExtendedClaims(state.shared(ExtendedResources, state), state.view, self._store)
        self.guests = Guests(state, self.devices, state.view, self._lacking, self.solve)
        self.offering = Offering(state, self.devices, self.written)
        state.follow_nodes(NodeLabels(self.devices.node_changed))

    def meet(self, twins: TwinGpus) -> TwinGpus:
        """Tell of the devices of claims, until the present configuration ends, which devices not to give."""
        self.twins = twins
        twins.add_offers(self.devices, self._state)
        return twins

    # The tracker

    def concerns(self, cls: PodClass) -> bool:
        """Whether pods of this class have claims, or request extended resources that a DeviceClass serves."""
        return uses_claims(cls) or self.extended.served.concern(cls)

    def add(self, pod: PodInfo, row: int) -> None:
        """A pod is placed on a row: its claims without devices get a guess there, if enough devices are free."""
        self.levels.add(pod, row)
        self.devices.changes.note(row)
        self._add(pod, row)

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> None:
        """As `add`, for pods of one class."""
        self.levels.add_all(pods, rows)
        self.devices.changes.note_rows(rows)
        if self._free or self._endings.are_counted:
            for pod, row in zip(pods, rows, strict=True):
                self._add(pod, row)
            return
        lacking = list(map(self._join, pods, rows))
        if not self._guess_each(pods, lacking, rows):
            for pod, claims, row in zip(pods, lacking, rows, strict=True):
                self._guess_lacking(pod, claims, row)

    def _add(self, pod: PodInfo, row: int) -> None:
        lifted = self._endings.lifted.pop(pod.uid, None)
        if lifted is not None:
            self._restoring.before_step(self._endings.claims_of(pod.uid).union(lifted[1]))
        if lifted is not None and lifted[0] == row:
            self._endings.placed(pod)
            self._put_back(pod, lifted[1])
            return
        self._guess_lacking(pod, self._join(pod, row), row)

    def _join(self, pod: PodInfo, row: int) -> Claims:
        """A pod uses its claims from now on; returns the claims for which devices have to be guessed."""
        self._endings.placed(pod)
        try:
            claims = self.claims_at(pod, row)
        except ClaimProblem:
            claims = []
        uid, is_trial = pod.uid, not pod.node_name
        self._pods[uid] = tuple([claim.metadata.uid for claim in claims])
        for claim in claims:
            entry = self._entries[claim.metadata.uid]
            entry.consumers.add(uid)
            if is_trial:
                entry.guessing.add(uid)
            if self._free:
                self._settle(claim.metadata.uid)
        return claims if is_trial and not self._state.is_undoing else []  # undone steps get their guesses back

    def _guess_lacking(self, pod: PodInfo, claims: Claims, row: int) -> None:
        lacking = [claim for claim in claims if self._entries[claim.metadata.uid].allocation is None]
        if lacking:
            self._guess(pod, lacking, row)

    def remove(self, pod: PodInfo, row: int) -> None:
        """A pod is taken off its row: a guess ends with the last pod that shares it."""
        if pod.uid in self._pods:
            self.levels.remove(pod, row)
            self.devices.changes.note(row)
            self._restoring.before_step(self._pods[pod.uid])
        if self._state.is_lifted(pod.uid):
            self._lift(pod, row)
            return
        self._endings.removed(pod)
        for uid in self._pods.pop(pod.uid, ()):
            entry = self._entries[uid]
            entry.leave(pod.uid)
            if not entry.guessing:
                entry.guess = None
            self._settle(uid)

    def _lift(self, pod: PodInfo, row: int) -> None:
        """A transaction takes off a bound or assumed pod: devices that the pod alone uses count as given back."""
        uids = self._pods.pop(pod.uid, ())
        self._endings.lifted[pod.uid] = row, uids
        for uid in uids:
            entry = self._entries[uid]
            entry.leave(pod.uid)
            if not entry.guessing and entry.settled is None:
                entry.guess = None
        for uid in self._endings.claims_of(pod.uid).union(uids):
            self._settle(uid)

    def _put_back(self, pod: PodInfo, uids: tuple[str, ...]) -> None:
        """Undo `_lift`: the claims have the very same devices again."""
        self._pods[pod.uid] = uids
        for uid in uids:
            self._entries[uid].consumers.add(pod.uid)
        for uid in self._endings.claims_of(pod.uid).union(uids):
            self._settle(uid)

    def foresee(self, begins: bool) -> bool:
        """Begin or end to count claims as free whose last pod is gone or ending; returns whether any claim changes."""
        before, ending = len(self._free), self._endings.foresee(begins)
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
        """The claims of a pod on a row; the claim for its extended resources comes last. Raises ClaimProblem."""
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
        """Guess devices on a row for claims of a pod. If the node lacks devices, the claims stay without.

        A pod that makes a concession gets the last alternatives of its claims, unless `is_final`.
        """
        wanted = claims if is_final else self.concessions.of(pod, claims)
        with self.guests.provided(pod, row) as are_some:
            found = self._solve_soon(pod, wanted, row)
        if found is None and are_some:
            found = self._solve_soon(pod, wanted, row)
        for claim, allocation in zip(claims, found or (), strict=bool(found)):
            self._entries[claim.metadata.uid].guess = allocation
            self._restoring.guessed(claim.metadata.uid)
            self._settle(claim.metadata.uid)

    def _guess_each(self, pods: Sequence[PodInfo], claims: Sequence[Claims], rows: Sequence[int]) -> bool:
        """As `_guess` for the claims of pods of one class; False, and nothing done, if the pods are not independent."""
        if self.guests.nominated() or self.concessions.are_some or self.narrowings.are_some:
            return False
        uids = [claim.metadata.uid for each in claims for claim in each]
        entries = [self._entries[uid] for uid in uids]
        are_free = all([each.allocation is None and len(each.consumers) == 1 for each in entries])
        if not all(claims) or not are_free or len(set(uids)) < len(uids) or len(set(rows)) < len(rows):
            return False
        try:
            asked, *others = map(self.devices.asked, claims)
            orders: list[Order] = [self.orders.of(pod.scheduler_name) for pod in pods]
            is_one = len(set(orders)) == 1 and all([each is asked or each == asked for each in others])
            found = self.devices.allocate_each(asked, claims, rows, orders[0]) if is_one else None
        except (InvalidObject, DeadlineExceeded):
            return False
        guesses = [guess for each in found or () for guess in each]
        if found is None or (self.twins is not None and self.twins.concern(devices_of(*guesses))):
            return False
        for entry, guess in zip(entries, guesses, strict=True):
            entry.guess = entry.taken = guess
            entry.turn = next(self._turns)
        self.devices.take_all(dict(zip(uids, guesses, strict=True)))
        return True

    def _improve(self, pod: PodInfo, claims: Claims, row: int) -> None:
        """When all members of a gang have nodes: give a member's claims the earliest alternatives left there."""
        own = [claim for claim in claims if self._entries[claim.metadata.uid].is_guess_of(pod.uid)]
        before = [self._entries[claim.metadata.uid].guess for claim in own]
        for claim in own:
            self._entries[claim.metadata.uid].guess = None
            self._settle(claim.metadata.uid)
        if own:
            self._guess(pod, own, row, is_final=True)
        for claim, guess in zip(own, before, strict=True):
            self._entries[claim.metadata.uid].guess = self._entries[claim.metadata.uid].guess or guess
            self._settle(claim.metadata.uid)

    def _solve_soon(self, pod: PodInfo, claims: Claims, row: int) -> tuple[Allocation, ...] | None:
        """As `solve`. During a look ahead, devices that are free already are tried first.

        That is left out if more than _FEW_ENDING claims are about to come free, because that would take long, or if one
        of them has got other devices, because these would not count as taken.
        """
        found = None
        if 0 < len(self._ending) <= _FEW_ENDING and not self.have_other_devices(self._ending):
            self.foresee(False)
            try:
                found = self.solve(pod, claims, row)
            finally:
                self.foresee(True)
        return found or self.solve(pod, claims, row)

    def solve(self, pod: PodInfo, claims: Claims, row: int) -> tuple[Allocation, ...] | None:
        """Devices on a row for a pod's claims without devices; None if there are too few, or the search takes long."""
        order, shared_on = self.orders.of(pod.scheduler_name), self.narrowings.of(pod, claims)
        try:
            return self.devices.allocate(self.devices.asked(claims), claims, row, order, shared_on).allocations
        except (InvalidObject, DeadlineExceeded):
            return None

    # What is known of a claim

    def _settle(self, uid: str) -> None:
        """Count exactly the devices as taken that the claim has now."""
        entry = self._entries[uid]
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
            if self.twins is not None:
                self.twins.claims_changed(devices_of(before, allocation))
            entry.taken = allocation
            entry.turn = next(self._turns)
        if entry.is_empty:
            del self._entries[uid]

    def learn(self, claim: model.ResourceClaim) -> None:
        """Take in a state of a claim that the API server has sent, by the watch or in an answer to a write.

        A state that is older than the known one changes nothing. Nor does the state of a claim that is known to be
        deleted: an answer may come later than the watch's news of the deletion.
        """
        stored = self._store.get(claim.metadata.name, claim.metadata.namespace)
        if stored is None or stored.metadata.uid != claim.metadata.uid:
            return
        entry = self._entries[claim.metadata.uid]
        if entry.claim is None or version_of(entry.claim.metadata) < version_of(claim.metadata):
            before = entry.reserved
            entry.see(claim)
            self._endings.reserved(claim.metadata.uid, before, entry.reserved)
        self._settle(claim.metadata.uid)

    def gone(self, uid: str) -> None:
        """The claim is deleted."""
        entry = self._entries[uid]
        self._endings.reserved(uid, entry.reserved, ())
        entry.end()
        self._settle(uid)

    def uses(self, pod: PodInfo) -> frozenset[str]:
        """The UIDs of the claims that a placed pod was placed with, and of those that are reserved for the pod."""
        return self._endings.claims_of(pod.uid).union(self._pods.get(pod.uid, ()))

    def own(self, pod: PodInfo) -> Claims:
        """The claims without devices that were made for a pod; none if the pod has a claim that cannot be used."""
        return [each for each in self._lacking(pod) if is_made_for(pod, each)]

    # On the way to a binding

    def reserve(self, pod: PodInfo, claims: Claims, row: int) -> dict[str, Allocation] | None:
        """Make the choice for the claims of a placed pod firm, until `forget`; None if one of them has no devices.

        Returns by the UID of each claim the devices that its status has or is to get.
        """
        if self.concessions.are_made_by(pod):
            self._improve(pod, claims, row)
        self._guess_lacking(pod, claims, row)
        chosen = self.chosen(claims)
        if chosen is not None:
            self.make_firm(pod, chosen)
        return chosen

    def make_firm(self, pod: PodInfo, chosen: Mapping[str, Allocation]) -> None:
        """A pod that is being bound will write these devices of its claims, which have them already."""
        for uid, allocation in chosen.items():
            entry = self._entries[uid]
            entry.firm = entry.firm or allocation
            entry.holders.add(pod.uid)

    def created(self, pod: PodInfo, uid: str, claim: model.ResourceClaim) -> None:
        """A pod's claim in memory, with this UID, was created as `claim`, which takes over its devices."""
        before, after = self._entries[uid], self._entries[claim.metadata.uid]
        after.take_over(before)
        self._settle(uid)
        self._settle(claim.metadata.uid)
        if pod.uid in self._pods:
            self._pods[pod.uid] = tuple([claim.metadata.uid if each == uid else each for each in self._pods[pod.uid]])

    def forget(self, pod: PodInfo, uids: tuple[str, ...]) -> None:
        """End what `reserve` began: the pod has written its choice, or will not write it."""
        self._endings.pending(pod.uid)
        for uid in uids:
            entry = self._entries[uid]
            entry.holders.discard(pod.uid)
            if not entry.holders:
                entry.firm = None
                if not entry.consumers:  # the pod was placed before its claim was created
                    entry.guess = None
            self._settle(uid)

    def leaving(self, uid: str, is_leaving: bool) -> None:
        """This process begins or ends to take back what it wrote to a claim; meanwhile no pod may use the claim."""
        self._entries[uid].is_leaving = is_leaving
        self._settle(uid)
        self.devices.changes.note_all()


def ledger(handle: Handle) -> Ledger:
    """The ledger of the cluster."""
    found = handle.state.tracker(Ledger, handle.state)
    found.guests.nominated = handle.nominated
    return found
