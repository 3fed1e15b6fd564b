"""The contents of all leases, kept up to date with the device table. Devices that are locked for pods not known here
count as taken.

Rules:
- A pod that is placed here, bound or assumed, needs no mark: the table counts the pod itself.
- A mark is a stand-in pod in the device table. A pod's own leases never keep it off its devices: its marks are lifted
  while it is being scheduled.
- The tracker also hears of trial removals, so a removal only adds the pod to the suspects.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from weakref import WeakKeyDictionary

from gangline import PodInfo, State, custom_resources, model, resources
from gangline_plugins.gpu.devices import device_table
from gangline_plugins.gpu.leases.holds import HoldPart, holders_of, is_older, node_of, uid_of

Key = tuple[str, str]
"""Namespace and name of a lease."""
_MOST_HEARD = 1000
"""At most this many schedulers are remembered."""


def lease_book(state: State) -> LeaseBook:
    """The book of a cluster; each call returns the same object."""
    device_table(state)  # made first, so that it hears of every placement before the book does
    return state.tracker(LeaseBook, state)


class Attempts:
    """The attempts of one process: a reload of the configuration may make another book, and changes nothing here."""

    def __init__(self) -> None:
        self.scheduler = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)
        self.owed: dict[str, Sequence[HoldPart]] = {}
        """The holds that each attempt still has to release, by the name of the attempt."""
        self._heard: dict[str, str] = {}
        """The schedulers that leases have named, with the term of each."""
        self._term = ""
        self._formers: frozenset[str] = frozenset()

    def next_one(self) -> str:
        """A name that no other attempt has."""
        return f"{self.scheduler}.{next(self._numbers)}"

    def hear(self, scheduler: str, term: str) -> None:
        """A lease names a scheduler, and the term in which it led."""
        if len(self._heard) < _MOST_HEARD:
            self._heard.setdefault(scheduler, term)

    def formers_of(self, term: str) -> frozenset[str]:
        """The schedulers that led before this term, as far as leases had named them when the term began. The term is
        that of this process, and is first asked about when it begins.

        The number of a term is no proof: when somebody deletes the Lease of the election, numbers begin anew, and the
        next leader has a smaller number than this process, which leads on until it hears of the other.
        """
        if self._term != term:
            self._term = term
            self._formers = frozenset(name for name, led in self._heard.items() if is_older(led, term))
        return self._formers


_ATTEMPTS: WeakKeyDictionary[State, Attempts] = WeakKeyDictionary()


class LeaseBook:
    """Leases by pod, and the marks of pods that are not known here."""

    def __init__(self, state: State) -> None:
        self._attempts = _ATTEMPTS.setdefault(state, Attempts())
        self.scheduler = self._attempts.scheduler
        """An identifier of this scheduler process that no other process has."""
        self.reapers = 0
        """How many reapers are at work. On a standby there is none; each begins with a look at all leases."""
        self.suspects: set[str] = set()
        """UIDs of pods that may have left their devices, for the reapers at work."""
        self.in_hand: set[Key] = set()
        """The leases that a reaper is about to free; each profile has one."""
        self.wakers: list[Callable[[], None]] = []
        """Called when there is a new suspect, and when there is a first mark."""
        self.bereaved: list[Callable[[str], None]] = []
        """Called with the UID of a placed pod that has lost a lease."""
        self._state = state
        self._table = device_table(state)
        self._store = state.store(resources.LEASES)
        self._row_of: dict[str, int] = {}
        self._ids: dict[str, dict[Key, tuple[str, tuple[int, ...]]]] = {}
        """The node and the devices that each lease locks for a pod, by the UID of the pod and the lease."""
        self._held: dict[str, dict[tuple[str, Key], tuple[int, ...]]] = {}
        """The locked devices of each node, by the UID of the pod and the lease."""
        self._uids: dict[Key, tuple[str, ...]] = {}
        self._unreadable: set[Key] = set()
        """Leases whose lists of holders cannot be read: they lock devices for the one pod that they name elsewhere."""
        self._marks: dict[str, list[PodInfo]] = {}
        self._lifted: set[str] = set()
        """Pods whose marks return if the pods leave the node where they are assumed."""
        self._disputed: dict[str, Key] = {}
        """Pods whose leases were in the way of other members of their group: the last such lease of each."""
        self._visitor = ""
        """The pod or group that is being scheduled, by UID or key."""
        self._visitors: set[str] = set()
        """The UIDs of its pods."""
        self._is_group = False
        self._table.beliefs.leases = self
        state.follow_nodes(self)
        self._store.subscribe(self)
        state.at_end(self._end)

    def _end(self) -> None:
        """The plugin has ended and no one follows the leases: no device counts as taken because of them."""
        self._table.beliefs.leases = None
        for uid in list(self._marks):
            self._unmark(uid)

    def next_attempt(self) -> str:
        """A name for an attempt that no other attempt has, in any scheduler."""
        return self._attempts.next_one()

    @property
    def owed(self) -> dict[str, Sequence[HoldPart]]:
        """See `Attempts.owed`."""
        return self._attempts.owed

    def formers(self, term: str) -> frozenset[str]:
        """See `Attempts.formers_of`."""
        return self._attempts.formers_of(term)

    @property
    def has_marks(self) -> bool:
        """Whether any device counts as taken only because of a lease."""
        return bool(self._marks)

    def unplaced(self) -> frozenset[str]:
        """UIDs of the pods that have leases and no node here."""
        return frozenset(self._ids.keys() - self._state.pods.keys())

    def leases_of(self, uid: str) -> list[model.Lease]:
        """The leases that a pod holds, as they were last seen."""
        found = (self._store.get(name, namespace) for namespace, name in self._ids.get(uid, ()))
        return [lease for lease in found if lease is not None]

    def held(self, uid: str, node: str) -> frozenset[int]:
        """The devices of a node that are locked for a pod."""
        return frozenset(id for on, ids in self._ids.get(uid, {}).values() if on == node for id in ids)

    def listed(self, uid: str, node: str) -> frozenset[int]:
        """The devices of a node that are locked for a pod by leases whose lists of holders can be read."""
        if not self._unreadable:
            return self.held(uid, node)
        known = self._ids.get(uid, {}).items()
        return frozenset(id for key, (on, ids) in known if on == node and key not in self._unreadable for id in ids)

    def holders(self, node: str) -> Mapping[int, Collection[str]]:
        """For each locked device of a node the UIDs of the pods that hold it."""
        found: dict[int, set[str]] = {}
        for (uid, _), ids in self._held.get(node, {}).items():
            for id in ids:
                found.setdefault(id, set()).add(uid)
        return found

    def visit(self, uid: str, group: str = "", members: Callable[[], Iterable[str]] = tuple) -> None:
        """A pod is being scheduled, alone or with the other members of its group: lift their marks, so that leases of
        their own do not keep them off their devices. `members` returns their UIDs.
        """
        visitor = group or uid
        if visitor != self._visitor:
            before, self._visitor, self._visitors, self._is_group = self._visitors, visitor, set(), bool(group)
            for last in before:
                if last in self._lifted and last != uid and last not in self._state.pods:
                    self._lifted.discard(last)
                    self._mark(last)
            for member in members():
                self._visitors.add(member)
                if member in self._disputed:
                    self._remark(member)
                else:
                    self._lift(member)
        self._visitors.add(uid)
        if not (group and uid in self._disputed):
            self._lift(uid)

    def leaves(self) -> bool:
        """A pod is being scheduled: whether there are no marks, lifted ones included. Then a visit has nothing to do,
        and marks that come are lifted at the next visit.
        """
        if self._marks or self._lifted:
            return False
        if self._visitor:
            self._visitor, self._visitors, self._is_group = "", set(), False
        return True

    def dispute(self, uid: str, lease: model.Lease) -> None:
        """Another scheduler may be binding a pod to the devices that its leases lock, and another member of its group
        has met one of these leases: the whole group keeps off the devices until that lease changes.
        """
        self._disputed[uid] = lease.metadata.namespace, lease.metadata.name
        self._visitor = ""  # the next visit marks the devices

    def learn(self, lease: model.Lease) -> None:
        """Take in a lease that was read from the API server before the watch delivered it."""
        self.on_upsert(lease)

    def settle(self) -> None:
        """Forget learned leases that do not exist; to be called now and then."""
        for namespace, name in list(self._uids):
            if self._store.get(name, namespace) is None:
                self._take((namespace, name), {})

    # Leases

    def on_upsert(self, lease: model.Lease) -> None:
        """A lease was added or has changed."""
        node = node_of(lease)
        holds: dict[str, tuple[str, tuple[int, ...]]] = {}
        holders, key = holders_of(lease), (lease.metadata.namespace, lease.metadata.name)
        (self._unreadable.discard if all(hold.by for hold in holders.values()) else self._unreadable.add)(key)
        for holder, hold in holders.items():
            uid = uid_of(holder)
            self._attempts.hear(hold.scheduler, hold.term)
            _, ids = holds.get(uid, (node, ()))
            holds[uid] = (node, tuple(sorted({*ids, *hold.ids})))
        self._take(key, holds)

    def on_remove(self, lease: model.Lease) -> None:
        """A lease was deleted."""
        self._unreadable.discard((lease.metadata.namespace, lease.metadata.name))
        self._take((lease.metadata.namespace, lease.metadata.name), {})

    def _take(self, key: Key, holds: dict[str, tuple[str, tuple[int, ...]]]) -> None:
        left: set[str] = set()
        for uid in self._uids.pop(key, ()):
            if uid not in holds:
                left.add(self._ids.get(uid, {}).get(key, ("", ()))[0])
                self._let_go(uid, key)
                self._remark(uid)
                self._table.judge_again(uid)
                if uid in self._state.pods:
                    for tell in self.bereaved:
                        tell(uid)
        if holds:
            self._uids[key] = tuple(holds)
        for uid, hold in holds.items():
            known = self._ids.setdefault(uid, {})
            if known.get(key) != hold or uid in self._lifted:
                self._let_go(uid, key)
                known[key] = hold
                self._held.setdefault(hold[0], {})[uid, key] = hold[1]
                self._remark(uid)
                self._table.judge_again(uid)
        for doubted in [uid for node in left for uid in self._table.beliefs.doubted(node)]:
            self._table.judge_again(doubted)

    def _let_go(self, uid: str, key: Key) -> None:
        before = self._ids[uid].pop(key, None)
        if self._disputed.get(uid) == key:
            del self._disputed[uid]
        if before is not None:
            on = self._held[before[0]]
            on.pop((uid, key), None)
            if not on:
                del self._held[before[0]]

    # Nodes

    def node_upserted(self, node: model.Node, row: int) -> None:
        """A node was added or has changed."""
        name = node.metadata.name
        if self._row_of.get(name) != row:
            self._row_of[name] = row
            for uid in self._on(name):
                self._remark(uid)

    def node_removed(self, name: str, row: int) -> None:
        """A node was removed, and the table has forgotten its devices."""
        self._row_of.pop(name, None)
        for uid in self._on(name):
            self._remark(uid)

    def _on(self, node: str) -> list[str]:
        return list(dict.fromkeys(uid for uid, _ in self._held.get(node, ())))

    # Where pods are

    def add(self, pod: PodInfo, row: int) -> None:
        """The pod is on row, so the table counts the pod and its marks are lifted, unless others keep off them."""
        if pod.uid in self._marks and pod.uid not in self._disputed:
            self._lift(pod.uid)
        if custom_resources.ALLOCATED in pod.annotations:
            self._lifted.discard(pod.uid)

    def add_all(self, pods: Sequence[PodInfo], rows: Sequence[int]) -> bool:
        """These pods are on these rows now; False, with nothing done, if some pod has marks."""
        return not self._marks and not self._lifted

    def remove(self, pod: PodInfo, row: int) -> None:
        """The pod is no longer on row."""
        if pod.uid not in self._ids:
            return
        if self.reapers:
            self.suspects.add(pod.uid)
            self._wake()
        is_tried = self._is_group and pod.uid in self._visitors  # in another place
        if (pod.uid in self._lifted and not is_tried) or (pod.uid in self._disputed and pod.uid not in self._marks):
            self._lifted.discard(pod.uid)
            self._mark(pod.uid)

    # Marks

    def _remark(self, uid: str) -> None:
        had_marks = uid in self._marks or uid in self._lifted
        self._unmark(uid)
        self._lifted.discard(uid)
        if not self._ids.get(uid):
            self._ids.pop(uid, None)
        elif uid not in self._state.pods:
            self._mark(uid)
        elif had_marks:  # a lease has changed while the pod is assumed
            self._lifted.add(uid)

    def _lift(self, uid: str) -> None:
        if uid in self._marks:
            self._unmark(uid)
            self._lifted.add(uid)

    def _mark(self, uid: str) -> None:
        if not self._marks:
            self._wake()
        for (namespace, name), (node, ids) in self._ids.get(uid, {}).items():
            row = self._row_of.get(node)
            if row is None:
                continue
            metadata = model.ObjectMeta(name=name, namespace=namespace, uid=f"lease-{self.next_attempt()}")
            stand_in = self._state.record(model.Pod(metadata=metadata, spec=model.PodSpec(node_name=node)), row)
            self._table.assign(stand_in, ids)
            self._marks.setdefault(uid, []).append(stand_in)

    def _wake(self) -> None:
        for wake in self.wakers:
            wake()

    def _unmark(self, uid: str) -> None:
        for stand_in in self._marks.pop(uid, ()):
            self._table.remove(stand_in, stand_in.row)
