"""The devices of one node and the pods on them; the device table has one `NodeDevices` per row.

Every device counts the pods that hold it. So an allocation that should not exist, for example one that overlaps
another, does no lasting harm: the device is free again when its last pod has left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import count

from gangline import PodInfo
from gangline_plugins.gpu.allocation import Allocation
from gangline_plugins.gpu.choosing import ChoiceTables
from gangline_plugins.gpu.hardware import Hardware, Instance
from gangline_plugins.gpu.links import MOST_DEVICES, ids_of
from gangline_plugins.gpu.wants import ANY_PROFILE, Want

_epochs = count()
WHOLE = 1000
"""One device, in thousandths."""
EVERY = (1 << MOST_DEVICES) - 1
"""Mask of all devices that a node may have."""
_STRATEGY = "nvidia.com/gpu.sharing-strategy"
_REPLICAS = "nvidia.com/gpu.replicas"
_PRODUCT = "nvidia.com/gpu.product"
_MIG_STRATEGY = "nvidia.com/mig.strategy"


class NodeDevices:
    """Counts which devices are held, and chooses among the free ones."""

    __slots__ = (
        "avoided",
        "busy",
        "hardware",
        "lent",
        "memory",
        "mig_single",
        "milli",
        "mps",
        "pods",
        "problem",
        "refs",
        "replicas",
        "state",
        "taken",
        "taken_whole",
        "unpublished",
        "whole",
    )

    def __init__(self) -> None:
        self.hardware: Hardware | None = None
        self.problem = ""
        """Why the node's report cannot be used; "" if it can be used or there is none."""
        self.replicas = 1
        self.mps = False
        self.mig_single = False
        self.avoided: dict[str, int] = {}
        """For each profile a mask of the devices that are chosen last for its pods, because they failed lately."""
        self.pods: dict[str, PodInfo] = {}
        """The pods on the node that use or want GPUs, by UID."""
        self.lent: dict[str, Allocation] = {}
        """What others than pods have: devices that ResourceClaims have; see `twin_gpus`."""
        self.clear()

    def clear(self) -> None:
        """Start over: only devices that are lent are held."""
        self.refs = [0] * MOST_DEVICES
        self.whole = [0] * MOST_DEVICES
        self.milli = [0] * MOST_DEVICES
        self.memory = [0] * MOST_DEVICES
        self.busy = 0
        """Mask of the devices that have any pod."""
        self.taken_whole = 0
        """Mask of the devices that no other pod may use."""
        self.unpublished = EVERY
        """Mask of the devices whose `milli` or `memory` changed since they were last written to the columns."""
        self.taken: Counter[str] = Counter()
        self.state = next(_epochs) << 64
        """A hash of all allocations on the node, independent of their order. It is a new one after each change of
        hardware.
        """
        for key, allocation in self.lent.items():
            self.hold(key, allocation, 1)

    def lend(self, key: str, allocation: Allocation) -> None:
        """Count these devices as taken, though no pod of the table has them, until `take_back`."""
        self.lent[key] = allocation
        self.hold(key, allocation, 1)

    def take_back(self, key: str) -> None:
        """Undo `lend`; nothing is lent if the node was replaced meanwhile."""
        allocation = self.lent.pop(key, None)
        if allocation is not None:
            self.hold(key, allocation, -1)

    def label(self, labels: Mapping[str, str]) -> None:
        """Read from the node's labels how its device plugin hands out devices."""
        replicas = labels.get(_REPLICAS, "")
        strategy = labels.get(_STRATEGY, "")
        shares = strategy in ("time-slicing", "mps") or labels.get(_PRODUCT, "").endswith("-SHARED")
        number = int(replicas) if replicas.isascii() and replicas.isdigit() else 1
        self.replicas = max(1, min(number, WHOLE)) if shares or number > 1 else 1
        self.mps = strategy == "mps"
        self.mig_single = labels.get(_MIG_STRATEGY) == "single"

    def hold(self, uid: str, allocation: Allocation, by: int) -> None:
        """Start to count an allocation (`by` is 1), or stop (`by` is -1)."""
        self.state ^= hash((uid, allocation))
        takes_whole = allocation.takes_whole
        if takes_whole and not allocation.milli and not allocation.memory_mib:
            mask = allocation.mask
            if mask.bit_count() == len(allocation.ids):
                if by > 0:
                    self._hold_whole(allocation.ids, mask)
                else:
                    self._release_whole(allocation.ids)
                return
        for place, id in enumerate(allocation.ids):
            if id >= MOST_DEVICES:
                continue
            self.refs[id] += by
            self.busy = _marked(self.busy, id, self.refs[id])
            if takes_whole:
                self.whole[id] += by
                self.taken_whole = _marked(self.taken_whole, id, self.whole[id])
            if allocation.milli or allocation.memory_mib:
                self.unpublished |= 1 << id
            if allocation.milli:
                self.milli[id] += by * allocation.milli[place]
            if allocation.memory_mib:
                self.memory[id] += by * allocation.memory_mib[place]
        if allocation.exclusivity == "MIG":
            for uuid in allocation.uuids:
                self.taken[uuid] += by
                if not self.taken[uuid]:
                    del self.taken[uuid]

    def _hold_whole(self, ids: tuple[int, ...], mask: int) -> None:
        """Start to count whole devices: as the loop in `hold`, in a quarter of the time."""
        refs, whole = self.refs, self.whole
        if mask & self.busy:
            for id in ids:
                refs[id] += 1
                whole[id] += 1
        else:  # nobody has any of them
            for id in ids:
                refs[id] = whole[id] = 1
        self.busy |= mask
        self.taken_whole |= mask

    def _release_whole(self, ids: tuple[int, ...]) -> None:
        """Stop to count whole devices."""
        refs, whole, free, not_whole = self.refs, self.whole, 0, 0
        for id in ids:
            refs[id] -= 1
            whole[id] -= 1
            if not refs[id]:
                free |= 1 << id
            if not whole[id]:
                not_whole |= 1 << id
        self.busy &= ~free
        self.taken_whole &= ~not_whole

    def take_free(self, uid: str, allocation: Allocation, mask: int, in_row: slice | None) -> None:
        """Start to count whole devices that nobody has: as `hold`, in a third of the time.

        `mask` has their ids, and `in_row` their places if they are next to each other.
        """
        ids = allocation.ids
        self.state ^= hash((uid, (allocation.row, ids, allocation.uuids, "Exclusive", (), ())))  # of (uid, allocation)
        if in_row is not None:
            self.refs[in_row] = self.whole[in_row] = [1] * len(ids)
        else:
            for id in ids:
                self.refs[id] = self.whole[id] = 1
        self.busy |= mask
        self.taken_whole |= mask

    def means(self, want: Want) -> Want:
        """The want that a plain request stands for on this node: whole devices, replicas of devices, or MIG
        instances.
        """
        if not want.implicit or want.exclusivity != "Exclusive":
            return want
        if self.replicas > 1:
            return Want(want.count, "Replicas", implicit=True)
        if self.mig_single:
            return Want(want.count, "MIG", profile=ANY_PROFILE, implicit=True)
        return want

    def choose(self, want: Want, row: int, tables: ChoiceTables, profile: str = "") -> Allocation | None:
        """The devices for a want; None if too few are free. Takes healthy devices that the profile does not avoid if
        these suffice, else also those that it avoids, else also those of unknown health, and never unhealthy ones.
        """
        hardware = self.hardware
        if hardware is None:
            return None
        want, tried = self.means(want), -1
        healthy = hardware.healthy
        for usable in (
            healthy & ~self.avoided.get(profile, 0),
            healthy,
            healthy | hardware.unknown,
        ):  # each set contains the sets before it
            if usable != tried:
                found, tried = self._choose_among(hardware, usable, want, row, tables), usable
                if found is not None:
                    return found
        return None

    def uuids(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The UUIDs of these devices; "" for a device that is not known."""
        known = self.hardware.uuids if self.hardware is not None else ("",) * MOST_DEVICES
        return tuple(known[id] if 0 <= id < MOST_DEVICES else "" for id in ids)

    def choose_anyway(self, want: Want, row: int) -> Allocation | None:
        """The least used devices, for a pod that runs here although too few devices are free."""
        if self.hardware is None:
            return None
        ids = sorted(ids_of(self.hardware.present), key=lambda id: (self.refs[id], id))[: want.count]
        return self.charged(Allocation(row, tuple(sorted(ids)), self._uuids(ids)), want) if ids else None

    def fits(self, allocation: Allocation) -> bool:
        """Whether exactly these devices are free, or have enough room."""
        hardware = self.hardware
        if hardware is None or allocation.mask & ~hardware.present:
            return False
        if allocation.exclusivity == "MIG":
            return not any(self.taken[uuid] for uuid in allocation.uuids)
        if allocation.exclusivity == "Exclusive":
            return not any(self.refs[id] for id in allocation.ids)
        return not any(
            self.whole[id]
            or self.milli[id] + (allocation.milli[place] if allocation.milli else 0) > WHOLE
            or (allocation.memory_mib and self.memory[id] + allocation.memory_mib[place] > hardware.memory[id])
            for place, id in enumerate(allocation.ids)
        )

    def charged(self, allocation: Allocation, want: Want | None) -> Allocation:
        """The same devices, with the amounts that the want takes of each device on this node."""
        if want is None or allocation.exclusivity in ("Explicit", "MIG"):
            return allocation
        want, ids = self.means(want), allocation.ids
        milli: tuple[int, ...] = ()
        memory: tuple[int, ...] = ()
        if want.exclusivity == "Shared":
            shares = [self.share(want, id) for id in ids]
            milli, memory = tuple(m for m, _ in shares), tuple(m for _, m in shares)
        elif want.exclusivity == "Replicas" and ids:
            each, more = divmod(want.count, len(ids))
            milli = tuple((each + (place < more)) * (WHOLE // self.replicas) for place in range(len(ids)))
        return Allocation(allocation.row, ids, allocation.uuids, want.exclusivity, milli, memory, allocation.is_firm)

    def share(self, want: Want, id: int) -> tuple[int, int]:
        """The thousandths and MiB that a shared want takes of a device. An amount that the want leaves out follows from
        the other.
        """
        total = self.hardware.memory[id] if self.hardware and id < MOST_DEVICES else 0
        milli = max(want.milli, want.memory_mib * WHOLE // total if total else 0)
        return milli, max(want.memory_mib, total * want.milli // WHOLE)

    def free_instances(self, usable: int, profile: str) -> list[Instance]:
        """The free MIG instances of a profile on usable devices, those on the fullest device first."""
        if self.hardware is None:
            return []
        free = [i for i in self.hardware.instances if self._offers(i, usable, profile) and not self.taken[i.uuid]]
        return sorted(free, key=lambda i: (-self.refs[i.device], i.device))

    def instance_counts(self) -> Iterator[tuple[str, int, int]]:
        """For each MIG profile: its name, the number of instances on healthy devices, and the number of free ones."""
        if self.hardware is None:
            return
        usable = self.hardware.healthy
        for profile in dict.fromkeys([*(i.profile for i in self.hardware.instances), ANY_PROFILE]):
            every = [i for i in self.hardware.instances if self._offers(i, usable, profile)]
            yield profile, len(every), sum(not self.taken[i.uuid] for i in every)

    def _offers(self, instance: Instance, usable: int, profile: str) -> bool:
        fits = profile in (ANY_PROFILE, instance.profile)
        return fits and bool(usable >> instance.device & 1) and not self.whole[instance.device]

    def _choose_among(
        self, hardware: Hardware, usable: int, want: Want, row: int, tables: ChoiceTables
    ) -> Allocation | None:
        if want.exclusivity == "MIG":
            found = self.free_instances(usable, want.profile)[: want.count]
            ids = tuple(sorted({instance.device for instance in found}))
            enough = len(found) == want.count
            return Allocation(row, ids, tuple(i.uuid for i in found), "MIG") if enough else None
        usable &= ~hardware.mig
        if want.exclusivity == "Exclusive":
            chosen = tables.of(hardware.links, want.count, want.rule).choose(usable & ~self.busy)
            if not chosen:
                return None
            ids, uuids = ids_of(chosen), hardware.uuids
            first, last = ids[0], ids[-1] + 1
            in_row = last - first == len(ids)
            return Allocation(row, ids, uuids[first:last] if in_row else tuple([uuids[id] for id in ids]))
        if want.exclusivity == "Replicas":
            return self._choose_replicas(usable, want, row)
        chosen = self._choose_shared(hardware, usable, want, tables)
        plain = Allocation(row, ids_of(chosen), self._uuids(ids_of(chosen)))
        return self.charged(plain, want) if chosen else None

    def _choose_shared(self, hardware: Hardware, usable: int, want: Want, tables: ChoiceTables) -> int:
        """The fullest devices that have room and whose links satisfy the rule, as a mask; 0 if there are none."""
        table, mask = tables.of(hardware.links, want.count, want.rule), 0
        roomy = [id for id in ids_of(usable) if self._has_room(id, *self.share(want, id))]
        for id in sorted(roomy, key=lambda id: (-self.refs[id] > -1, -self.milli[id], -self.memory[id], id)):
            mask |= 1 << id
            if chosen := table.choose(mask):
                return chosen
        return 0

    def _choose_replicas(self, usable: int, want: Want, row: int) -> Allocation | None:
        """Replicas of the devices that have most of them free, as a device plugin hands them out."""
        piece = WHOLE // self.replicas
        left = {id: (WHOLE - self.milli[id]) // piece for id in ids_of(usable) if not self.whole[id]}
        if sum(left.values()) < want.count:
            return None
        pieces: Counter[int] = Counter()
        for _ in range(want.count):
            id = max(left, key=lambda id: (left[id], -id))
            left[id] -= 1
            pieces[id] += 1
        ids = tuple(sorted(pieces))
        return Allocation(row, ids, self._uuids(ids), "Replicas", tuple(pieces[id] * piece for id in ids))

    def _has_room(self, id: int, milli: int, memory: int) -> bool:
        total = self.hardware.memory[id] if self.hardware else 0
        return not self.whole[id] and self.milli[id] + milli <= WHOLE and self.memory[id] + memory <= total

    def _uuids(self, ids: Iterable[int]) -> tuple[str, ...]:
        uuids = self.hardware.uuids if self.hardware else ("",) * MOST_DEVICES
        return tuple(uuids[id] if id < MOST_DEVICES else "" for id in sorted(ids))


def _marked(mask: int, id: int, count: int) -> int:
    """The mask with the device's bit set if the count is not 0, and cleared if it is."""
    return mask | 1 << id if count else mask & ~(1 << id)
