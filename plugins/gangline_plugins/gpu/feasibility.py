"""For each want the verdict on every node, and the best set of devices there, as columns.

Rules:
- The verdict on a node is the first member of `Why` that applies. Verdicts that no deleted pod could change come first.
- A verdict depends on the node, its devices, and the age of its last report. Only the age changes with time alone, so
  it is checked before each decision, and nodes whose reports have become too old are noted in a log of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import msgspec
import numpy as np
from numpy.typing import NDArray

from gangline import BoolColumn, Changes, CodeColumn, NodeView, Rows, custom_resources
from gangline_plugins.gpu.choosing import BestSets, Floats
from gangline_plugins.gpu.device_sets import Masks
from gangline_plugins.gpu.devices import DeviceTable
from gangline_plugins.gpu.links import MOST_DEVICES
from gangline_plugins.gpu.node_devices import WHOLE
from gangline_plugins.gpu.one_node import Clear, Moments, clear
from gangline_plugins.gpu.reasons import Why
from gangline_plugins.gpu.report_ages import ReportAges
from gangline_plugins.gpu.wants import ANY_PROFILE, Carried, FabricWant, Want

AWAITED = 60.0
"""Seconds for which a node whose report is gone is expected to report again: until then plain requests do not go there,
because nobody could say which devices they have.
"""
_LOOK = 0.1
"""Seconds between two checks of the ages of reports while no new report arrives."""
_ONE_BY_ONE = 6
"""At most so many nodes are judged by plain numbers: more take as long as arrays."""
_FEW = 256
"""Verdicts on fewer nodes are written node by node. On 5,000 nodes it takes a quarter of the time to write bytes."""
_BITS = np.uint32(1) << np.arange(MOST_DEVICES, dtype=np.uint32)


_Verdict = tuple[BoolColumn, Why]
"""The nodes that a verdict applies to."""


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """Which devices a profile lets pods use."""

    stale_after: float = 300.0
    """Seconds after its last report from which a node's devices are of unknown health."""
    allow_unknown: bool = False
    """Whether devices of unknown health may be allocated."""
    one_replica: bool = False
    """Whether time-sliced nodes reject pods that ask for more than one replica; nodes with MPS always do."""
    only_reported: bool = False
    """Whether plain requests, too, are served only by nodes that report their devices."""


class Fits(msgspec.Struct, eq=False):
    """The verdicts with one entry per node, and how good the devices are that the pod would get where the code is 0.

    Most callers need the verdicts alone, so the rest is computed when `worth` is called. Call it only while the columns
    are as they were when the verdicts were computed.
    """

    codes: CodeColumn
    worth: Callable[[], tuple[Floats, Floats]]
    """Computes the GB/s of the slowest link among those devices, and how whole the node's free devices remain without
    them, 0 to 1. For shares of devices the latter is 1 where the devices have pods already.
    """


class _Answer(msgspec.Struct, eq=False):
    """An answer, and everything that it follows from."""

    want: Want
    index: slice | Rows
    changes: int
    """The position in the log of changed nodes when the answer was computed."""
    aged: int
    """The position in the log of aged reports (`Feasibility.aged`) when the answer was computed."""
    fits: Fits


class Feasibility:
    """The verdicts of one profile. The scheduler keeps them for each identity of a pod."""

    def __init__(self, table: DeviceTable, limits: DeviceLimits) -> None:
        self._table = table
        self._limits = limits
        self._looked = (-1, 0.0)
        """The number of reports at the last check of ages, and the time of that check."""
        self._ages: ReportAges | None = None
        """What that check found; None before the first one."""
        self._oldest = 0.0
        """Reports from before this time, in seconds since the epoch, are too old."""
        self._latest = 0.0
        """Reports that were lost after this time are awaited."""
        self._is_stale: BoolColumn = np.zeros(0, dtype=np.bool_)
        self.aged = Changes()
        """Nodes whose report has become too old, has been renewed, or is no longer awaited."""
        self._is_awaited: BoolColumn = np.zeros(0, dtype=np.bool_)
        """Nodes whose report is gone and awaited."""
        self._last: _Answer | None = None
        """The last answer: the filter and the score ask the same question, one after the other."""

    def look(self, now: float) -> None:
        """Find the reports that are too old at `now`, in seconds since the epoch, and those that are awaited."""
        reports, looked = self._looked
        are_same = reports == self._table.reports.count and looked <= now
        if are_same and now < looked + _LOOK:
            return
        self._looked = (self._table.reports.count, now)
        self._oldest, self._latest = now - self._limits.stale_after, now - AWAITED
        columns = self._table.columns
        if are_same and self._ages is not None and self._ages.hold(columns, self._oldest, self._latest):
            return
        lost = columns.lost
        lost[lost == np.inf] = now
        before, self._is_stale = self._is_stale, columns.heartbeat < self._oldest
        awaited, self._is_awaited = self._is_awaited, lost > self._latest
        self._ages = ReportAges.of(columns, self._is_stale, self._is_awaited)
        if len(before) != len(self._is_stale):
            self.aged.note_all()
            return
        aged = ((before != self._is_stale) | (awaited != self._is_awaited)).nonzero()[0]
        if len(aged):
            self.aged.note_rows(aged)

    def of(self, want: Want, nodes: NodeView) -> Fits:
        """The verdicts on these nodes, which nobody may change; call `look` first."""
        last, changes, aged = self._last, nodes.position, self.aged.position
        if (
            last is None
            or last.index is not nodes.index
            or (last.changes, last.aged, last.want) != (changes, aged, want)
        ):
            fits = self.evaluate(want, nodes)
            last = self._last = _Answer(want, nodes.index, changes, aged, fits)
        return last.fits

    def evaluate(self, want: Want, nodes: NodeView) -> Fits:
        """The verdicts on these nodes, computed anew."""
        if len(nodes) <= _ONE_BY_ONE and (fits := self._one_by_one(want, nodes)) is not None:
            return fits
        c, index, limits = self._table.columns, nodes.index, self._limits
        unknown = ~c.known[index]
        has_unknown = np.count_nonzero(unknown) > 0
        usable = c.healthy[index] | c.unknown[index] if limits.allow_unknown else c.healthy[index]
        if want.exclusivity == "MIG":
            fits = self._instances(want, nodes)
        elif want.exclusivity == "Replicas":
            fits = self._replicas(want, nodes, usable)
        elif want.exclusivity == "Shared":
            fits = self._shared(want, nodes, usable)
        else:
            fits = self._exclusive(want, nodes, usable)
        if want.implicit and want.exclusivity == "Exclusive":
            self._reinterpret(want, nodes, fits)
        first: list[_Verdict] = []
        if has_unknown:  # as are the nodes with a report that cannot be used
            unusable = c.unusable[index]
            first += [(unknown & ~unusable, Why.UNREPORTED), (unusable, Why.UNUSABLE)]
        if want.selector:
            first.append((_unselected(want.selector, nodes), Why.SELECTOR))
        if not limits.allow_unknown:
            first.append((c.heartbeat[index] < self._oldest, Why.STALE))
        _overrule(fits.codes, first)
        self._judge_fabric(want.fabric, nodes, fits.codes)
        if want.implicit and not limits.only_reported and has_unknown:
            one = c.mps[index] | (limits.one_replica & (c.replicas[index] > 1))  # as node labels say
            is_too_many = one & (want.count > 1) & (want.exclusivity in ("Exclusive", "Replicas"))
            now_open = np.where(c.lost[index] > self._latest, Why.UNREPORTED, 0)
            now_open = np.where(self._is_lent_out(want, nodes), Why.BUSY, now_open)
            fits.codes[unknown] = np.where(is_too_many, Why.ONE_REPLICA, now_open).astype(np.uint8)[unknown]
        return fits

    def _one_by_one(self, want: Want, nodes: NodeView) -> Fits | None:
        """The verdicts on a few nodes, by plain numbers; None if arrays have to tell."""
        columns, moments, limits = self._table.columns, Moments(self._oldest, self._latest), self._limits
        found: list[Clear] = []
        rows = nodes.rows.tolist() if len(nodes) != 1 else (nodes.first,)
        for row in rows:
            one = clear(want, row, columns, moments, limits.allow_unknown)
            if one is None or (limits.only_reported and not one.is_known):
                return None
            found.append(one)
        masks, codes = [one.free for one in found], [0] * len(found)
        if any([one.is_known for one in found]):
            numbers = [columns.link_class.item(row) for row in rows]
            sets = self._table.tables.sets_of(numbers, masks, want.count, want.rule)
            for place, (one, chosen) in enumerate(zip(found, sets, strict=True)):
                if one.is_known and not chosen:
                    if want.rule.mode == "Required":  # the links may be what is missing
                        return None
                    codes[place] = one.lacks(want.count)
        return Fits(
            np.array(codes, dtype=np.uint8),
            lambda: self._look_up(want, nodes, np.array(masks, dtype=np.uint32)).worth(),
        )

    def _is_lent_out(self, want: Want, nodes: NodeView) -> BoolColumn:
        """Where pods with shares have so many devices that requests, which do not count shares, may be too many."""
        c, index = self._table.columns, nodes.index
        lent = np.bitwise_count(c.busy[index] & ~c.whole[index]).astype(np.int64)
        is_counted = (c.replicas[index] == 1) & ~c.mps[index] & ~c.mig_single[index]
        left = nodes.free(custom_resources.GPU) - lent
        return (lent > 0) & is_counted & (left < want.count)

    def without_devices(self, carried: Carried, nodes: NodeView) -> CodeColumn:
        """The verdicts on these nodes for a claim whose devices a ResourceClaim gives."""
        codes = np.zeros(len(nodes), dtype=np.uint8)
        self._judge_fabric(carried.fabric, nodes, codes)
        if carried.selector:
            _overrule(codes, ((_unselected(carried.selector, nodes), Why.SELECTOR),))
        return codes

    def _reinterpret(self, want: Want, nodes: NodeView, fits: Fits) -> None:
        """On nodes where `nvidia.com/gpu` stands for replicas or MIG instances, judge by these."""
        c, index = self._table.columns, nodes.index
        pieces, instances = c.replicas[index] > 1, c.mig_single[index]
        if not np.count_nonzero(pieces | instances):
            return
        instances = instances & ~pieces
        gbps, kept = fits.worth()
        for mask, meaning in (
            (pieces, Want(want.count, "Replicas", implicit=True)),
            (instances, Want(want.count, "MIG", profile=ANY_PROFILE, implicit=True)),
        ):
            if mask.any():
                there = self.evaluate(meaning, nodes.at(nodes.rows[mask]))
                fits.codes[mask] = there.codes
                gbps[mask], kept[mask] = there.worth()
        fits.worth = lambda: (gbps, kept)

    def _exclusive(self, want: Want, nodes: NodeView, usable: Masks) -> Fits:
        c, index = self._table.columns, nodes.index
        unmixed = ~c.mig[index]
        usable = usable & unmixed
        free = usable & ~c.busy[index]
        best = self._look_up(want, nodes, free)
        fits = Fits(np.zeros(len(nodes), dtype=np.uint8), best.worth)
        failed = (best.sets == 0).nonzero()[0]
        if len(failed):
            usable = usable[failed]
            verdicts = (
                (_fewer((c.present[index] & unmixed)[failed], want.count), Why.COUNT),
                (_fewer(usable, want.count), Why.HEALTH),
                *self._lacks_links(want, nodes, usable, failed),
                (_fewer(free[failed], want.count), Why.BUSY),
            )
            fits.codes[failed] = _first_of(verdicts, len(failed))
        if not want.implicit:
            _overrule(fits.codes, ((c.replicas[index] > 1, Why.SHARING),))
        return fits

    def _shared(self, want: Want, nodes: NodeView, usable: Masks) -> Fits:
        c, index = self._table.columns, nodes.index
        unmixed = ~c.mig[index]
        usable = usable & unmixed
        total, milli, large = c.memory_total[index].astype(np.int64), want.milli, usable
        memory = total * want.milli // WHOLE
        if want.memory_mib:
            milli = np.maximum(want.milli, want.memory_mib * WHOLE // np.maximum(total, 1) * (total > 0))
            memory = np.maximum(want.memory_mib, memory)
            large = usable & _mask(total >= memory)
        roomy = large & _mask((c.milli[index] >= milli) & (c.memory[index] >= memory)) & ~c.whole[index]
        best, begun = self._look_up(want, nodes, roomy), roomy & c.busy[index]

        def worth() -> tuple[Floats, Floats]:
            gbps, _ = best.worth()
            return gbps, (self._look_up(want, nodes, begun).sets != 0).astype(np.float32)

        fits = Fits(np.zeros(len(nodes), dtype=np.uint8), worth)
        failed = (best.sets == 0).nonzero()[0]
        if len(failed):
            large = large[failed]
            verdicts = (
                (_fewer((c.present[index] & unmixed)[failed], want.count), Why.COUNT),
                (_fewer(usable[failed], want.count), Why.HEALTH),
                (_fewer(large, want.count), Why.TOO_SMALL),
                *self._lacks_links(want, nodes, large, failed),
                (_fewer(roomy[failed], want.count), Why.NO_ROOM),
            )
            fits.codes[failed] = _first_of(verdicts, len(failed))
        return fits

    def _replicas(self, want: Want, nodes: NodeView, usable: Masks) -> Fits:
        c, index = self._table.columns, nodes.index
        replicas = c.replicas[index].astype(np.int64)
        usable = usable & ~c.mig[index]
        left = c.milli[index].astype(np.int64) // (WHOLE // replicas)[:, None]
        pieces = (left * _spread(usable & ~c.whole[index])).sum(axis=1)
        one = c.mps[index] | self._limits.one_replica
        fits = _empty(len(nodes))
        verdicts = (
            (one & (want.count > 1), Why.ONE_REPLICA),
            (np.bitwise_count(c.present[index]) * replicas < want.count, Why.COUNT),
            (np.bitwise_count(usable) * replicas < want.count, Why.HEALTH),
            (pieces < want.count, Why.NO_ROOM),
        )
        _overrule(fits.codes, verdicts)
        return fits

    def _instances(self, want: Want, nodes: NodeView) -> Fits:
        every, free = self._table.columns.profile(want.profile)
        fits = _empty(len(nodes))
        index = nodes.index
        _overrule(fits.codes, ((every[index] < want.count, Why.PROFILE), (free[index] < want.count, Why.NO_INSTANCE)))
        return fits

    def _judge_fabric(self, fabric: FabricWant, nodes: NodeView, codes: CodeColumn) -> None:
        """Reasons that no waiting can change replace those that it can."""
        c, index = self._table.columns, nodes.index
        if not (fabric.rdma or fabric.min_ports or fabric.cu_file == "Required"):
            return
        wrong: list[_Verdict] = []
        if fabric.rdma:
            wrong.append((c.ports[index] == 0, Why.RDMA))
        if fabric.min_ports:
            wrong.append((c.ports[index] < fabric.min_ports, Why.PORTS))
        if fabric.cu_file == "Required":
            wrong.append((~c.cu_file[index], Why.CU_FILE))
        open_ = (codes == 0) | (codes > Why.CU_FILE)
        _overrule(codes, [(mask & open_, why) for mask, why in wrong])

    def _lacks_links(self, want: Want, nodes: NodeView, masks: Masks, places: Rows) -> Sequence[_Verdict]:
        """Which of these places in the view have no set of linked devices within `masks`, if links are required."""
        if want.rule.mode != "Required":
            return ()
        numbers = self._table.columns.link_class[nodes.index][places]
        return ((~self._table.tables.has_any(numbers, masks, want.count, want.rule), Why.LINKS),)

    def _look_up(self, want: Want, nodes: NodeView, masks: Masks) -> BestSets:
        """The best sets within `masks`, each node by the table of its link class."""
        numbers = self._table.columns.link_class[nodes.index]
        return self._table.tables.look_up(numbers, masks, want.count, want.rule)


def _unselected(selector: Sequence[tuple[str, str]], nodes: NodeView) -> BoolColumn:
    found = [nodes.label(key).equals(value) for key, value in selector]
    return ~reduce(np.logical_and, found)


def _empty(size: int) -> Fits:
    nothing_known = np.zeros(size, dtype=np.float32), np.ones(size, dtype=np.float32)
    return Fits(np.zeros(size, dtype=np.uint8), lambda: nothing_known)


def _overrule(codes: CodeColumn, verdicts: Sequence[_Verdict]) -> None:
    """Write verdicts over the codes; an earlier verdict takes precedence over a later one."""
    if len(codes) < _FEW:
        for mask, why in reversed(verdicts):
            if np.count_nonzero(mask):
                codes[mask] = why
        return
    for mask, why in reversed(verdicts):
        if mask[mask.argmax()]:  # most verdicts apply to no node
            applies = np.negative(mask.view(np.uint8))  # all bits of a byte, or none
            codes &= ~applies
            codes |= applies & np.uint8(why)


def _first_of(verdicts: Sequence[_Verdict], size: int) -> CodeColumn:
    """The first verdict that applies to each node; LINKS_BUSY if none does."""
    codes = np.empty(size, dtype=np.uint8)
    codes.fill(Why.LINKS_BUSY)
    _overrule(codes, verdicts)
    return codes


def _fewer(masks: Masks, count: int) -> BoolColumn:
    fewer: BoolColumn = np.bitwise_count(masks) < count
    return fewer


def _mask(places: NDArray[np.bool_]) -> Masks:
    masks: Masks = (places * _BITS).sum(axis=1, dtype=np.uint32)
    return masks


def _spread(masks: Masks) -> NDArray[np.bool_]:
    return (masks[:, None] & _BITS) != 0
