"""Draws the tables of the picture from the taken parts: the workload of each GPU, sick GPUs, and the waiting units.

Tables for everybody:
- ``nodes``: by name ``(domains, owners, flags, taints, sick, islands, other pods, ids)``. ``owners`` has for each GPU
  the number of its workload, or `FREE`. ``sick`` has pairs: the index of a GPU in ``owners``, and the reason.
  ``islands`` has for each GPU the number of its island. ``ids`` has for each GPU its number on the node; it is empty
  if these numbers are the indices.
- ``counts``: by place of the queue ``(pods,)``; ``about``: ``levels``, whether this replica ``leads``, and ``now``.
- ``history``: a `PastSample` by its time.

Tables of a namespace:
- ``workloads``: by number ``(name, kind, members that it needs)``. A ResourceClaim is a workload on nodes where it has
  GPUs that no drawn pod uses.
- ``pods``: by name ``(node, workload, GPUs, started, ends)``; times are seconds since 1970, and 0 if they are unknown.
- ``units``: ``(workload, place, message, pods, GPUs, attempts, since, plugins that rejected it, kept)``. ``kept`` is
  ``(start, since, until, GPUs, nodes)`` or None: the room that is kept for the unit.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gangline.api.outlook import ExpectedStart
from gangline.dra.units import DRIVERS
from gangline.overview.claim_use import claim_names
from gangline.overview.domain_use import is_ready
from gangline.overview.gpu_counts import OnNodes, offered_gpus
from gangline.overview.gpu_use import device_ids, requested_gpus
from gangline.page.expecting import MOST_NODES
from gangline.page.history import MOST, PastSample
from gangline.page.tables import EVERYBODY, PictureTables, Row
from gangline.page.taking import TakenPart, TakenRow, TakenUnit, Workload
from gangline.state.pods import PodInfo

FREE = 0
CORDONED, NOT_READY = 1, 2
"""Flags of a node."""
CLAIM = "ResourceClaim"
"""The kind of a workload that is a claim."""
MOST_GPUS = 64
"""GPUs of one node that are drawn, at most."""
MOST_MESSAGE = 2000
"""Characters of a message that are shown, at most."""
TICK = 15
"""Seconds after which the time is told, even if nothing has changed."""
_DEVICE = re.compile(r"gpu-(\d{1,3})(?:-mig-.*)?")


@dataclass(frozen=True, slots=True)
class _Reported:
    """The report of an agent on the GPUs of a node."""

    ids: tuple[int, ...] = ()
    sick: tuple[tuple[int, str], ...] = ()
    islands: tuple[int, ...] = ()


_UNKNOWN = _Reported()
_Claimed = Mapping[int, Sequence[tuple[str, str]]]
"""The claims, as namespace and name, that have a GPU of a node; instances of one GPU may be in several claims."""
_NO_CLAIMS: _Claimed = MappingProxyType({})


@dataclass(slots=True, eq=False)
class _Drawn:
    """The rows that a node has in the tables."""

    name: str
    pods: dict[tuple[str, str], None]
    workloads: list[Workload]


class Drawer:
    """Keeps the tables up to date with the taken parts."""

    def __init__(self) -> None:
        self.tables = PictureTables()
        self._taken: dict[int, TakenRow] = {}
        self._drawn: dict[int, _Drawn] = {}
        self._row_of: dict[str, int] = {}
        self._row_of_pod: dict[tuple[str, str], int] = {}
        self._reports: dict[str, Any] = {}
        self._devices: dict[str, _Reported] = {}
        self._claimed: dict[str, dict[int, list[tuple[str, str]]]] = {}
        self._slices: dict[str, tuple[Any, OnNodes]] = {}
        """By the name of a ResourceSlice: the slice, and the GPUs that it offers."""
        self._offered: dict[str, tuple[int, ...]] = {}
        """By node: the GPUs that all slices offer."""
        self._numbers: dict[Workload, int] = {}
        self._users: Counter[Workload] = Counter()
        self._last = 0
        self._units: dict[str, TakenUnit] = {}
        self._samples: deque[str] = deque()
        self._now = 0

    def draw(self, taken: TakenPart) -> None:
        """Bring the tables up to date."""
        stale = set(self._read_reports(taken.reports)) if taken.reports is not None else set()
        if taken.claims is not None:
            stale |= self._read_claims(taken.claims)
        if taken.slices is not None:
            stale |= self._read_slices(taken.slices)
        for row in taken.rows:
            self._draw_row(row)
            stale.discard(row.name)
        for name in stale:
            if (number := self._row_of.get(name)) is not None:
                self._draw_row(self._taken[number])
        if taken.units is not None:
            self._draw_units(taken.units)
        for place, pods in taken.counts.items():
            self.tables.put(EVERYBODY, "counts", place, (pods,))
        self.tables.put(EVERYBODY, "about", "levels", taken.levels)
        self.tables.put(EVERYBODY, "about", "leads", (taken.leads,))
        self._draw_history(taken.history)
        if self.tables.has_changes or taken.now - self._now >= TICK:
            self._now = taken.now
            self.tables.put(EVERYBODY, "about", "now", (taken.now,))

    def _draw_history(self, samples: Sequence[PastSample]) -> None:
        for sample in samples:
            key = str(sample.at)
            if key not in self._samples:
                self._samples.append(key)
            self.tables.put(EVERYBODY, "history", key, tuple(sample))
        while len(self._samples) > MOST:
            self.tables.drop(EVERYBODY, "history", self._samples.popleft())

    def uid_of(self, namespace: str, name: str) -> str | None:
        """The UID of a pod that is drawn."""
        taken = self._taken.get(self._row_of_pod.get((namespace, name), -1))
        pods = (each.pod for each in taken.pods) if taken is not None else ()
        return next((pod.uid for pod in pods if (pod.namespace, pod.name) == (namespace, name)), None)

    def has_unit(self, namespace: str, uid: str) -> bool:
        """Whether a unit of the namespace is drawn."""
        unit = self._units.get(uid)
        return unit is not None and unit.workload.namespace == namespace

    # Nodes

    def _draw_row(self, row: TakenRow) -> None:
        before = self._drawn.pop(row.row, None)
        if before is not None and before.name != row.name and self._row_of.get(before.name) == row.row:
            del self._row_of[before.name]
            self.tables.drop(EVERYBODY, "nodes", before.name)
        self._taken.pop(row.row, None)
        drawn = _Drawn(row.name, {}, [])
        if row.name:
            self._taken[row.row] = row
            self._drawn[row.row] = drawn
            self._row_of[row.name] = row.row
            self._draw_node(row, drawn)
        for key in before.pods if before is not None else ():
            if key not in drawn.pods and self._row_of_pod.get(key) == row.row:
                del self._row_of_pod[key]
                self.tables.drop(key[0], "pods", key[1])
        self._let_go(before.workloads if before is not None else ())

    def _draw_node(self, row: TakenRow, drawn: _Drawn) -> None:
        devices = self._devices.get(row.name, _UNKNOWN)
        claimed = self._claimed.get(row.name, _NO_CLAIMS)
        ids = range(min(row.gpus, MOST_GPUS)) if row.gpus else self._offered.get(row.name, ())
        owners: dict[int, int] = dict.fromkeys(devices.ids or ids, FREE)
        given = [_given(each.pod, claimed, owners) for each in row.pods]
        numbers = [self._number(each.workload) for each in row.pods]
        drawn.workloads.extend([each.workload for each in row.pods])
        for number, gpus in zip(numbers, given, strict=True):
            owners.update(dict.fromkeys(gpus, number))
        for gpu, claims in claimed.items():
            if owners.get(gpu) == FREE:
                workload = Workload(*claims[0], CLAIM)
                owners[gpu] = self._number(workload)
                drawn.workloads.append(workload)
        for (pod, _, started, ends), number, gpus in zip(row.pods, numbers, given, strict=True):
            lacking = requested_gpus(pod) - len(gpus)
            if lacking > 0:
                more = [gpu for gpu, owner in owners.items() if owner == FREE][:lacking]
                owners.update(dict.fromkeys(more, number))
                gpus = (*gpus, *more)
            key = pod.namespace, pod.name
            drawn.pods[key] = None
            self._row_of_pod[key] = row.row
            self.tables.put(pod.namespace, "pods", pod.name, (row.name, number, gpus, started, ends))
        sick, islands = devices.sick, devices.islands
        numbered = tuple(owners) if any(at != gpu for at, gpu in enumerate(owners)) else ()
        shown = (row.domains, tuple(owners.values()), _flags(row), _taints(row), sick, islands, row.others, numbered)
        self.tables.put(EVERYBODY, "nodes", row.name, shown)

    def _read_reports(self, reports: Sequence[Any]) -> Iterable[str]:
        """Read the reports of agents; returns the names of the nodes whose reports have changed."""
        fresh = {report.metadata.name: report for report in reports}
        for name in {*self._reports} - {*fresh}:
            self._devices.pop(name, None)
            yield name
        for name, report in fresh.items():
            if self._reports.get(name) is not report and (found := _devices(report)) != self._devices.get(name):
                self._devices[name] = found
                yield name
        self._reports = fresh

    def _read_claims(self, claims: Sequence[Any]) -> set[str]:
        """Read which ResourceClaims have which GPU; returns the names of the nodes where that has changed."""
        before, self._claimed = self._claimed, {}
        for claim in claims:
            found = claim.metadata.namespace, claim.metadata.name
            for result in claim.status.results:
                number = _DEVICE.fullmatch(result.device)
                if number and result.driver.startswith(DRIVERS) and not result.admin_access:
                    self._claimed.setdefault(result.pool, {}).setdefault(int(number[1]), []).append(found)
        names = before.keys() | self._claimed.keys()
        return {name for name in names if before.get(name) != self._claimed.get(name)}

    def _read_slices(self, slices: Sequence[Any]) -> set[str]:
        """Read which GPUs ResourceSlices offer; returns the names of the nodes where that has changed."""
        known, self._slices = self._slices, {}
        found: dict[str, set[int]] = {}
        for each in slices:
            name = each.metadata.name
            old = known.get(name)
            _, offered = self._slices[name] = old if old is not None and old[0] is each else (each, offered_gpus(each))
            for node, gpu in offered:
                if isinstance(gpu, int):
                    found.setdefault(node, set()).add(gpu)
        before, self._offered = self._offered, {node: tuple(sorted(ids)[:MOST_GPUS]) for node, ids in found.items()}
        names = before.keys() | self._offered.keys()
        return {name for name in names if before.get(name) != self._offered.get(name)}

    # Workloads

    def _number(self, workload: Workload) -> int:
        """The number of a workload; counts one more use of the number."""
        self._users[workload] += 1
        number = self._numbers.get(workload)
        if number is None:
            self._last += 1
            number = self._numbers[workload] = self._last
            row: Row = (workload.name, workload.kind, workload.min_member)
            self.tables.put(workload.namespace, "workloads", str(number), row)
        return number

    def _let_go(self, workloads: Iterable[Workload]) -> None:
        for workload in workloads:
            self._users[workload] -= 1
            if self._users[workload] <= 0:
                del self._users[workload]
                self.tables.drop(workload.namespace, "workloads", str(self._numbers.pop(workload)))

    # The queue

    def _draw_units(self, units: Sequence[TakenUnit]) -> None:
        before, self._units = self._units, {unit.uid: unit for unit in units}
        for uid, unit in self._units.items():
            old = before.get(uid)
            if old == unit:
                continue
            number = self._number(unit.workload)
            shown = (number, unit.place, unit.message[:MOST_MESSAGE], unit.pods, unit.gpus, unit.attempts, unit.since)
            self.tables.put(unit.workload.namespace, "units", uid, (*shown, unit.rejected_by, _kept(unit.expected)))
            if old is not None:
                self._drop_unit(old, unit.workload.namespace != old.workload.namespace)
        for uid, old in before.items():
            if uid not in self._units:
                self._drop_unit(old, True)

    def _drop_unit(self, unit: TakenUnit, is_gone: bool) -> None:
        if is_gone:
            self.tables.drop(unit.workload.namespace, "units", unit.uid)
        self._let_go((unit.workload,))


def _given(pod: PodInfo, claimed: _Claimed, owners: Mapping[int, int]) -> tuple[int, ...]:
    """The indices of the GPUs of a pod in `owners`; empty if they are not known."""
    ids: Iterable[int] = device_ids(pod.annotations)
    if claimed:
        mine = {(pod.namespace, name) for name in claim_names(pod)}
        ids = dict.fromkeys((*ids, *(gpu for gpu, claims in claimed.items() if not mine.isdisjoint(claims))))
    return tuple([gpu for gpu in ids if gpu in owners])


def _devices(report: Any) -> _Reported:
    by_id = {device.id: device for device in report.status.devices[:MOST_GPUS]}
    found = [by_id[id] for id in sorted(by_id)]
    names = {name: number for number, name in enumerate(dict.fromkeys(each.island for each in found))}
    is_linked = any(names) and len(found) > 1
    return _Reported(
        tuple(each.id for each in found),
        tuple((at, each.reason or "unhealthy") for at, each in enumerate(found) if each.health == "Unhealthy"),
        tuple(names[each.island] for each in found) if is_linked else (),
    )


def _kept(expected: ExpectedStart | None) -> Row | None:
    if expected is None:
        return None
    times = (round(expected.at), round(expected.since), round(expected.until))
    return (*times, expected.gpus, expected.nodes[:MOST_NODES])


def _flags(row: TakenRow) -> int:
    return CORDONED * row.is_cordoned + NOT_READY * (row.node is not None and not is_ready(row.node))


def _taints(row: TakenRow) -> tuple[str, ...]:
    if not row.taints:
        return ()
    return tuple(f"{taint.key}={taint.value}:{taint.effect}".replace("=:", ":") for taint in row.taints)
