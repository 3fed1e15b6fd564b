"""The ledger's entry for one claim, and the pods that count as ended for claims."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gangline import PodInfo, State, model
from gangline.dra.usage import DeviceId
from gangline_plugins.preemption.evictions import Evictions

Allocation = model.ResourceClaimAllocation


@dataclass(slots=True, eq=False)
class ClaimEntry:
    """Everything that the ledger knows of one claim."""

    claim: model.ResourceClaim | None = None
    """The newest state that was seen."""
    reserved: tuple[str, ...] = ()
    """The UIDs of the pods for which the claim is reserved."""
    firm: Allocation | None = None
    holders: set[str] = field(default_factory=set)
    """The pods that will write the firm choice."""
    guess: Allocation | None = None
    consumers: set[str] = field(default_factory=set)
    """The pods with the claim that are placed."""
    guessing: set[str] = field(default_factory=set)
    """The consumers that the scheduler has placed itself: they share the guess."""
    taken: Allocation | None = None
    """The allocation that counts as taken."""
    turn: int = 0
    """The number of this allocation among all that were ever taken."""
    is_leaving: bool = False
    """Whether this process is taking back what it wrote."""
    is_free: bool = False
    """Whether the settled devices count as given back on trial, because all users of the claim count as ended."""
    aside: Allocation | None = None
    """The guess that there was before the claim counted as free."""

    @property
    def allocation(self) -> Allocation | None:
        """The devices that the claim has now; None if it has none."""
        if self.is_free:
            return self.guess
        claim = self.claim
        return (claim.status.allocation if claim is not None else None) or self.firm or self.guess

    @property
    def settled(self) -> Allocation | None:
        """The allocation in the status of the claim, else the firm choice; None if there is neither."""
        return (self.claim.status.allocation if self.claim is not None else None) or self.firm

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of the claim, so that the entry can be dropped."""
        has_devices = self.settled is not None or self.guess is not None
        return self.claim is None and not has_devices and not self.consumers and not self.is_leaving

    def is_guess_of(self, uid: str) -> bool:
        """Whether there is nothing but a guess, and the pod is the only user of the claim."""
        return self.guess is not None and self.settled is None and self.consumers == {uid}

    def see(self, claim: model.ResourceClaim | None) -> None:
        """Take in the claim as the API server has it; None if it was deleted."""
        self.claim = claim
        self.reserved = () if claim is None else tuple([each.uid for each in claim.status.reserved_for])

    def end(self) -> None:
        """The claim was deleted."""
        self.see(None)
        self.firm = self.guess = None
        self.holders.clear()

    def take_over(self, other: ClaimEntry) -> None:
        """Take the choices and the pods from the entry of the same claim under another UID."""
        self.firm, self.guess, other.firm, other.guess = other.firm, other.guess, None, None
        for mine, theirs in (
            (self.holders, other.holders),
            (self.consumers, other.consumers),
            (self.guessing, other.guessing),
        ):
            mine |= theirs
            theirs.clear()

    def leave(self, uid: str) -> None:
        """The pod with this UID is no longer placed."""
        self.consumers.discard(uid)
        self.guessing.discard(uid)

    def set_free(self, is_free: bool) -> None:
        """From now on the settled devices count as given back, or no longer do so."""
        if is_free != self.is_free:
            self.is_free = is_free
            self.guess, self.aside = (None, self.guess) if is_free else (self.aside, None)


def devices_of(*allocations: Allocation | None) -> Iterator[DeviceId]:
    """The devices of these allocations."""
    for allocation in allocations:
        for each in allocation.devices.results if allocation is not None else ():
            yield each.driver, each.pool, each.device


class Endings:
    """Which pods count as ended: those that a transaction has lifted, those that are gone, and with foresight those
    that are ending.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._evictions = state.shared(Evictions, state)
        self._claims: defaultdict[str, set[str]] = defaultdict(set)
        """The UIDs of the claims that are reserved for a pod, by the UID of the pod."""
        self._terminating: set[str] = set()
        """Placed pods that are being deleted."""
        self._gone: set[str] = set()
        """Pods that had a node and are gone, though claims are still reserved for them."""
        self.lifted: dict[str, tuple[int, tuple[str, ...]]] = {}
        """For each pod that a transaction has taken off its row, by UID: the row, and the pod's claims there."""
        self._foreseen: frozenset[str] | None = None
        """The UIDs of the pods that are ending, during a look ahead (`foresee`); None otherwise."""

    # What happens to pods

    def placed(self, pod: PodInfo) -> None:
        """A pod has a row."""
        self._gone.discard(pod.uid)
        if pod.terminating:
            self._terminating.add(pod.uid)

    def removed(self, pod: PodInfo) -> None:
        """A pod that no transaction has lifted is taken off its row."""
        self.lifted.pop(pod.uid, None)
        self._terminating.discard(pod.uid)
        if pod.node_name and pod.uid in self._claims:
            self._gone.add(pod.uid)

    def pending(self, uid: str) -> None:
        """A pod that had a row waits again."""
        self._gone.discard(uid)

    def clear(self) -> None:
        """Forget all pods that are placed."""
        self._terminating.clear()
        self.lifted.clear()

    def reserved(self, claim: str, before: Iterable[str], now: Iterable[str]) -> None:
        """A claim was reserved for some pods and is now for others."""
        for uid in before:
            self._claims[uid].discard(claim)
        for uid in now:
            self._claims[uid].add(claim)
        for uid in before:
            if not self._claims[uid]:
                del self._claims[uid]
                self._gone.discard(uid)

    # Questions

    def claims_of(self, uid: str) -> frozenset[str]:
        """The UIDs of the claims that are reserved for a pod."""
        return frozenset(self._claims.get(uid, ()))

    @property
    def are_counted(self) -> bool:
        """Whether any pod counts as ended."""
        return self._foreseen is not None or bool(self.lifted)

    def is_free(self, entry: ClaimEntry) -> bool:
        """Whether all users of a claim count as ended: then others will take its devices from it, or delete it.

        Pods that are placed on trial are no users; they may get other devices for the claim.
        """
        if (self._foreseen is None and not self.lifted) or entry.settled is None:
            return False
        users = [*entry.reserved, *entry.holders]
        if entry.consumers:
            pods = self._state.pods
            users += [uid for uid in entry.consumers if uid in pods]
        if self._foreseen is None and self.lifted.keys().isdisjoint(users):
            return False
        return bool(users) and all(self._is_over(uid) for uid in users)

    def _is_over(self, uid: str) -> bool:
        return (
            uid in self.lifted
            or (self._foreseen is not None and uid in self._foreseen)
            or (uid in self._gone and uid not in self._state.pods)
        )

    def foresee(self, begins: bool) -> list[str]:
        """Count pods that are ending as ended from now on, or no more; returns all that are gone or ending."""
        self._foreseen = self._evictions.under_way() | self._terminating if begins else None
        return [*(self._foreseen or ()), *self._gone]
