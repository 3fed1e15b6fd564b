"""GPUs that have two masters: the agent of their node reports them, and ResourceSlices offer them too.

What one side gives out, the other one does not give out again: devices of pods with GpuClaims (or plain requests) are
closed to ResourceClaims, and GPUs in ResourceClaims are in use on their node. What the report and the slice have in
common is a UUID: that of a GPU, or of a MIG instance. A part of a GPU that the report does not name takes the whole
GPU, and a pod on any share of a GPU closes all devices of the GPU.

Each side is told of every change of the other, also of trial placements and their undoing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from gangline import PodInfo, State, model, resources

_OWN, _PARENT = "uuid", "parentUUID"
"""The attributes of a device that name a GPU, or a part of it and its GPU."""
DeviceId = tuple[str, str, str]
"""Driver, pool and name."""
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
L = TypeVar("L", bound=Hashable)


class ReportedUuids(NamedTuple):
    """The GPUs and MIG instances that the report of a node names, by UUID: the id of the GPU, or of the GPU that an
    instance is a part of.
    """

    gpus: Mapping[str, int]
    instances: Mapping[str, int]


class ReportSide(Protocol):
    """The side that gives out the GPUs of reports."""

    def known(self, row: int) -> ReportedUuids:
        """What the report of a row's node names."""
        ...

    def given(self, row: int) -> Iterable[str]:
        """The UUIDs of the GPUs and instances that pods have on a row."""
        ...

    def lend(self, key: str, row: int, id: int, instance: str) -> None:
        """Somebody else has a GPU, or (not "") one MIG instance of it."""
        ...

    def take_back(self, key: str, row: int) -> None:
        """Undo `lend`."""
        ...


class SliceSide(Protocol):
    """The side that gives out the devices of slices."""

    def is_used(self, device: DeviceId) -> bool:
        """Whether a claim has the device or a share of it."""
        ...

    def close(self, devices: Iterable[DeviceId]) -> None:
        """Claims do not get these devices."""
        ...

    def open(self, devices: Iterable[DeviceId]) -> None:
        """Undo `close`."""
        ...


class Names(NamedTuple):
    """The UUIDs that a device of a slice names; "" for none."""

    own: str
    parent: str


def names_of(device: model.Device, driver: str) -> Names:
    """The UUIDs that a device names, in attributes with or without the domain of its driver."""
    values = [device.attributes.get(name) or device.attributes.get(f"{driver}/{name}") for name in (_OWN, _PARENT)]
    own, parent = [value.string or "" if value is not None else "" for value in values]
    return Names(own, parent)


@dataclass(slots=True)
class _Row:
    """The twins of one node."""

    known: ReportedUuids
    lent: dict[DeviceId, tuple[int, str]] = field(default_factory=dict)
    """Devices that claims have, and which GPU or instance each of them is."""
    closed: frozenset[DeviceId] = frozenset()
    """Devices that claims do not get."""


class TwinGpus:
    """Tells each side what the other one has given out."""

    def __init__(self, state: State) -> None:
        self._gpus: list[ReportSide] = []
        self._offers: list[SliceSide] = []
        self._naming: dict[str, dict[DeviceId, Names]] = {}
        """By slice: the UUIDs that its devices name."""
        self._by_uuid: dict[str, dict[tuple[str, DeviceId], Names]] = {}
        """By UUID: the devices that name it, by slice and device."""
        self._uuids: dict[DeviceId, dict[str, Names]] = {}
        """By device and slice the UUIDs that the device names there: a driver may offer a device in a new slice before
        the old slice is deleted.
        """
        self._rows: dict[int, _Row] = {}
        """The nodes whose report names a GPU or an instance."""
        self._rows_of: dict[str, set[int]] = {}
        """By UUID: the rows of the nodes that report it; more than one only if a report is wrong or out of date."""
        self._state = state
        self._node_of: dict[str, str] = {}
        """By slice: the node that alone has its devices; "" if several nodes may use them."""
        self._is_busy = False
        state.store(resources.RESOURCE_SLICES).subscribe(self)

    # Who takes part

    def add_gpus(self, gpus: ReportSide, rows: Iterable[int], state: State) -> None:
        """The GPUs of reports are given out by `gpus`, until the present configuration ends; `rows` have nodes."""
        self._gpus.append(gpus)
        state.at_end(lambda: self._leave(self._gpus, gpus))
        for row in list(rows):
            self.hardware_changed(row)

    def add_offers(self, offers: SliceSide, state: State) -> None:
        """The devices of slices are given out by `offers`, until the present configuration ends."""
        self._offers.append(offers)
        state.at_end(lambda: self._leave(self._offers, offers))
        self._compare(list(self._rows))

    def _leave(self, side: list[T], one: T) -> None:
        if len(side) == 1:
            for row in self._rows:
                self._settle(row, {})
        side.remove(one)

    @property
    def are_some(self) -> bool:
        """Whether there are such GPUs now, so that what one side frees may serve the other."""
        return bool(self._gpus and self._offers) and not self._rows_of.keys().isdisjoint(self._by_uuid)

    def may_be_freed(self, pod: PodInfo, old: model.ResourceClaim | None, new: model.ResourceClaim | None) -> bool:
        """Whether a ResourceClaim has given back devices that may be such GPUs, for which the pod may wait."""
        had = old is None or old.status.allocation is not None
        return self.are_some and had and (new is None or new.status.allocation is None)

    def are_on(self, rows: Sequence[int]) -> list[bool]:
        """For each of these rows: whether GPUs of its node have two masters."""
        if not self.are_some:
            return [False] * len(rows)
        return [row in self._rows and bool(self._devices(row)) for row in rows]

    # What is reported and offered

    def hardware_changed(self, row: int) -> None:
        """The report of a row's node is new, says something new, or is gone."""
        known = self._gpus[0].known(row) if self._gpus else ReportedUuids({}, {})
        before = self._rows.get(row)
        if before is not None:
            self._settle(row, {})
            for uuid in (*before.known.gpus, *before.known.instances):
                _discard(self._rows_of, uuid, row)
            del self._rows[row]
        if known.gpus or known.instances:
            self._rows[row] = _Row(known)
            for uuid in (*known.gpus, *known.instances):
                self._rows_of.setdefault(uuid, set()).add(row)
            self._compare((row,))

    def on_upsert(self, each: model.ResourceSlice) -> None:
        """A slice was added or has changed."""
        driver, pool = each.spec.driver, each.spec.pool.name
        self._node_of[each.metadata.name] = each.spec.node_name or ""
        names = {(driver, pool, device.name): names_of(device, driver) for device in each.spec.devices}
        self._set(each.metadata.name, {device: uuids for device, uuids in names.items() if any(uuids)})

    def on_remove(self, each: model.ResourceSlice) -> None:
        """A slice was deleted."""
        self._set(each.metadata.name, {})
        self._node_of.pop(each.metadata.name, None)

    def _set(self, name: str, naming: dict[DeviceId, Names]) -> None:
        before = self._naming.pop(name, {})
        if naming:
            self._naming[name] = naming
        if before == naming:
            return
        touched = {uuid for names in (*before.values(), *naming.values()) for uuid in names if uuid}
        for device, names in before.items():
            _pop(self._uuids, device, name)
            for uuid in filter(None, dict.fromkeys(names)):
                _pop(self._by_uuid, uuid, (name, device))
        for device, names in naming.items():
            self._uuids.setdefault(device, {})[name] = names
            for uuid in filter(None, dict.fromkeys(names)):
                self._by_uuid.setdefault(uuid, {})[name, device] = names
        self._compare(self._reporting(touched))

    # What is given out

    def pods_changed(self, row: int) -> None:
        """Pods have got or given back GPUs on a row."""
        if self._by_uuid and row in self._rows:
            self._compare((row,))

    def claims_changed(self, devices: Iterable[DeviceId]) -> None:
        """Claims have got or given back these devices."""
        if self._rows_of and self._uuids:
            self._compare(self._reporting(self._named(devices)))

    def concern(self, devices: Iterable[DeviceId]) -> bool:
        """Whether a node reports one of these devices, so that `claims_changed` may make a difference."""
        return bool(self._rows_of and self._uuids and self._reporting(self._named(devices)))

    def _named(self, devices: Iterable[DeviceId]) -> Iterator[str]:
        """The UUIDs that slices give these devices."""
        for device in devices:
            for names in self._uuids.get(device, {}).values():
                yield from names

    def _reporting(self, uuids: Iterable[str]) -> set[int]:
        """The rows whose nodes report one of these UUIDs."""
        return set[int]().union(*[self._rows_of.get(uuid, ()) for uuid in uuids])

    def _devices(self, row: int) -> dict[DeviceId, Names]:
        """The devices of slices that name something of a row's node. Devices of another node are none of its own,
        whatever its report says.
        """
        known, mine = self._rows[row].known, ("", self._state.view().name_of(row))
        found = [self._by_uuid[uuid] for uuid in (*known.gpus, *known.instances) if uuid in self._by_uuid]
        named = [(name, device, names) for each in found for (name, device), names in each.items()]
        return {device: names for name, device, names in named if self._node_of.get(name, "") in mine}

    def _compare(self, rows: Collection[int]) -> None:
        if not self._is_busy:
            for row in rows:
                self._settle(row, self._devices(row))

    def _settle(self, row: int, devices: Mapping[DeviceId, Names]) -> None:
        """Let each side know what the other one has of these devices of a row."""
        here = self._rows[row]
        if not self._gpus or not self._offers or not (devices or here.lent or here.closed):
            return
        self._is_busy = True  # each side tells of what it does now, too
        try:
            self._lend(row, here, devices)
            given = set(self._gpus[0].given(row)) if devices else set()
            closed = frozenset(device for device, names in devices.items() if _is_closed(names, here.known, given))
            before, here.closed = here.closed, closed
            self._offers[0].open(before - closed)
            self._offers[0].close(closed - before)
        finally:
            self._is_busy = False

    def _lend(self, row: int, here: _Row, devices: Mapping[DeviceId, Names]) -> None:
        """What claims have of these devices is in use on the node, and nothing else."""
        places = {device: _place(names, here.known) for device, names in devices.items()}
        used = {device: place for device, place in places.items() if place and self._offers[0].is_used(device)}
        for device in [device for device, place in here.lent.items() if used.get(device) != place]:
            del here.lent[device]
            self._gpus[0].take_back(_key(device), row)
        for device, place in used.items():
            if device not in here.lent:
                here.lent[device] = place
                self._gpus[0].lend(_key(device), row, *place)


def _discard(sets: dict[str, set[int]], key: str, value: int) -> None:
    """Take a value from the set of a key; an empty set is deleted."""
    found = sets.get(key, set())
    found.discard(value)
    if not found:
        sets.pop(key, None)


def _pop(maps: dict[K, dict[L, Names]], key: K, inner: L) -> None:
    """Delete an entry of the map of a key; an empty map is deleted."""
    found = maps.get(key, {})
    found.pop(inner, None)
    if not found:
        maps.pop(key, None)


def _key(device: DeviceId) -> str:
    return f"device {'/'.join(device)}"


def _place(names: Names, known: ReportedUuids) -> tuple[int, str] | None:
    """The GPU that a device is or belongs to, and the MIG instance that it is, or ""; None if the node has neither."""
    if names.own in known.instances:
        return known.instances[names.own], names.own
    for uuid in names:
        if uuid in known.gpus:
            return known.gpus[uuid], ""
    return None


def _is_closed(names: Names, known: ReportedUuids, given: set[str]) -> bool:
    """Whether pods have the device, or something of its GPU that the device may overlap; `given` are UUIDs."""
    if names.own in given or names.parent in given:
        return True
    place = _place(names, known)
    if place is None or place[1]:
        return place is not None and any(known.gpus.get(uuid) == place[0] for uuid in given)
    return any(known.instances.get(uuid) == place[0] for uuid in given)
